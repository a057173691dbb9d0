//! CIFAR-10 and CIFAR-100 in their binary versions.

use crate::common::Folder;
use kiln_data::{BadRecords, Cifar, DataError, Dataset, Place};

/// A record whose byte at plane c, row y, column x is c·80 + (y + x) % 60.
fn record(label: u8) -> Vec<u8> {
    let plane = |c: usize| (0..1024).map(move |i| (c * 80 + (i / 32 + i % 32) % 60) as u8);
    std::iter::once(label).chain((0..3).flat_map(plane)).collect()
}

fn folder(nested: bool) -> Folder {
    let folder = Folder::new();
    let at = if nested { "cifar-10-batches-bin/" } else { "" };
    for i in 1..=5 {
        folder.file(&format!("{at}data_batch_{i}.bin"), &[record(i), record(9)].concat());
    }
    folder.file(&format!("{at}test_batch.bin"), &record(7));
    folder
}

#[test]
fn reads_records_channels_last() {
    for nested in [false, true] {
        let folder = folder(nested);
        let split = Cifar::Ten.folder(folder.path(), BadRecords::Refuse).unwrap();
        assert_eq!(split.train.labels(), [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]);
        assert_eq!(split.test.labels(), [7]);
        assert_eq!(split.train.class_names()[9], "truck");
        let sample = split.train.get(4).unwrap();
        assert_eq!(sample.shape.dims(), [32, 32, 3]);
        for (i, &x) in sample.input.iter().enumerate() {
            let (y, col, c) = (i / 96, i / 3 % 32, i % 3);
            assert_eq!(x, (c * 80 + (y + col) % 60) as f32);
        }
        let at = if nested { "cifar-10-batches-bin/" } else { "" };
        std::fs::remove_file(folder.path().join(format!("{at}data_batch_1.bin"))).unwrap();
        let test = Cifar::Ten.test_folder(folder.path(), BadRecords::Refuse).unwrap();
        assert_eq!(
            (test.labels(), test.pixels()),
            (split.test.labels(), split.test.pixels())
        );
    }
}

#[test]
fn a_cut_record_and_a_bad_label() {
    let folder = folder(false);
    let mut bytes = [record(1), record(10), record(2), record(3)].concat();
    bytes.truncate(3 * 3073 + 100);
    let path = folder.file("data_batch_3.bin", &bytes);
    let error = Cifar::Ten.folder(folder.path(), BadRecords::Refuse).unwrap_err();
    assert!(
        matches!(&error, DataError::Label { path: p, place: Place::Record(1), label: 10, classes: 10 } if *p == path)
    );
    let train = Cifar::Ten.folder(folder.path(), BadRecords::Skip).unwrap().train;
    assert_eq!(train.labels(), [1, 9, 2, 9, 1, 2, 4, 9, 5, 9]);
    let skipped = train.skipped().unwrap();
    assert_eq!(skipped.count(), 2);
    assert!(matches!(
        skipped.reasons()[1],
        DataError::Truncated {
            place: Place::Record(3),
            found: 100,
            expected: 3073,
            ..
        }
    ));
    // Without the bad label, the cut is what is refused.
    folder.file("data_batch_3.bin", &record(1)[..3072]);
    let error = Cifar::Ten.folder(folder.path(), BadRecords::Refuse).unwrap_err();
    assert!(matches!(
        error,
        DataError::Truncated {
            place: Place::Record(0),
            found: 3072,
            ..
        }
    ));
}

#[test]
fn missing_and_empty_files() {
    let empty = Folder::new();
    let error = Cifar::Ten.folder(empty.path(), BadRecords::Refuse).unwrap_err();
    assert!(matches!(&error, DataError::Missing { path, .. } if path.ends_with("data_batch_1.bin")));
    assert!(error.to_string().contains("cs.toronto.edu"), "{error}");
    let folder = folder(false);
    folder.file("test_batch.bin", &[]);
    assert!(matches!(
        Cifar::Ten.folder(folder.path(), BadRecords::Skip),
        Err(DataError::Empty { .. })
    ));
}

/// A record of CIFAR-100: the byte of its superclass, then as a record of CIFAR-10.
fn fine(superclass: u8, label: u8) -> Vec<u8> {
    [vec![superclass], record(label)].concat()
}

#[test]
fn a_hundred_classes_have_the_second_byte_as_their_label() {
    for at in ["", "cifar-100-binary/"] {
        let folder = Folder::new();
        folder.file(&format!("{at}train.bin"), &[fine(19, 99), fine(0, 41)].concat());
        folder.file(&format!("{at}test.bin"), &fine(3, 0));
        let split = Cifar::Hundred.folder(folder.path(), BadRecords::Refuse).unwrap();
        assert_eq!((split.train.labels(), split.test.labels()), (&[99, 41][..], &[0][..]));
        let ten = Folder::new();
        for i in 1..=5 {
            ten.file(&format!("data_batch_{i}.bin"), &record(1));
        }
        ten.file("test_batch.bin", &record(1));
        let ten = Cifar::Ten.test_folder(ten.path(), BadRecords::Refuse).unwrap();
        assert_eq!(split.train.get(0).unwrap().input, ten.get(0).unwrap().input);
    }
    let names = Cifar::Hundred.class_names();
    assert!(names.is_sorted() && names[99] == "worm" && names[41] == "lawn_mower");
}

#[test]
fn bad_records_of_a_hundred_classes() {
    let folder = Folder::new();
    let bytes = [fine(20, 1), fine(1, 100), fine(1, 2), fine(0, 0)].concat();
    let path = folder.file("train.bin", &bytes[..bytes.len() - 1]);
    folder.file("test.bin", &fine(0, 0));
    let error = Cifar::Hundred.folder(folder.path(), BadRecords::Refuse).unwrap_err();
    assert!(
        matches!(&error, DataError::Label { path: p, place: Place::Record(0), label: 20, classes: 20 } if *p == path),
        "{error}"
    );
    let train = Cifar::Hundred.folder(folder.path(), BadRecords::Skip).unwrap().train;
    assert_eq!((train.labels(), train.skipped().unwrap().count()), (&[2][..], 3));
    let reasons: Vec<String> = train
        .skipped()
        .unwrap()
        .reasons()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        reasons[1].contains("label 100 of record 1") && reasons[2].contains("3073"),
        "{reasons:?}"
    );
    std::fs::remove_file(path).unwrap();
    let error = Cifar::Hundred
        .folder(folder.path(), BadRecords::Skip)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("train.bin") && error.contains("cifar-100-binary.tar.gz"),
        "{error}"
    );
}
