//! Sheets of pictures with a table of their classes.

use crate::common::{Folder, png};
use kiln_data::{BadRecords, DataKind, Dataset, Fact, Facts, FileOptions, Request};
use png::ColorType as Png;
use std::path::Path;

/// The side of the grid.
const GRID: usize = 4;

/// A sheet of 4×4 cells of `cell` pixels with a border: a picture is red by its column and green by its row, the border opaque blue,
/// and the right half of each picture is transparent.
fn sheet(cell: usize, border: usize) -> Vec<u8> {
    let side = GRID * cell;
    let mut pixels = Vec::new();
    for y in 0..side {
        for x in 0..side {
            let inside = |at: usize| (border..cell - border).contains(&(at % cell));
            let transparent = 2 * (x % cell) >= cell;
            pixels.extend(match (inside(x) && inside(y), transparent) {
                (false, _) => [0, 0, 255, 255],
                (true, false) => [10 * (x / cell) as u8, 10 * (y / cell) as u8, 0, 255],
                (true, true) => [1, 2, 3, 0],
            });
        }
    }
    png(side as u32, side as u32, Png::Rgba, &pixels)
}

/// Twelve cells: eight of `many` and two of `few`, of which one of each is held back, and two of `lonely` that are all trained on.
fn table() -> String {
    let mut text = "row,column,name,category,split\n".to_string();
    for i in 0..12 {
        let (class, split) = match i {
            0 => ("few", "test"),
            1 => ("few", "train"),
            2 => ("many", "test"),
            3 | 4 => ("lonely", "train"),
            _ => ("many", "train"),
        };
        text.push_str(&format!("{},{},\"a, {i}\",{class},{split}\n", i / GRID, i % GRID));
    }
    text + "3,3,last,many,train\n"
}

fn folder(name: &str, sheet: &[u8], table: &str) -> Folder {
    let folder = Folder::new();
    folder.file(name, sheet);
    folder.file("labels.csv", table.as_bytes());
    folder
}

fn request<'a>(path: &'a Path, shape: &'a [usize]) -> Request<'a> {
    Request {
        path: Some(path),
        shape,
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: None,
        bad: BadRecords::Refuse,
        facts: None,
    }
}

#[test]
fn pictures_are_cut_out_of_their_cells_onto_a_white_ground() {
    let card = DataKind::SpriteSheet.card();
    for (name, cell, border) in [("sheet-6.png", 8, 1), ("sheet.PNG", 6, 0), ("icons-6.png", 6, 0)] {
        let folder = folder(name, &sheet(cell, border), &table());
        assert!((card.recognises)(folder.path()));
        let opened = (card.open)(&request(folder.path(), &[6, 6, 3])).unwrap();
        // `lonely` has none that is held back.
        assert_eq!(opened.facts.names(Facts::CLASSES).unwrap(), ["few", "many"]);
        assert_eq!((opened.train.len(), opened.test.len()), (9, 2), "{name}");
        let cells = [
            (0, 1, 0),
            (1, 1, 1),
            (1, 2, 1),
            (1, 3, 1),
            (2, 0, 1),
            (2, 1, 1),
            (2, 2, 1),
            (2, 3, 1),
            (3, 3, 1),
        ];
        for (i, (row, column, label)) in cells.into_iter().enumerate() {
            let sample = opened.train.get(i).unwrap();
            assert_eq!((sample.label, sample.shape.dims()), (label, &[6, 6, 3][..]));
            for (at, &value) in sample.input.iter().enumerate() {
                let colour = [10 * column, 10 * row, 0][at % 3];
                let want = if at / 3 % 6 < 3 { colour } else { 255 };
                assert_eq!(value, want as f32, "{name}: picture {i}, {at}");
            }
        }
        assert_eq!(
            (opened.test.get(0).unwrap().label, opened.test.get(1).unwrap().label),
            (0, 1)
        );
        let held_back = (card.held_back)(&Request {
            facts: Some(&opened.facts),
            ..request(folder.path(), &[6, 6, 3])
        });
        assert_eq!(held_back.unwrap().get(1).unwrap(), opened.test.get(1).unwrap());
        // Other sizes, and grey.
        let small = (card.open)(&request(folder.path(), &[3, 2, 1])).unwrap();
        assert_eq!(small.train.get(4).unwrap().shape.dims(), [3, 2, 1]);
        // Their own, where the network can be built for it.
        for (sides, shape) in [(&[4, 6][..], [6, 6, 3]), (&[4, 8], [4, 4, 3]), (&[8], [3, 2, 1])] {
            let own = Request {
                sides,
                ..request(folder.path(), &[3, 2, 1])
            };
            assert_eq!((card.open)(&own).unwrap().train.get(4).unwrap().shape.dims(), shape);
            assert_eq!((card.held_back)(&own).unwrap().get(1).unwrap().shape.dims(), shape);
        }
    }
}

