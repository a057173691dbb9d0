//! Images with objects: from COCO's, Pascal VOC's and YOLO's files, sound and broken; scenes; and the transforms that move both.

use crate::common::{Folder, png};
use kiln_data::{
    BadRecords, DataKind, Dataset, Draw, Facts, FileOptions, FlipObjects, Letterbox, MadeUp, Mosaic, OBJECTS, Object,
    Opened, Request, Sample, Shared, Subset, Transform,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

fn request(path: &Path) -> Request<'_> {
    Request {
        path: Some(path),
        shape: &[16, 16, 3],
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: None,
        bad: BadRecords::Refuse,
        facts: None,
    }
}

fn open(kind: DataKind, path: &Path) -> kiln_data::Result<Opened> {
    (kind.card().open)(&request(path))
}

fn objects(sample: &Sample) -> Vec<(u32, [f32; 4], bool)> {
    Object::of_targets(&sample.targets)
        .map(|object| (object.class, object.bounds, object.crowd))
        .collect()
}

/// A black image of 8×16 (height × width).
fn image() -> Vec<u8> {
    png(16, 8, png::ColorType::Rgb, &[0; 16 * 8 * 3])
}

const COCO: &str = r#"{
"images": [{"id": 7, "file_name": "a.png", "width": 16, "height": 8}, {"id": 9, "file_name": "b.png", "width": 16, "height": 8}],
"categories": [{"id": 5, "name": "dog"}, {"id": 2, "name": "cat"}],
"annotations": [
  {"id": 1, "image_id": 9, "category_id": 5, "bbox": [4, 2, 8, 4], "area": 32, "iscrowd": 0},
  {"id": 2, "image_id": 9, "category_id": 2, "bbox": [0, 0, 16.5, 8], "iscrowd": 1}]
}"#;

#[test]
fn coco_is_read_in_both_layouts() {
    let dir = Folder::new();
    for name in ["train2017/a.png", "train2017/b.png", "val2017/a.png", "val2017/b.png"] {
        dir.file(&format!("coco/{name}"), &image());
    }
    dir.file("coco/annotations/instances_train2017.json", COCO.as_bytes());
    dir.file("coco/annotations/instances_val2017.json", COCO.as_bytes());
    let root = dir.path().join("coco");
    assert!((DataKind::Coco.card().recognises)(&root));
    let opened = open(DataKind::Coco, &root).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (2, 2));
    assert_eq!(opened.facts.names(Facts::CLASSES).unwrap(), ["cat", "dog"]);
    let sample = opened.train.get(1).unwrap();
    // Twelve rows of grey: the image has four above and four below.
    assert_eq!((sample.input[0], sample.input[4 * 16 * 3]), (114.0, 0.0));
    let expected = [(1, [4.0, 6.0, 12.0, 10.0], false), (0, [0.0, 4.0, 16.0, 12.0], true)];
    assert_eq!(objects(&sample), expected);
    assert_eq!(objects(&opened.train.get(0).unwrap()), []);
    // The list among the images, and a single file, whose last image is held back.
    dir.file("flat/train/_annotations.coco.json", COCO.as_bytes());
    dir.file("flat/train/a.png", &image());
    dir.file("flat/train/b.png", &image());
    let opened = open(DataKind::Coco, &dir.path().join("flat")).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (1, 1));
    assert_eq!(objects(&opened.test.get(0).unwrap()), expected);
    let file = dir.path().join("flat/train/_annotations.coco.json");
    assert_eq!(open(DataKind::Coco, &file).unwrap().train.len(), 1);
}

