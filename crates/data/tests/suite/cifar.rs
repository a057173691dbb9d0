//! CIFAR-10 in its binary version.

use crate::common::Folder;
use kiln_data::{BadRecords, DataError, Dataset, Place, cifar};

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
        let split = cifar::folder(folder.path(), BadRecords::Refuse).unwrap();
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
        let test = cifar::test_folder(folder.path(), BadRecords::Refuse).unwrap();
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
    let error = cifar::folder(folder.path(), BadRecords::Refuse).unwrap_err();
    assert!(
        matches!(&error, DataError::Label { path: p, place: Place::Record(1), label: 10, classes: 10 } if *p == path)
    );
    let train = cifar::folder(folder.path(), BadRecords::Skip).unwrap().train;
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
    let error = cifar::folder(folder.path(), BadRecords::Refuse).unwrap_err();
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
    let error = cifar::folder(empty.path(), BadRecords::Refuse).unwrap_err();
    assert!(matches!(&error, DataError::Missing { path, .. } if path.ends_with("data_batch_1.bin")));
    assert!(error.to_string().contains("cs.toronto.edu"), "{error}");
    let folder = folder(false);
    folder.file("test_batch.bin", &[]);
    assert!(matches!(
        cifar::folder(folder.path(), BadRecords::Skip),
        Err(DataError::Empty { .. })
    ));
}
