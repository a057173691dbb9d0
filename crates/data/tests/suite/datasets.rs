//! The table of datasets: every row reads what it says it reads, and the synthetic dataset of every kind of samples can be trained on.

use crate::common::Folder;
use kiln_data::{
    BadRecords, CLIPS, Compose, DataKind, Dataset, Draw, Facts, FileOptions, IMAGES, LogMel, MadeUp, ROWS, Request,
    SampleKind, Shared, SpecAugment, Speed, Transform, UTTERANCES, WINDOWS, csv,
};
use std::path::Path;

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
fn names_and_rows_fit_each_other() {
    for kind in DataKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        let card = kind.card();
        assert!(
            !card.description.is_empty() && !card.obtain.is_empty() && !card.example.is_empty(),
            "{kind}"
        );
        assert!(DataKind::of(card.samples).any(|other| other == kind));
        let shape: &[usize] = match card.samples == &CLIPS {
            true => &[2, 28, 28, 1],
            false => &[28, 28, 1],
        };
        let request = Request {
            path: None,
            ..request(Path::new(""), shape)
        };
        // Without a path there is what ships, or an error.
        let opened = (card.open)(&request);
        assert_eq!(opened.is_ok(), card.ships.is_some(), "{kind}");
        if let (Ok(opened), true) = (opened, [&IMAGES, &CLIPS].contains(&card.samples)) {
            assert_eq!(opened.train.classes().is_some(), card.has_classes, "{kind}");
        }
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
            tokenizer: None,
            shape: &[8],
            facts: &opened.facts,
            own_size: false,
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
        let own = Request {
            own_size: true,
            ..request(path, &[8, 8, 1])
        };
        let train = (card.open)(&own).unwrap().train;
        assert_eq!(
            (train.shape(), train.get(0).unwrap().shape.dims()),
            (None, &[6, 4, 1][..])
        );
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

#[test]
fn images_in_one_folder_have_no_classes() {
    let dir = Folder::new();
    let faces = dir.path().join("faces");
    for i in 0..20u8 {
        image(&faces.join(format!("{i:02}.png")), 10 * i);
    }
    std::fs::create_dir(faces.join(".thumbnails")).unwrap();
    std::fs::write(faces.join("notes.txt"), b"no image").unwrap();
    let fits = |kind: DataKind| (kind.card().recognises)(&faces);
    assert!(fits(DataKind::FlatFolder) && !fits(DataKind::ImageFolder));
    let card = DataKind::FlatFolder.card();
    let opened = (card.open)(&request(&faces, &[8, 8, 1])).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (18, 2));
    assert_eq!((opened.train.classes(), opened.facts.is_empty()), (None, true));
    let shade = |samples: &Shared, i| samples.get(i).unwrap().input[0] as u8;
    let shades = |samples: &Shared| -> Vec<u8> { (0..samples.len()).map(|i| shade(samples, i)).collect() };
    let mut all = [shades(&opened.train), shades(&opened.test)].concat();
    all.sort();
    assert_eq!(all, (0..20).map(|i| 10 * i).collect::<Vec<u8>>());
    // Whatever classes there were in training, these images have none that could be others.
    let trained = Facts::default().with(Facts::CLASSES, kiln_data::Fact::Names(vec!["cat".into()]));
    let known = Request {
        facts: Some(&trained),
        ..request(&faces, &[8, 8, 1])
    };
    assert_eq!(shades(&(card.held_back)(&known).unwrap()), shades(&opened.test));
    // Of images of other proportions the middle is read: here the light one of three parts, whichever way they lie.
    let wide = dir.path().join("wide");
    std::fs::create_dir(&wide).unwrap();
    let light = |along: usize| if (3..9).contains(&along) { 200 } else { 0 };
    for (name, w, h) in [("a.png", 12, 6), ("b.png", 6, 12)] {
        let pixels: Vec<u8> = match w > h {
            true => (0..w * h).map(|i| light(i % w)).collect(),
            false => (0..w * h).map(|i| light(i / w)).collect(),
        };
        std::fs::write(
            wide.join(name),
            crate::common::png(w as u32, h as u32, png::ColorType::Grayscale, &pixels),
        )
        .unwrap();
    }
    let square = Request {
        sides: &[2, 4, 8],
        ..request(&wide, &[3, 3, 1])
    };
    let opened = (card.open)(&square).unwrap();
    for samples in [&opened.train, &opened.test] {
        let sample = samples.get(0).unwrap();
        assert_eq!(
            (sample.shape.dims(), &sample.input[..]),
            (&[4, 4, 1][..], &[200.0; 16][..])
        );
    }
    // The parts can have folders of their own.
    let parts = dir.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    std::fs::rename(&faces, parts.join("train")).unwrap();
    image(&parts.join("val/00.png"), 7);
    assert!((card.recognises)(&parts) && !(DataKind::ImageFolder.card().recognises)(&parts));
    let opened = (card.open)(&request(&parts, &[8, 8, 1])).unwrap();
    assert_eq!((opened.train.len(), shades(&opened.test)), (20, vec![7]));
    assert_eq!(shades(&(card.held_back)(&request(&parts, &[8, 8, 1])).unwrap()), [7]);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(!(card.recognises)(&empty));
    let error = (card.open)(&request(&empty, &[8, 8, 1])).err().unwrap().to_string();
    assert!(error.contains("empty") && error.contains(".png"), "{error}");
}

