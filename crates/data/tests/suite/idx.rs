//! IDX and the MNIST layout: round trips, and every way a file can be broken.

use crate::common::{Folder, gzip, idx_u8};
use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_core::Shape;
use kiln_data::idx::{Idx, IdxData};
use kiln_data::{BadRecords, DataError, Dataset, Place, mnist};
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

fn data(code: u8, n: usize) -> BoxedStrategy<IdxData> {
    match code {
        0 => vec(any::<u8>(), n).prop_map(IdxData::U8).boxed(),
        1 => vec(any::<i8>(), n).prop_map(IdxData::I8).boxed(),
        2 => vec(any::<i16>(), n).prop_map(IdxData::I16).boxed(),
        3 => vec(any::<i32>(), n).prop_map(IdxData::I32).boxed(),
        4 => vec(-1e30f32..1e30, n).prop_map(IdxData::F32).boxed(),
        _ => vec(-1e300f64..1e300, n).prop_map(IdxData::F64).boxed(),
    }
}

fn idx() -> impl Strategy<Value = Idx> {
    let dims = vec(prop_oneof![Just(0usize), Just(1), 2..6usize], 0..5);
    (dims, 0..6u8).prop_flat_map(|(dims, code)| {
        let shape = Shape::new(&dims).unwrap();
        data(code, shape.size()).prop_map(move |data| Idx { shape, data })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trip(array in idx()) {
        let bytes = array.to_bytes().unwrap();
        prop_assert_eq!(&Idx::from_bytes("plain", &bytes).unwrap(), &array);
        prop_assert_eq!(&Idx::from_bytes("gzipped", &gzip(&bytes)).unwrap(), &array);
    }

    /// Cut anywhere, a file is an error that says so.
    #[test]
    fn any_cut_is_truncation(array in idx(), part in 0.0..1.0f64, zip in any::<bool>()) {
        let mut bytes = array.to_bytes().unwrap();
        if zip {
            bytes = gzip(&bytes);
        }
        bytes.truncate((bytes.len() as f64 * part) as usize);
        let error = Idx::from_bytes("cut", &bytes).unwrap_err();
        prop_assert!(matches!(error, DataError::Truncated { .. }), "{error}");
    }

    /// Whatever the bytes, the answer is a value or an error, soon.
    #[test]
    fn noise_is_harmless(mut bytes in vec(any::<u8>(), 0..64), lead in 0..3u8) {
        match lead {
            0 => {}
            1 => { bytes.splice(0..0, [0, 0, 8, 3]); }
            _ => { bytes.splice(0..0, [0x1f, 0x8b, 8, 0]); }
        }
        let started = Instant::now();
        let _ = Idx::from_bytes("noise", &bytes);
        prop_assert!(started.elapsed() < Duration::from_secs(1));
    }
}

fn error(bytes: &[u8]) -> DataError {
    Idx::from_bytes("some/file", bytes).unwrap_err()
}

#[test]
fn wrong_magic_and_header() {
    assert!(matches!(error(b"PK\x03\x04"), DataError::Magic { found, .. } if found == b"PK\x03\x04"));
    assert!(matches!(
        error(&[0, 0, 7, 1]),
        DataError::Value {
            place: Place::Byte(2),
            ..
        }
    ));
    assert!(matches!(
        error(&[0, 0, 8, 9]),
        DataError::Value {
            place: Place::Byte(3),
            ..
        }
    ));
    let message = error(b"PK\x03\x04").to_string();
    assert!(
        message.starts_with("some/file: wrong magic at byte 0: found [50, 4b, 03, 04], expected IDX"),
        "{message}"
    );
}

#[test]
fn counts_that_lie() {
    // Announces 100 × 28 × 28 but holds 10.
    let short = idx_u8(&[100, 28, 28], &[0; 10]);
    let expected = DataError::Truncated {
        path: "some/file".into(),
        place: Place::Byte(16),
        found: 10,
        expected: 78_400,
    };
    assert_eq!(error(&short).to_string(), expected.to_string());
    // The product overflows 64 bits, also behind a dimension of zero.
    for dims in [[u32::MAX; 3], [0, u32::MAX, u32::MAX]] {
        assert!(matches!(
            error(&idx_u8(&dims, &[])),
            DataError::Value {
                place: Place::Byte(4),
                ..
            }
        ));
    }
    // 4 GiB announced in a few bytes: over the limit.
    for bytes in [idx_u8(&[u32::MAX], &[1]), gzip(&idx_u8(&[u32::MAX], &[1]))] {
        assert!(matches!(
            error(&bytes),
            DataError::TooLarge {
                found: 4_294_967_295,
                ..
            }
        ));
    }
    // Within the limit, but more than these few bytes can decompress to: refused before allocation.
    let lie = gzip(&idx_u8(&[1 << 29], &[1]));
    assert!(matches!(error(&lie), DataError::Truncated { expected: 536_870_912, found, .. } if found < 1 << 20));
    // And one byte more than announced.
    for bytes in [idx_u8(&[2], &[1, 2, 3]), gzip(&idx_u8(&[2], &[1, 2, 3]))] {
        assert!(matches!(
            error(&bytes),
            DataError::Trailing {
                place: Place::Byte(10),
                ..
            }
        ));
    }
}

/// Zeros that unpack to `size` bytes behind a header.
fn bomb(header: &[u8], size: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn a_four_gib_gzip_is_refused_cheaply() {
    // Members of 64 MiB of zeros, sixty-four times: a gzip file may be a sequence of members.
    let member = bomb(&[], 64 << 20);
    let tail = member.repeat(64);
    let started = Instant::now();
    // It announces what it holds: over the limit, nothing is unpacked.
    let mut honest = gzip(&idx_u8(&[1 << 16, 1 << 8, 1 << 8], &[]));
    honest.extend(&tail);
    assert!(matches!(
        error(&honest),
        DataError::TooLarge {
            found: 4_294_967_296,
            limit: 1_073_741_824,
            ..
        }
    ));
    // It announces one image: one image and one byte are unpacked.
    let mut lying = gzip(&idx_u8(&[1, 28, 28], &[]));
    lying.extend(&tail);
    assert!(matches!(
        error(&lying),
        DataError::Trailing {
            place: Place::Byte(800),
            ..
        }
    ));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

#[test]
fn broken_gzip() {
    let good = gzip(&idx_u8(&[100], &[7; 100]));
    let mut checksum = good.clone();
    let end = checksum.len() - 8;
    checksum[end] ^= 1;
    assert!(matches!(error(&checksum), DataError::Decode { format: "gzip", .. }));
    let mut stream = good.clone();
    stream[10..14].fill(0xff);
    assert!(matches!(error(&stream), DataError::Decode { format: "gzip", .. }));
    let mut tail = good;
    tail.extend(b"tail of another file");
    assert!(matches!(error(&tail), DataError::Decode { format: "gzip", .. }));
}

#[test]
fn files_that_are_not_files() {
    let folder = Folder::new();
    for path in [folder.path(), &folder.path().join("no"), Path::new("/dev/zero")] {
        assert!(matches!(Idx::read(path), Err(DataError::Io { action: "open", .. })));
    }
}

/// A folder of `train` and `test` images of 2×3 with the given labels.
fn mnist_folder(train: &[u8], test: &[u8], zip: bool) -> Folder {
    let folder = Folder::new();
    for (stem, labels) in [("train", train), ("t10k", test)] {
        let n = labels.len() as u32;
        let pixels: Vec<u8> = (0..n * 6).map(|i| i as u8).collect();
        for (kind, bytes) in [
            ("images-idx3-ubyte", idx_u8(&[n, 2, 3], &pixels)),
            ("labels-idx1-ubyte", idx_u8(&[n], labels)),
        ] {
            match zip {
                true => folder.file(&format!("{stem}-{kind}.gz"), &gzip(&bytes)),
                false => folder.file(&format!("{stem}-{kind}"), &bytes),
            };
        }
    }
    folder
}

#[test]
fn mnist_layout() {
    for zip in [false, true] {
        let folder = mnist_folder(&[3, 1, 4], &[9], zip);
        let split = mnist::folder(folder.path(), BadRecords::Refuse).unwrap();
        assert_eq!((split.train.len(), split.test.len()), (3, 1));
        let sample = split.train.get(1).unwrap();
        assert_eq!(sample.input, [6., 7., 8., 9., 10., 11.]);
        assert_eq!((sample.shape.dims(), sample.label), (&[2, 3, 1][..], 1));
        assert!(matches!(split.train.get(3), Err(DataError::Index { index: 3, len: 3 })));
        std::fs::remove_file(folder.path().join(if zip {
            "t10k-labels-idx1-ubyte.gz"
        } else {
            "t10k-labels-idx1-ubyte"
        }))
        .unwrap();
        let error = mnist::folder(folder.path(), BadRecords::Refuse).unwrap_err();
        assert!(matches!(error, DataError::Missing { .. }));
    }
}

#[test]
fn mnist_test_images_need_no_training_files() {
    let folder = mnist_folder(&[3, 1, 4], &[9], false);
    let both = mnist::folder(folder.path(), BadRecords::Refuse).unwrap();
    std::fs::remove_file(folder.path().join("train-images-idx3-ubyte")).unwrap();
    let test = mnist::test_folder(folder.path(), BadRecords::Refuse).unwrap();
    assert_eq!((test.labels(), test.pixels()), (both.test.labels(), both.test.pixels()));
}

#[test]
fn label_ten_of_ten_classes() {
    let folder = mnist_folder(&[3, 10, 4, 255], &[9], true);
    let error = mnist::folder(folder.path(), BadRecords::Refuse).unwrap_err();
    assert!(
        matches!(&error, DataError::Label { path, place: Place::Record(1), label: 10, classes: 10 }
        if path.ends_with("train-labels-idx1-ubyte.gz"))
    );
    let train = mnist::folder(folder.path(), BadRecords::Skip).unwrap().train;
    assert_eq!(train.labels(), [3, 4]);
    assert_eq!(train.pixels(), [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17]);
    let skipped = train.skipped().unwrap();
    assert_eq!(skipped.count(), 2);
    assert!(matches!(
        skipped.reasons()[1],
        DataError::Label {
            place: Place::Record(3),
            label: 255,
            ..
        }
    ));
}

#[test]
fn mnist_files_that_do_not_fit() {
    let check = |name: &str, bytes: &[u8]| {
        let folder = mnist_folder(&[1, 2], &[3], false);
        folder.file(name, bytes);
        // Skipping bad records does not excuse a bad file.
        mnist::folder(folder.path(), BadRecords::Skip).unwrap_err()
    };
    let images = |n| idx_u8(&[n, 2, 3], &vec![0; n as usize * 6]);
    assert!(matches!(
        check("train-images-idx3-ubyte", &images(3)),
        DataError::CountMismatch {
            found: 2,
            expected: 3,
            ..
        }
    ));
    assert!(matches!(
        check("train-labels-idx1-ubyte", &images(2)),
        DataError::Value { .. }
    ));
    assert!(matches!(
        check("train-images-idx3-ubyte", &idx_u8(&[2], &[1, 2])),
        DataError::Value { .. }
    ));
    assert!(matches!(
        check("train-images-idx3-ubyte", &images(2)[..20]),
        DataError::Truncated { .. }
    ));
    let folder = mnist_folder(&[], &[], false);
    assert!(matches!(
        mnist::folder(folder.path(), BadRecords::Skip),
        Err(DataError::Empty { .. })
    ));
    let floats = Idx {
        shape: Shape::new(&[1, 1, 1]).unwrap(),
        data: IdxData::F32(vec![1.0]),
    };
    assert!(matches!(
        check("train-images-idx3-ubyte", &floats.to_bytes().unwrap()),
        DataError::Value { .. }
    ));
}

#[test]
fn embedded_digits() {
    let digits = mnist::embedded().unwrap();
    for (set, count) in [(&digits.train, 9000), (&digits.test, 1000)] {
        assert_eq!(set.len(), count);
        assert_eq!(set.shape().unwrap().dims(), [28, 28, 1]);
        assert_eq!(set.classes(), Some(10));
        assert_eq!(
            set.source(),
            Some(Path::new(match count {
                9000 => "embedded/train-labels-idx1-ubyte.gz",
                _ => "embedded/t10k-labels-idx1-ubyte.gz",
            }))
        );
        // MNIST's classes are within about a fifth of a tenth each.
        for class in 0..10 {
            let n = set.labels().iter().filter(|&&l| l == class).count();
            assert!((count * 8 / 100..count * 12 / 100).contains(&n), "class {class}: {n}");
        }
        let pixels = set.pixels();
        assert_eq!((pixels.iter().min(), pixels.iter().max()), (Some(&0), Some(&255)));
        // Published statistics of MNIST: mean 0.1307 of the range, four fifths black.
        let mean = pixels.iter().map(|&p| f64::from(p)).sum::<f64>() / pixels.len() as f64 / 255.0;
        assert!((0.12..0.14).contains(&mean), "{mean}");
        let black = pixels.iter().filter(|&&p| p == 0).count() as f64 / pixels.len() as f64;
        assert!((0.78..0.84).contains(&black), "{black}");
    }
}
