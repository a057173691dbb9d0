//! CIFAR-10 and CIFAR-100, binary versions (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009).
//!
//! A record is a label byte, of CIFAR-100 a byte of one of 20 superclasses and a label byte, followed by 3,072 bytes of pixels: the red,
//! green and blue planes, each 32×32 and row-major.

use super::DEFAULT_MAX_BYTES;
use super::input::Input;
use crate::error::reserve;
use crate::{BadRecords, ByteImages, DataError, Place, Result, Skipped, Split};
use kiln_core::Shape;
use std::path::{Path, PathBuf};

const SIDE: usize = 32;
const PLANE: usize = SIDE * SIDE;
/// Superclasses of CIFAR-100.
const SUPERCLASSES: usize = 20;

/// One of the two datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// CIFAR-10: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.
    Ten,
    /// CIFAR-100 with its hundred fine classes: `train.bin` and `test.bin`.
    Hundred,
}

impl Cifar {
    /// The classes in label order.
    pub const fn class_names(self) -> &'static [&'static str] {
        match self {
            Cifar::Ten => &TEN,
            Cifar::Hundred => &HUNDRED,
        }
    }

    /// Reads a folder with the files, or the folder above it that holds `cifar-10-batches-bin` or `cifar-100-binary`. Images are
    /// `[32, 32, 3]`; files may have any number of records.
    ///
    /// A label out of range and a record cut off at the end of a file are bad records.
    ///
    /// # Errors
    /// [`DataError::Missing`], [`DataError::Truncated`], [`DataError::Label`], [`DataError::TooLarge`],
    /// [`DataError::Empty`], [`DataError::Decode`] for broken gzip, [`DataError::Io`], [`DataError::OutOfMemory`].
    pub fn folder(self, path: impl AsRef<Path>, bad: BadRecords) -> Result<Split<ByteImages>> {
        let path = path.as_ref();
        Ok(Split {
            train: self.files(path, self.train_files(), bad)?,
            test: self.test_folder(path, bad)?,
        })
    }

    /// Reads only the test images, from the same folders as [`folder`](Cifar::folder); no other file is opened.
    ///
    /// # Errors
    /// As [`folder`](Cifar::folder).
    pub fn test_folder(self, path: impl AsRef<Path>, bad: BadRecords) -> Result<ByteImages> {
        self.files(path.as_ref(), &[self.test_file()], bad)
    }

    /// True if the folder, or that of the archive in it, has a file of this dataset.
    pub(crate) fn is_in(self, path: &Path) -> bool {
        let folder = self.nested(path);
        let has = |file: &str| folder.join(file).is_file();
        has(self.train_files()[0]) || has(self.test_file())
    }

    const fn train_files(self) -> &'static [&'static str] {
        match self {
            Cifar::Ten => &[
                "data_batch_1.bin",
                "data_batch_2.bin",
                "data_batch_3.bin",
                "data_batch_4.bin",
                "data_batch_5.bin",
            ],
            Cifar::Hundred => &["train.bin"],
        }
    }

    const fn test_file(self) -> &'static str {
        match self {
            Cifar::Ten => "test_batch.bin",
            Cifar::Hundred => "test.bin",
        }
    }

    /// The folder that the archive makes in `path` if it is there, otherwise `path`.
    fn nested(self, path: &Path) -> PathBuf {
        let nested = path.join(match self {
            Cifar::Ten => "cifar-10-batches-bin",
            Cifar::Hundred => "cifar-100-binary",
        });
        if nested.is_dir() { nested } else { path.to_path_buf() }
    }

    fn files(self, path: &Path, names: &[&str], bad: BadRecords) -> Result<ByteImages> {
        let folder = self.nested(path);
        let (mut pixels, mut labels, mut skipped) = (Vec::new(), Vec::new(), Skipped::default());
        for name in names {
            self.read(&folder.join(name), bad, &mut pixels, &mut labels, &mut skipped)?;
        }
        if labels.is_empty() {
            return Err(skipped.nothing_left(&folder, "at least one CIFAR record"));
        }
        let names = self.class_names().iter().map(|n| n.to_string()).collect();
        let shape = Shape::new(&[SIDE, SIDE, 3])?;
        let images = ByteImages::from_file(&folder, shape, pixels, labels, names, BadRecords::Refuse)?;
        Ok(images.with_skipped(skipped))
    }

    fn read(
        self,
        path: &Path,
        bad: BadRecords,
        pixels: &mut Vec<u8>,
        labels: &mut Vec<u8>,
        skipped: &mut Skipped,
    ) -> Result<()> {
        let (expected, advice) = match self {
            Cifar::Ten => (
                "a file of CIFAR-10's binary version",
                "download cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it",
            ),
            Cifar::Hundred => (
                "a file of CIFAR-100's binary version",
                "download cifar-100-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it",
            ),
        };
        if !path.exists() {
            return Err(DataError::Missing {
                path: path.to_path_buf(),
                expected,
                advice,
            });
        }
        let mut input = Input::open(path, DEFAULT_MAX_BYTES)?;
        let bytes = input.take(input.size(), "file size")?;
        input.end()?;
        // The numbers of classes of the bytes before the pixels, of which the last is the label.
        let ranges: &[usize] = match self {
            Cifar::Ten => &[TEN.len()],
            Cifar::Hundred => &[SUPERCLASSES, HUNDRED.len()],
        };
        let size = ranges.len() + 3 * PLANE;
        let records = bytes.chunks_exact(size);
        let rest = records.remainder();
        reserve(pixels, records.len() * 3 * PLANE, "images")?;
        reserve(labels, records.len(), "labels")?;
        let count = records.len();
        for (i, record) in records.enumerate() {
            let (own, planes) = record.split_at(ranges.len());
            let wrong = own
                .iter()
                .zip(ranges)
                .find(|&(&label, &classes)| usize::from(label) >= classes);
            if let Some((&label, &classes)) = wrong {
                let error = DataError::Label {
                    path: path.to_path_buf(),
                    place: Place::Record(i as u64),
                    label: i64::from(label),
                    classes,
                };
                skipped.note(bad, error)?;
                continue;
            }
            labels.push(own[ranges.len() - 1]);
            for p in 0..PLANE {
                pixels.extend([planes[p], planes[p + PLANE], planes[p + 2 * PLANE]]);
            }
        }
        if !rest.is_empty() {
            let error = DataError::Truncated {
                path: path.to_path_buf(),
                place: Place::Record(count as u64),
                found: rest.len() as u64,
                expected: size as u64,
            };
            skipped.note(bad, error)?;
        }
        Ok(())
    }
}

const TEN: [&str; 10] = [
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

#[rustfmt::skip]
const HUNDRED: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];