#[test]
fn classes_are_drawn_equally_often_and_measured_as_they_are() {
    let folder = folder("sheet-6.png", &sheet(8, 1), &table());
    let opened = (DataKind::SpriteSheet.card().open)(&request(folder.path(), &[6, 6, 3])).unwrap();
    let weights = |part: &kiln_data::Shared| -> Vec<Option<f64>> { (0..part.len()).map(|i| part.weight(i)).collect() };
    assert_eq!(weights(&opened.train)[0], Some(1.0));
    assert!(
        weights(&opened.train)[1..]
            .iter()
            .all(|&weight| weight == Some(1.0 / 8.0))
    );
    assert_eq!(weights(&opened.test), [None; 2]);
    // A subset, and the images of a device, have those of the whole.
    let subset = kiln_data::Subset::new(opened.train.clone(), vec![3, 0]).unwrap();
    assert_eq!((subset.weight(0), subset.weight(1)), (Some(1.0 / 8.0), Some(1.0)));
    let on_device = kiln_data::DeviceImages::new(&kiln_cpu::Cpu::new(), opened.train.clone()).unwrap();
    assert_eq!((on_device.weight(0), on_device.weight(8)), (Some(1.0), Some(1.0 / 8.0)));
    assert_eq!(on_device.weight(9), None);
}

#[test]
fn what_is_wrong_is_named_with_its_file_and_place() {
    let card = DataKind::SpriteSheet.card();
    let whole = sheet(8, 1);
    let refused = |name: &str, sheet: &[u8], table: &str, parts: &[&str]| {
        let folder = folder(name, sheet, table);
        let error = (card.open)(&request(folder.path(), &[6, 6, 3]))
            .err()
            .unwrap()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    };
    let with = |line: &str| format!("{}{line}\n", table());
    refused(
        "s.png",
        &whole,
        "row,column\n0,0\n",
        &["labels.csv", "`label` or `category`"],
    );
    refused("s.png", &whole, "row,label\n0,a\n", &["labels.csv", "`column`"]);
    refused(
        "s.png",
        &whole,
        &with("x,0,,many,train"),
        &["line 15, column `row`", "\"x\"", "counted from 0"],
    );
    refused(
        "s.png",
        &whole,
        &with("0,-1,,many,train"),
        &["column `column`", "\"-1\""],
    );
    refused(
        "s.png",
        &whole,
        &with("0,0,,,train"),
        &["line 15, column `category`", "the name of a class"],
    );
    refused("s.png", &whole, &with("0,0"), &["line 15", "number of fields"]);
    refused(
        "s.png",
        &whole,
        &with("4,0,,many,train"),
        &["line 15, column `row`", "below 4"],
    );
    refused(
        "s.png",
        &whole,
        &with("0,4,,many,train"),
        &["s.png", "width", "32", "5 columns"],
    );
    refused(
        "s-9.png",
        &whole,
        &table(),
        &["s-9.png", "side of a picture", "at most 8"],
    );
    refused("s-7.png", &whole, &table(), &["s-7.png", "the same on all sides"]);
    refused("s.png", &whole[..200], &table(), &["s.png"]);
    refused(
        "s.png",
        &whole,
        "row,column,label,split\n0,0,a,train\n0,1,b,test\n",
        &["labels.csv", "held back"],
    );
    let two = folder("a.png", &whole, &table());
    two.file("b.png", &whole);
    let error = (card.open)(&request(two.path(), &[6, 6, 3])).err().unwrap().to_string();
    assert!(error.contains("number of PNG files") && error.contains('2'), "{error}");
    std::fs::remove_file(two.path().join("a.png")).unwrap();
    std::fs::remove_file(two.path().join("b.png")).unwrap();
    let error = (card.open)(&request(two.path(), &[6, 6, 3])).err().unwrap().to_string();
    assert!(error.contains("a PNG file"), "{error}");
    // Other classes than those of a trained network.
    let folder = folder("s.png", &whole, &table());
    let other = Facts::default().with(Facts::CLASSES, Fact::Names(vec!["bird".into()]));
    let known = Request {
        facts: Some(&other),
        ..request(folder.path(), &[6, 6, 3])
    };
    let error = (card.held_back)(&known).err().unwrap().to_string();
    assert!(
        error.contains("labels.csv") && error.contains("few, many") && error.contains("bird"),
        "{error}"
    );
}

#[test]
fn bad_lines_are_left_out_on_request_and_without_a_split_a_tenth_is_held_back() {
    let mut text = "column,row,label\n".to_string();
    for i in 0..16 {
        text.push_str(&format!("{},{},{}\n", i % GRID, i / GRID, ["a", "b"][i / 3 % 2]));
    }
    text.push_str("9x,0,a\n3,3\n");
    for i in 0..10 {
        text.push_str(&format!("{},0,a\n", i % GRID));
    }
    let folder = folder("s.png", &sheet(6, 0), &text);
    let skip = Request {
        bad: BadRecords::Skip,
        ..request(folder.path(), &[6, 6, 3])
    };
    let opened = (DataKind::SpriteSheet.card().open)(&skip).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (24, 2));
    assert_eq!(opened.train.skipped().unwrap().count(), 2);
}

#[test]
fn a_single_picture_lies_on_the_same_ground() {
    let folder = Folder::new();
    let file = folder.file("one.png", &png(2, 1, Png::Rgba, &[200, 0, 0, 255, 9, 9, 9, 0]));
    let options = FileOptions {
        shape: &[1, 2, 3],
        facts: &Facts::default(),
        tokenizer: None,
        own_size: false,
        invert: None,
    };
    let samples = DataKind::SpriteSheet.card().file.unwrap()(&file, &options).unwrap();
    assert_eq!(samples[0].input, [200.0, 0.0, 0.0, 255.0, 255.0, 255.0]);
}
