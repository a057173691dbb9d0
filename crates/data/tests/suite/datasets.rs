//! The table of datasets: every row reads what it says it reads, and the synthetic dataset of every kind of samples can be trained on.

use crate::common::Folder;
use kiln_data::{
    BadRecords, DataKind, Dataset, Facts, FileOptions, IMAGES, MadeUp, ROWS, Request, SampleKind, WINDOWS, csv,
};
use std::path::Path;

fn request<'a>(path: &'a Path, shape: &'a [usize]) -> Request<'a> {
    Request {
        path: Some(path),
        shape,
        target: None,
        tokenizer: None,
        bad: BadRecords::Refuse,
        facts: None,
    }
}

#[test]
fn names_and_rows_fit_each_other() {
    for kind in DataKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        let card = kind.card();
        assert!(
            !card.description.is_empty() && !card.obtain.is_empty() && !card.example.is_empty(),
            "{kind}"
        );
        assert!(DataKind::of(card.samples).any(|other| other == kind));
        let request = Request {
            path: None,
            ..request(Path::new(""), &[28, 28, 1])
        };
        // Without a path there is what ships, or an error.
        assert_eq!((card.open)(&request).is_ok(), card.ships.is_some(), "{kind}");
    }
    assert!("MNIST".parse::<DataKind>().unwrap_err().contains("mnist, cifar10"));
}

#[test]
fn made_up_samples_are_those_of_the_network() {
    let shapes: [(&SampleKind, &[usize], usize); 3] =
        [(&IMAGES, &[8, 8, 1], 64), (&WINDOWS, &[16], 17), (&ROWS, &[5], 5)];
    for (kind, shape, size) in shapes {
        let made = MadeUp {
            shape,
            outputs: 3,
            count: 20,
            seed: 1,
        };
        let (samples, synthetic) = ((kind.samples)(&made).unwrap(), (kind.synthetic)(&made).unwrap());
        assert_eq!((samples.len(), synthetic.train.len()), (20, 20), "{}", kind.name);
        assert!((1..=made.held_back()).contains(&synthetic.test.len()), "{}", kind.name);
        for data in [&samples, &synthetic.train, &synthetic.test] {
            assert_eq!(data.get(0).unwrap().input.len(), size, "{}", kind.name);
        }
        assert_ne!(
            synthetic.train.get(0).unwrap(),
            synthetic.test.get(0).unwrap(),
            "{}",
            kind.name
        );
        let again = (kind.synthetic)(&made).unwrap();
        assert_eq!(
            synthetic.train.get(7).unwrap(),
            again.train.get(7).unwrap(),
            "{}",
            kind.name
        );
        let none = MadeUp { outputs: 0, ..made };
        // Sizes of 0 are an error, or samples; no panic.
        for made in [none, MadeUp { count: 0, ..made }] {
            let _ = ((kind.samples)(&made), (kind.synthetic)(&made));
        }
    }
}