#[test]
fn what_is_wrong_in_coco_is_named() {
    let dir = Folder::new();
    let of = |change: (&str, &str)| {
        let text = COCO.replacen(change.0, change.1, 1);
        assert_ne!(text, COCO, "{change:?}");
        let path = dir.file("a.json", text.as_bytes());
        let wrong = open(DataKind::Coco, &path).err().unwrap().to_string();
        let skipping = Request {
            bad: BadRecords::Skip,
            ..request(&path)
        };
        (wrong, (DataKind::Coco.card().open)(&skipping).is_ok())
    };
    for (change, parts, can_skip) in [
        (("\"bbox\": [4, 2, 8, 4], ", ""), ["a.json", "bbox", "line 5"], false),
        (
            ("[4, 2, 8, 4]", "[4, 2, 0, 4]"),
            ["annotations.bbox", "record 0", "some width"],
            true,
        ),
        (
            ("[4, 2, 8, 4]", "[4, 2, 80, 4]"),
            ["annotations.bbox", "16", "beyond the image"],
            true,
        ),
        (
            ("[4, 2, 8, 4]", "[40, 2, 8, 4]"),
            ["annotations.bbox", "40", "in the image"],
            true,
        ),
        (
            ("\"image_id\": 9", "\"image_id\": 8"),
            ["annotations.image_id", "record 0", "8"],
            true,
        ),
        (
            ("\"category_id\": 2", "\"category_id\": 3"),
            ["annotations.category_id", "record 1", "3"],
            true,
        ),
        (("\"id\": 9", "\"id\": 7"), ["images.id", "record 1", "7"], false),
        (
            ("\"a.png\"", "\"../a.png\""),
            ["images.file_name", "../a.png", "below"],
            false,
        ),
        (("{\n", "{{"), ["a.json", "line 1", "COCO JSON"], false),
    ] {
        let (wrong, skipped) = of(change);
        assert!(parts.iter().all(|part| wrong.contains(part)), "{change:?}: {wrong}");
        assert_eq!(skipped, can_skip, "{change:?}");
    }
    // An image of another size than the list says, and classes that a trained network does not know.
    let path = dir.file("b.json", COCO.as_bytes());
    dir.file("a.png", &png(2, 2, png::ColorType::Rgb, &[0; 12]));
    let wrong = open(DataKind::Coco, &path)
        .unwrap()
        .train
        .get(0)
        .unwrap_err()
        .to_string();
    assert!(
        wrong.contains("a.png") && wrong.contains("2×2") && wrong.contains("8×16"),
        "{wrong}"
    );
    let facts = Facts::default().with(Facts::CLASSES, kiln_data::Fact::Names(vec!["cat".into()]));
    let trained = Request {
        facts: Some(&facts),
        ..request(&path)
    };
    let wrong = (DataKind::Coco.card().held_back)(&trained).err().unwrap().to_string();
    assert!(wrong.contains("categories.name") && wrong.contains("dog"), "{wrong}");
}

fn voc(objects: &str) -> String {
    format!(
        "<annotation>\n<filename>a.png</filename>\n<size><width>16</width><height>8</height></size>\n{objects}\n</annotation>"
    )
}

const DOG: &str = "<object><name>dog</name><difficult>1</difficult>\n<bndbox><xmin>5</xmin><ymin>3</ymin><xmax>12</xmax><ymax>6</ymax></bndbox></object>";

#[test]
fn pascal_voc_is_read_with_lists_and_without() {
    let dir = Folder::new();
    dir.file("VOC2012/JPEGImages/a.png", &image());
    dir.file("VOC2012/Annotations/a.xml", voc(DOG).as_bytes());
    dir.file("VOC2012/Annotations/b.xml", voc(&DOG.replace("dog", "cat")).as_bytes());
    let card = DataKind::Voc.card();
    assert!((card.recognises)(dir.path()) && !(card.recognises)(&dir.path().join("VOC2012/Annotations")));
    let opened = open(DataKind::Voc, dir.path()).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (1, 1));
    assert_eq!(opened.facts.names(Facts::CLASSES).unwrap(), ["cat", "dog"]);
    let expected = [(1, [4.0, 6.0, 12.0, 10.0], true)];
    assert_eq!(objects(&opened.train.get(0).unwrap()), expected);
    dir.file("VOC2012/ImageSets/Main/train.txt", b"a\n");
    dir.file("VOC2012/ImageSets/Main/val.txt", b"a\na\n");
    let opened = open(DataKind::Voc, dir.path()).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (1, 2));
    dir.file("VOC2012/ImageSets/Main/val.txt", b"b\n");
    let wrong = open(DataKind::Voc, dir.path()).err().unwrap().to_string();
    assert!(
        wrong.contains("b.xml") && wrong.contains("line 4") && wrong.contains("cat"),
        "{wrong}"
    );
}