#[test]
fn a_folder_of_squares_keeps_their_size_for_networks_of_that_size() {
    let dir = Folder::new();
    let card = DataKind::ImageFolder.card();
    for (name, colour, channels) in [
        ("grey", png::ColorType::Grayscale, 1),
        ("colours", png::ColorType::Rgb, 3),
    ] {
        for part in ["train", "test"] {
            let folder = dir.path().join(name).join(part).join("cat");
            std::fs::create_dir_all(&folder).unwrap();
            // The first image of the part to train on decides for both.
            for (file, side) in [("a.png", if part == "train" { 6 } else { 9 }), ("b.png", 7)] {
                let bytes = crate::common::png(side, side, colour, &vec![70; side.pow(2) as usize * channels]);
                std::fs::write(folder.join(file), bytes).unwrap();
            }
        }
        let root = dir.path().join(name);
        // A broken image before it does not decide, where such are left out.
        std::fs::write(root.join("train/cat/0.png"), b"no image").unwrap();
        for (sides, shape) in [
            (&[6, 9][..], [6, 6, channels]),
            (&[3, 5, 9], [5, 5, channels]),
            (&[7, 9], [4, 4, 1]),
            (&[], [4, 4, 1]),
        ] {
            let request = Request {
                sides,
                bad: BadRecords::Skip,
                ..request(&root, &[4, 4, 1])
            };
            let opened = (card.open)(&request).unwrap();
            assert_eq!(opened.train.shape().unwrap().dims(), shape);
            for samples in [&opened.train, &opened.test, &(card.held_back)(&request).unwrap()] {
                assert!(
                    (0..2).all(|i| samples.get(i).unwrap().shape.dims() == shape),
                    "{name}, {sides:?}"
                );
            }
        }
    }
}

/// A WAV file of 16 bits of so many samples.
fn wav(rate: u32, samples: usize) -> Vec<u8> {
    let size = 2 * samples as u32;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + size).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend(rate.to_le_bytes());
    bytes.extend((2 * rate).to_le_bytes());
    bytes.extend(b"\x02\0\x10\0data");
    bytes.extend(size.to_le_bytes());
    bytes.extend((0..samples).flat_map(|i| (((i * 37) % 2000) as i16).to_le_bytes()));
    bytes
}