/// Writes a table of `rows` rows with the columns `a`, `b`, `note` and `y = 100 + 3·a`.
fn table(path: &Path, rows: usize, delimiter: char) {
    let mut text = format!("a{delimiter}b{delimiter}y\n");
    for i in 0..rows {
        let d = delimiter;
        text.push_str(&format!("{i}{d}7{d}{}\n", 100 + 3 * i));
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn rows_have_a_mean_of_0_and_a_deviation_of_1_and_are_read_again_at_the_same_scale() {
    let dir = Folder::new();
    for (name, delimiter) in [("t.csv", ','), ("t.tsv", '\t')] {
        let path = dir.path().join(name);
        table(&path, 50, delimiter);
        let card = DataKind::Csv.card();
        assert!((card.recognises)(&path));
        let wanted = Request {
            target: Some("y"),
            ..request(&path, &[8])
        };
        let opened = (card.open)(&wanted).unwrap();
        assert_eq!((opened.train.len(), opened.test.len()), (45, 5));
        assert_eq!(opened.facts.described(), "2 features, target y");
        let column = |get: &dyn Fn(usize) -> f64| {
            let values: Vec<f64> = (0..45).map(get).collect();
            let mean = values.iter().sum::<f64>() / 45.0;
            (
                mean,
                (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 45.0).sqrt(),
            )
        };
        let sample = |i: usize| opened.train.get(i).unwrap();
        for (mean, deviation) in [
            column(&|i| f64::from(sample(i).input[0])),
            column(&|i| f64::from(sample(i).targets[0])),
        ] {
            assert!(
                mean.abs() < 1e-6 && (deviation - 1.0).abs() < 1e-6,
                "{mean}, {deviation}"
            );
        }
        // A column that is always the same stays 0.
        assert!((0..45).all(|i| sample(i).input[1] == 0.0));
        // The rows that are held back by the facts of the trained network, which bring the target's name too.
        let trained = Request {
            facts: Some(&opened.facts),
            ..request(&path, &[8])
        };
        let held_back = (card.held_back)(&trained).unwrap();
        for i in 0..5 {
            assert_eq!(held_back.get(i).unwrap(), opened.test.get(i).unwrap());
        }
        // A file without the target, and its columns in another order.
        let other = dir.path().join(format!("other.{name}"));
        std::fs::write(
            &other,
            format!("note{delimiter}b{delimiter}a\nx{delimiter}7{delimiter}4\n"),
        )
        .unwrap();
        let options = FileOptions {
            shape: &[8],
            facts: &opened.facts,
            invert: None,
        };
        let rows = card.file.unwrap()(&other, &options).unwrap();
        let (mean, deviation) = (
            opened.facts.numbers("features_mean").unwrap()[0],
            opened.facts.numbers("features_deviation").unwrap()[0],
        );
        assert_eq!(rows.len(), 1);
        assert!((f64::from(rows[0].input[0]) - (4.0 - mean) / deviation).abs() < 1e-6);
        // A predicted number in the units of the column.
        let mut predicted = [f64::from(sample(3).targets[0])];
        opened.facts.in_units(&mut predicted);
        assert!(
            (predicted[0] - 100.0) % 3.0 < 1e-3 || 3.0 - (predicted[0] - 100.0) % 3.0 < 1e-3,
            "{predicted:?}"
        );
    }
}

#[test]
fn a_table_that_does_not_fit_is_refused() {
    let dir = Folder::new();
    let path = dir.path().join("t.csv");
    table(&path, 20, ',');
    let card = DataKind::Csv.card();
    let error = (card.open)(&request(&path, &[8])).unwrap_err().to_string();
    assert!(error.contains("the name of the column"), "{error}");
    let wanted = |target| Request {
        target: Some(target),
        ..request(&path, &[8])
    };
    let error = (card.open)(&wanted("z")).unwrap_err().to_string();
    assert!(error.contains("name a column of the header"), "{error}");
    // Facts of a network for other columns.
    let opened = (card.open)(&wanted("a")).unwrap();
    let other = Request {
        facts: Some(&opened.facts),
        ..wanted("y")
    };
    let error = (card.open)(&other).unwrap_err().to_string();
    assert!(error.contains("b, y"), "{error}");
    for (text, part) in [
        ("a,c\n1,2\n", "no column `b`"),
        ("b,y\n1,many\n", "a finite number"),
        ("b,y\n1\n", "number of fields"),
        ("", "no column `b`"),
    ] {
        let file = dir.path().join("other.csv");
        std::fs::write(&file, text).unwrap();
        let names = opened.facts.names(Facts::FEATURES).unwrap();
        let error = csv::columns(&file, names, &csv::CsvOptions::new("", csv::LabelKind::Number)).unwrap_err();
        assert!(error.to_string().contains(part), "{text:?}: {error}");
    }
}

/// Writes an image file of one shade.
fn image(path: &Path, shade: u8) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 4, 6);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[shade; 24]).unwrap();
}

#[test]
fn folders_of_images_are_split_by_their_names_or_by_a_tenth() {
    let dir = Folder::new();
    let card = DataKind::ImageFolder.card();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    for i in 0..20u8 {
        let class = ["cat", "dog"][usize::from(i % 2)];
        image(&whole.join(class).join(format!("{i}.png")), 10 * i);
        let part = if i < 14 { "train" } else { "val" };
        image(&parts.join(part).join(class).join(format!("{i}.png")), 10 * i);
    }
    for (path, sizes) in [(&whole, (18, 2)), (&parts, (14, 6))] {
        assert!((card.recognises)(path));
        let opened = (card.open)(&request(path, &[8, 8, 1])).unwrap();
        assert_eq!((opened.train.len(), opened.test.len()), sizes);
        assert_eq!(opened.facts.names(Facts::CLASSES).unwrap(), ["cat", "dog"]);
        assert_eq!(opened.train.get(0).unwrap().shape.dims(), [8, 8, 1]);
        let known = Request {
            facts: Some(&opened.facts),
            ..request(path, &[8, 8, 1])
        };
        let held_back = (card.held_back)(&known).unwrap();
        assert_eq!(held_back.get(1).unwrap(), opened.test.get(1).unwrap());
        let other = Facts::default().with(Facts::CLASSES, kiln_data::Fact::Names(vec!["bird".into()]));
        let unknown = Request {
            facts: Some(&other),
            ..known
        };
        let error = (card.held_back)(&unknown).err().unwrap().to_string();
        assert!(error.contains("bird"), "{error}");
    }
}