#[test]
fn what_is_wrong_in_pascal_voc_is_named() {
    let dir = Folder::new();
    for (change, parts) in [
        (
            ("<xmax>12</xmax>", "<xmax>4</xmax>"),
            ["line 5", "bndbox", "some width"],
        ),
        (("<xmax>12</xmax>", "<xmax>40</xmax>"), ["line 5", "bndbox", "beyond"]),
        (("<xmax>12</xmax>", "<xmax>x</xmax>"), ["line 5", "xmax", "a number"]),
        (("<ymax>6</ymax>", ""), ["line 5", "<bndbox> without", "<ymax>"]),
        (("<name>dog</name>", ""), ["line 4", "<object> without", "<name>"]),
        (("<object>", "<object"), ["XML", "line 4", "a.xml"]),
    ] {
        dir.file("Annotations/a.xml", voc(DOG).replacen(change.0, change.1, 1).as_bytes());
        let wrong = open(DataKind::Voc, dir.path()).err().unwrap().to_string();
        assert!(parts.iter().all(|part| wrong.contains(part)), "{change:?}: {wrong}");
    }
}

#[test]
fn yolo_is_read_and_what_is_wrong_in_it_is_named() {
    let dir = Folder::new();
    dir.file("images/train/a.png", &image());
    dir.file("images/train/b.png", &image());
    dir.file("images/val/c.png", &image());
    dir.file("labels/train/a.txt", b"1 0.5 0.5 0.5 0.5\n\n0 0.25 0.5 0.5 1.0\n");
    let yaml = dir.file(
        "data.yaml",
        b"path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n",
    );
    assert!((DataKind::Yolo.card().recognises)(dir.path()));
    let opened = open(DataKind::Yolo, dir.path()).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (2, 1));
    let expected = [(1, [4.0, 6.0, 12.0, 10.0], false), (0, [0.0, 4.0, 8.0, 12.0], false)];
    assert_eq!(objects(&opened.train.get(0).unwrap()), expected);
    assert_eq!(objects(&opened.train.get(1).unwrap()), []);
    for (line, parts) in [
        ("2 0.5 0.5 0.5 0.5", ["a.txt", "line 1", "from 0 to 1"]),
        ("1 0.5 0.5 0.5", ["a.txt", "number of fields", "4"]),
        ("1 0.5 x 0.5 0.5", ["a.txt", "column `y`", "a number"]),
        ("1 0.5 0.5 0 0.5", ["a.txt", "line 1", "some width"]),
        ("1 5 0.5 0.5 0.5", ["a.txt", "line 1", "beyond"]),
    ] {
        dir.file("labels/train/a.txt", line.as_bytes());
        let wrong = open(DataKind::Yolo, &yaml).err().unwrap().to_string();
        assert!(parts.iter().all(|part| wrong.contains(part)), "{line}: {wrong}");
    }
    dir.file("labels/train/a.txt", b"");
    for (text, part) in [
        ("train: images/train\n", "names"),
        ("names: [a\ntrain: x", "line 2"),
        ("names: [a]\n", "train:"),
    ] {
        let yaml = dir.file("data.yaml", text.as_bytes());
        let wrong = open(DataKind::Yolo, &yaml).err().unwrap().to_string();
        assert!(wrong.contains(part) && wrong.contains("data.yaml"), "{text}: {wrong}");
    }
    dir.file("data.yaml", b"train: images/train\nnames: [a]\n");
    let opened = open(DataKind::Yolo, dir.path()).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (1, 1));
}