#[test]
fn speech_is_read_from_manifests_and_the_folders_of_corpora() {
    let dir = Folder::new();
    let card = DataKind::Speech.card();
    for (name, rate) in [("a.wav", 16_000), ("b.wav", 8_000), ("c.wav", 44_100)] {
        for folder in [
            "manifest",
            "common/clips",
            "libri/train-clean/1/2",
            "libri/dev-clean/3/4",
        ] {
            dir.file(&format!("{folder}/{name}"), &wav(rate, rate as usize / 2));
        }
    }
    let manifest = dir.file(
        "manifest/list.tsv",
        "path\tsplit\tseconds\ttext\na.wav\ttrain\t0.5\tUna RANA.\nb.wav\ttrain\t0.5\trana\nc.wav\ttest\t0.5\t¿un año?\n".as_bytes(),
    );
    dir.file(
        "common/train.tsv",
        b"client_id\tpath\tsentence\nx\ta.wav\tUna rana\nx\tb.wav\trana\n",
    );
    dir.file("common/test.tsv", b"client_id\tpath\tsentence\nx\tc.wav\tuna\n");
    let lists = ["manifest/list.tsv", "common"].map(|name| dir.path().join(name));
    for path in &lists {
        assert!((card.recognises)(path), "{path:?}");
        let opened = (card.open)(&request(path, &[160, 40])).unwrap();
        assert_eq!((opened.train.len(), opened.test.len()), (2, 1), "{path:?}");
        assert_eq!(opened.facts.text(Facts::ALPHABET), Some(" anru"));
        assert_eq!(
            (opened.facts.sizes().outputs, &opened.facts.described()[..]),
            (Some(6), "5 letters")
        );
        // Every file has half a second at 16 kHz, whatever its own rate.
        for part in [&opened.train, &opened.test] {
            for index in 0..part.len() {
                let sample = part.get(index).unwrap();
                assert_eq!(sample.shape.dims(), [8000], "{path:?} {index}");
                assert_eq!(sample, part.get(index).unwrap());
                assert!(part.length(index).is_some());
            }
        }
        assert_eq!(
            opened.train.get(0).unwrap().targets,
            [5.0, 3.0, 2.0, 1.0, 4.0, 2.0, 3.0, 2.0]
        );
        // A letter that nothing was trained on is left out.
        let known = Request {
            facts: Some(&opened.facts),
            ..request(path, &[160, 40])
        };
        let held_back = (card.held_back)(&known).unwrap();
        assert_eq!(held_back.get(0).unwrap(), opened.test.get(0).unwrap());
        assert_eq!(
            held_back.get(0).unwrap().targets.len(),
            if path == &manifest { 4 } else { 3 }
        );
    }
    // Texts without a letter teach nothing.
    let mute = dir.file("manifest/mute.tsv", "path\ttext\na.wav\t\nb.wav\t¿?\n".as_bytes());
    let error = (card.open)(&request(&mute, &[160, 40])).err().unwrap().to_string();
    assert!(
        error.contains("mute.tsv") && error.contains("letters in the texts"),
        "{error}"
    );
    // Nor does one that nobody could speak in that time, which is left out where bad records are.
    let list = format!(
        "path\tsplit\ttext\na.wav\ttrain\t{}\nb.wav\ttrain\tuna\nc.wav\ttest\tuna\n",
        "a ".repeat(14)
    );
    let fast = dir.file("manifest/fast.tsv", list.as_bytes());
    let opened = (card.open)(&request(&fast, &[160, 40])).unwrap();
    assert!(opened.train.get(1).is_ok());
    let error = opened.train.get(0).unwrap_err().to_string();
    for part in ["fast.tsv", "line 2", "27 letters for 0.50 s", "a.wav", "at most 25"] {
        assert!(error.contains(part), "{error}");
    }
    // LibriSpeech's files are FLAC: these are not there.
    for chapter in ["libri/train-clean/1/2/1-2", "libri/dev-clean/3/4/3-4"] {
        dir.file(&format!("{chapter}.trans.txt"), b"a UNA\nb RANA\n");
    }
    let libri = dir.path().join("libri");
    let error = (card.open)(&request(&libri, &[160, 40])).err().unwrap().to_string();
    assert!(
        error.contains("1-2.trans.txt: line 1: ") && error.contains("a.flac"),
        "{error}"
    );

    // One file for a trained network.
    let options = FileOptions {
        shape: &[160, 40],
        facts: &Facts::default(),
        tokenizer: None,
        own_size: false,
        invert: None,
    };
    let samples = card.file.unwrap()(&dir.path().join("manifest/c.wav"), &options).unwrap();
    assert_eq!((samples.len(), samples[0].shape.dims()), (1, &[8000][..]));
    assert!(card.file.unwrap()(&manifest, &options).is_err());
}

