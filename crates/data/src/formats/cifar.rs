//! CIFAR-10, binary version (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
//!
//! A record is a label byte followed by 3,072 bytes of pixels: the red, green and blue planes, each 32×32 and row-major.

use super::DEFAULT_MAX_BYTES;
use super::input::Input;
use crate::error::reserve;
use crate::{BadRecords, ByteImages, DataError, Place, Result, Skipped, Split};
use kiln_core::Shape;
use std::path::{Path, PathBuf};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
const RECORD: usize = 1 + 3 * PLANE;

/// The classes of CIFAR-10 in label order.
pub const CLASS_NAMES: [&str; 10] = [
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
];

/// Reads a folder with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or the folder above it that
/// holds `cifar-10-batches-bin`. Images are `[32, 32, 3]`; files may have any number of records.
///
/// A label out of range and a record cut off at the end of a file are bad records.
///
/// # Errors
/// [`DataError::Missing`], [`DataError::Truncated`], [`DataError::Label`], [`DataError::TooLarge`],
/// [`DataError::Empty`], [`DataError::Decode`] for broken gzip, [`DataError::Io`], [`DataError::OutOfMemory`].
pub fn folder(path: impl AsRef<Path>, bad: BadRecords) -> Result<Split<ByteImages>> {
    let path = path.as_ref();
    let train: Vec<String> = (1..=5).map(|i| format!("data_batch_{i}.bin")).collect();
    Ok(Split {
        train: files(&nested(path), &train, bad)?,
        test: test_folder(path, bad)?,
    })
}

/// Reads only the test images, from the same folders as [`folder`]; `test_batch.bin` is the only file opened.
///
/// # Errors
/// As [`folder`].
pub fn test_folder(path: impl AsRef<Path>, bad: BadRecords) -> Result<ByteImages> {
    files(&nested(path.as_ref()), &["test_batch.bin".to_string()], bad)
}

/// `path/cifar-10-batches-bin` if that is a folder, otherwise `path`.
fn nested(path: &Path) -> PathBuf {
    let nested = path.join("cifar-10-batches-bin");
    if nested.is_dir() { nested } else { path.to_path_buf() }
}

fn files(folder: &Path, names: &[String], bad: BadRecords) -> Result<ByteImages> {
    let (mut pixels, mut labels, mut skipped) = (Vec::new(), Vec::new(), Skipped::default());
    for name in names {
        read(&folder.join(name), bad, &mut pixels, &mut labels, &mut skipped)?;
    }
    if labels.is_empty() {
        return Err(DataError::Empty {
            path: folder.to_path_buf(),
            expected: "at least one CIFAR-10 record",
        });
    }
    let names = CLASS_NAMES.iter().map(|n| n.to_string()).collect();
    let shape = Shape::new(&[SIDE, SIDE, 3])?;
    let images = ByteImages::from_file(folder, shape, pixels, labels, names, BadRecords::Refuse)?;
    Ok(images.with_skipped(skipped))
}

fn read(path: &Path, bad: BadRecords, pixels: &mut Vec<u8>, labels: &mut Vec<u8>, skipped: &mut Skipped) -> Result<()> {
    if !path.exists() {
        return Err(DataError::Missing {
            path: path.to_path_buf(),
            expected: "a file of CIFAR-10's binary version",
            advice: "download cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it",
        });
    }
    let mut input = Input::open(path, DEFAULT_MAX_BYTES)?;
    let bytes = input.take(input.size(), "file size")?;
    input.end()?;
    let (records, rest) = bytes.as_chunks::<RECORD>();
    reserve(pixels, records.len() * 3 * PLANE, "images")?;
    reserve(labels, records.len(), "labels")?;
    for (i, record) in records.iter().enumerate() {
        let label = record[0];
        if usize::from(label) >= CLASS_NAMES.len() {
            let error = DataError::Label {
                path: path.to_path_buf(),
                place: Place::Record(i as u64),
                label: i64::from(label),
                classes: CLASS_NAMES.len(),
            };
            skipped.note(bad, error)?;
            continue;
        }
        labels.push(label);
        for p in 1..=PLANE {
            pixels.extend([record[p], record[p + PLANE], record[p + 2 * PLANE]]);
        }
    }
    if !rest.is_empty() {
        let error = DataError::Truncated {
            path: path.to_path_buf(),
            place: Place::Record(records.len() as u64),
            found: rest.len() as u64,
            expected: RECORD as u64,
        };
        skipped.note(bad, error)?;
    }
    Ok(())
}