#[test]
fn an_image_to_ask_about_remembers_its_size() {
    let dir = Folder::new();
    let path = dir.file("a.png", &image());
    let options = FileOptions {
        shape: &[16, 16, 3],
        facts: &Facts::default(),
        tokenizer: None,
        own_size: false,
        invert: None,
    };
    let read = DataKind::Scenes.card().file.unwrap();
    let sample = read(&path, &options).unwrap().remove(0);
    let letterbox = Letterbox::of_targets(&sample.targets).unwrap();
    assert_eq!(letterbox.unfitted([4.0, 6.0, 12.0, 10.0]), [4.0, 2.0, 12.0, 6.0]);
}

#[test]
fn scenes_are_the_same_each_time_and_have_objects_of_every_class() {
    let card = DataKind::Scenes.card();
    let request = Request {
        path: None,
        shape: &[48, 64, 3],
        ..request(Path::new(""))
    };
    let opened = (card.open)(&request).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (2000, 200));
    let mut classes = [0; 10];
    for index in 0..100 {
        let sample = opened.train.get(index).unwrap();
        assert!(
            sample
                .input
                .iter()
                .all(|x| (0.0..=255.0).contains(x) && x.fract() == 0.0)
        );
        let objects = objects(&sample);
        assert!((1..=6).contains(&objects.len()), "{index}");
        for (class, [x1, y1, x2, y2], crowd) in objects {
            classes[class as usize] += 1;
            assert!(!crowd && x1 >= 0.0 && y1 >= 0.0 && x2 <= 64.0 && y2 <= 48.0 && x2 - x1 >= 1.0 && y2 - y1 >= 1.0);
        }
    }
    assert!(classes.iter().all(|&count| count > 10), "{classes:?}");
    let again = (card.held_back)(&request).unwrap();
    assert_eq!(again.get(5).unwrap(), opened.test.get(5).unwrap());
    assert_ne!(again.get(5).unwrap().input, opened.train.get(5).unwrap().input);
}

/// Sums of pixels and the last objects of some scenes as `benches/peers/scenes.py` draws them.
#[test]
fn scenes_are_those_of_the_script_in_python() {
    let request = Request {
        path: None,
        shape: &[160, 160, 3],
        ..request(Path::new(""))
    };
    let opened = (DataKind::Scenes.card().open)(&request).unwrap();
    for (part, index, sum, class, bounds) in [
        (&opened.train, 0, 7_543_874.0, 2, [89.435, 83.645, 126.17, 120.38]),
        (&opened.train, 2, 6_358_314.0, 0, [43.25, 36.09, 75.404, 65.029]),
        (&opened.test, 1, 7_650_228.0, 0, [39.622, 52.823, 76.614, 91.761]),
        (&opened.test, 2, 6_568_190.0, 1, [145.057, 118.805, 150.735, 137.73]),
    ] {
        let sample = part.get(index).unwrap();
        let found: f64 = sample.input.iter().map(|&x| f64::from(x)).sum();
        // Powers of f32 may differ in the last bit, and a pixel then by one.
        assert!((found - sum).abs() <= 20.0, "{found} and {sum}");
        let (its, edges, _) = *objects(&sample).last().unwrap();
        assert_eq!(its, class);
        assert!(
            edges.iter().zip(bounds).all(|(a, b)| (a - b).abs() < 2e-3),
            "{edges:?} and {bounds:?}"
        );
    }
}