#[test]
fn speech_without_splits_holds_a_tenth_back_and_bad_files_are_refused_or_left_out() {
    let dir = Folder::new();
    let card = DataKind::Speech.card();
    let mut list = "path\ttext\n".to_string();
    for i in 0..30 {
        dir.file(&format!("{i}.wav"), &wav(16_000, if i == 7 { 100 } else { 4000 }));
        list.push_str(&format!("{i}.wav\ta b\n"));
    }
    dir.file("3.wav", b"no sound");
    std::fs::remove_file(dir.path().join("4.wav")).unwrap();
    let list = dir.file("manifest.tsv", list.as_bytes());
    let error = (card.open)(&request(&list, &[160, 40])).err().unwrap().to_string();
    assert!(
        error.contains("manifest.tsv: line 6: ") && error.contains("4.wav"),
        "{error}"
    );
    dir.file("4.wav", &wav(16_000, 4000));
    // The folder of a manifest is the manifest.
    let opened = (card.open)(&request(dir.path(), &[160, 40])).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (27, 3));
    let errors: Vec<String> = [&opened.train, &opened.test]
        .into_iter()
        .flat_map(|part| (0..part.len()).filter_map(|i| part.get(i).err()))
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for part in ["line 5: ", "line 9: ", "not a WAV", "0.006"] {
        assert!(
            errors.iter().any(|e| e.contains(part) && e.contains("manifest.tsv")),
            "{part}: {errors:?}"
        );
    }
    let skip = Request {
        bad: BadRecords::Skip,
        ..request(&list, &[160, 40])
    };
    let opened = (card.open)(&skip).unwrap();
    assert_eq!(opened.train.len() + opened.test.len(), 28);
    let skipped = |part: &kiln_data::Shared| part.skipped().unwrap().count();
    assert_eq!(skipped(&opened.train) + skipped(&opened.test), 2);
}

#[test]
fn made_up_speech_is_tones_of_letters() {
    let made = MadeUp {
        shape: &[160, 40],
        outputs: 29,
        count: 20,
        seed: 1,
    };
    let (noise, opened) = (
        (UTTERANCES.samples)(&made).unwrap(),
        (UTTERANCES.synthetic)(&made).unwrap(),
    );
    assert_eq!((opened.train.len(), opened.test.len()), (20, 4));
    assert_eq!(opened.facts.text(Facts::ALPHABET), Some(" abcdefgh"));
    let transform = Compose::new().then(LogMel::new(40).unwrap());
    for index in 0..20 {
        let (mut sample, again) = (opened.train.get(index).unwrap(), opened.train.get(index).unwrap());
        assert_eq!(sample, again);
        let labels = &sample.targets;
        assert!(
            (1..=10).contains(&labels.len()) && labels.iter().all(|l| (1.0..=9.0).contains(l)),
            "{labels:?}"
        );
        assert!(labels[0] != 1.0 && labels[labels.len() - 1] != 1.0, "{labels:?}");
        transform.apply(&mut sample, &Draw::new(0, 0, index)).unwrap();
        assert_eq!(sample.shape.dims(), [9 + 10 * again.targets.len(), 40]);
        let mean = sample.input.iter().sum::<f32>() / sample.input.len() as f32;
        assert!(mean.abs() < 1e-4, "{mean}");
        // Samples of measured steps have the frames of the network's input.
        let mut noise = noise.get(index).unwrap();
        transform.apply(&mut noise, &Draw::new(0, 0, index)).unwrap();
        assert_eq!(noise.shape.dims(), [160, 40]);
    }
    // Changes of speech are drawn for each sample and epoch.
    let changes = Compose::new()
        .then(Speed::new(&[0.5, 2.0]).unwrap())
        .then(LogMel::new(40).unwrap())
        .then(SpecAugment::new(30, 8));
    let changed = |index: usize, epoch: u64| {
        let mut sample = opened.train.get(3).unwrap();
        changes.apply(&mut sample, &Draw::new(1, epoch, index)).unwrap();
        sample
    };
    assert_eq!(changed(0, 0), changed(0, 0));
    assert!((1..6).any(|epoch| changed(0, epoch).shape != changed(0, 0).shape));
    assert!((1..6).any(|index| changed(index, 0).shape != changed(0, 0).shape));
    assert_ne!(changed(0, 0).input, changed(1, 0).input);
    assert!(changed(0, 0).input.iter().filter(|&&x| x == 0.0).count() >= 10);
    let mut short = kiln_data::Sample::default();
    short
        .fill(kiln_core::Shape::new(&[200]).unwrap(), (0..200).map(|_| 0.0))
        .unwrap();
    assert!(
        transform
            .apply(&mut short, &Draw::new(0, 0, 0))
            .unwrap_err()
            .to_string()
            .contains("at least 201")
    );
    assert!(SpecAugment::new(3, 3).apply(&mut short, &Draw::new(0, 0, 0)).is_err());
}