#[test]
fn scenes_are_made_of_the_sprites_of_a_sheet() {
    let dir = Folder::new();
    // Two classes in four cells of 8×8: an opaque square of 4×4 in the middle of each, red or blue.
    let mut pixels = vec![0; 8 * 32 * 4];
    for (y, x) in (2..6).flat_map(|y| (0..32).filter(|x| (2..6).contains(&(x % 8))).map(move |x| (y, x))) {
        let colour = if x / 8 % 2 == 0 {
            [255, 0, 0, 255]
        } else {
            [0, 0, 255, 255]
        };
        pixels[(y * 32 + x) * 4..][..4].copy_from_slice(&colour);
    }
    dir.file("sheet.png", &png(32, 8, png::ColorType::Rgba, &pixels));
    dir.file(
        "labels.csv",
        b"column,row,label,split\n0,0,red,train\n1,0,blue,train\n2,0,red,test\n3,0,blue,test\n",
    );
    let request = Request {
        shape: &[64, 64, 3],
        ..request(dir.path())
    };
    let opened = (DataKind::Scenes.card().open)(&request).unwrap();
    assert_eq!(opened.facts.names(Facts::CLASSES).unwrap(), ["blue", "red"]);
    let mut seen = [0; 2];
    for sample in (0..20).map(|index| opened.train.get(index).unwrap()) {
        for (class, [x1, y1, x2, y2], _) in objects(&sample) {
            // The last one lies above the others; of those below at least a part is seen.
            let (x, y) = (((x1 + x2) / 2.0) as usize, ((y1 + y2) / 2.0) as usize);
            let pixel = &sample.input[(y * 64 + x) * 3..][..3];
            seen[class as usize] += usize::from(pixel[[2, 0][class as usize]] == 255.0);
        }
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

/// Rectangles whose colour is their class, so that objects can be looked for in the image.
fn rectangles() -> Opened {
    let made = MadeUp {
        shape: &[48, 40, 3],
        outputs: 3,
        count: 40,
        seed: 1,
    };
    (OBJECTS.synthetic)(&made).unwrap()
}

/// The share of objects whose middle has their colour: red, green or blue.
fn coloured(sample: &Sample) -> (usize, usize) {
    let all = objects(sample);
    let right = all.iter().filter(|(class, [x1, y1, x2, y2], _)| {
        let (x, y) = (((x1 + x2) / 2.0) as usize, ((y1 + y2) / 2.0) as usize);
        let pixel = &sample.input[(y * 40 + x) * 3..][..3];
        let colour: Vec<f32> = (0..3).map(|c| if c == (3 - class) % 3 { 255.0 } else { 0.0 }).collect();
        pixel == colour
    });
    (right.count(), all.len())
}

#[test]
fn rectangles_have_the_colour_of_their_class() {
    let data = rectangles();
    for index in 0..data.train.len() {
        let (right, all) = coloured(&data.train.get(index).unwrap());
        assert!(right == all && all > 0, "{index}: {right} of {all}");
    }
}

/// The images with one rectangle, which nothing covers, however it is cut.
fn alone() -> Shared {
    let data = rectangles().train;
    let one = |index: &usize| objects(&data.get(*index).unwrap()).len() == 1;
    let indices: Vec<usize> = (0..data.len()).filter(one).collect();
    assert!(indices.len() > 4);
    Arc::new(Subset::new(data, indices).unwrap())
}

proptest! {
    #[test]
    fn objects_move_with_the_image(index in 0usize..100, seed in 0u64..1000) {
        let data = alone();
        let index = index % data.len();
        let mut sample = data.get(index).unwrap();
        FlipObjects.apply(&mut sample, &Draw::new(seed, 0, index)).unwrap();
        let (right, all) = coloured(&sample);
        prop_assert!(right == all && all > 0);
        Mosaic::new(data, 1.0).apply(&mut sample, &Draw::new(seed, 1, index)).unwrap();
        prop_assert_eq!(sample.shape.dims(), &[48, 40, 3]);
        let (right, all) = coloured(&sample);
        prop_assert!(right == all, "{} of {}", right, all);
        for (_, [x1, y1, x2, y2], _) in objects(&sample) {
            prop_assert!(x1 >= 0.0 && y1 >= 0.0 && x2 <= 40.0 && y2 <= 48.0 && x1 < x2 && y1 < y2);
        }
    }
}
