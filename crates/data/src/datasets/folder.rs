//! Folders of image files in the table of datasets.

use super::card::{DatasetCard, Request};
use super::facts::{Fact, Facts};
use super::images::{self, IMAGES};
use super::opened::{Opened, Shared};
use crate::{DataError, Dataset, ImageFolder, ImageFolderOptions, Result, Subset};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of images",
    description: "PNG and JPEG files in a folder for each class, below train/ and test/ or val/; without those a tenth is held back",
    files: "the images of",
    ships: None,
    obtain: "put the images of each class into a folder of its own",
    example: "photos",
    samples: &IMAGES,
    shape: None,
    classes: &[],
    has_target: false,
    facts: &[],
    recognises: |path| path.is_dir() && has_folders(path),
    open: |request| {
        let (train, test) = both(request)?;
        let classes = Fact::Names(train.class_names().to_vec());
        Ok(Opened {
            train,
            test,
            facts: Facts::default().with(Facts::CLASSES, classes),
        })
    },
    held_back: |request| {
        let root = root(request)?;
        match test_folder(root) {
            Some(test) => Ok(Arc::new(known(images_of(&test, request)?, &test, request.facts)?)),
            None => Ok(both(request)?.1),
        }
    },
    file: Some(images::scaled),
};

/// True if there is a folder in this one.
fn has_folders(path: &Path) -> bool {
    let entries = path.read_dir().into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().is_dir())
}

/// The folder, which has to be named.
fn root<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let missing = || DataError::invalid("image folder", "path", "none", "a folder");
    request.path.ok_or_else(missing)
}

/// The folder in `root` of the images that are held back, if there is one.
fn test_folder(root: &Path) -> Option<PathBuf> {
    let folders = ["test", "val"].map(|name| root.join(name));
    let train = root.join("train");
    folders.into_iter().find(|folder| folder.is_dir() && train.is_dir())
}

fn images_of(path: &Path, request: &Request<'_>) -> Result<ImageFolder> {
    let [h, w, c] = images::dimensions(request.shape)?;
    let options = ImageFolderOptions {
        resize: Some((h, w)),
        channels: c,
        bad: request.bad,
        ..Default::default()
    };
    ImageFolder::open(path, options)
}

/// The images, if they have the classes of `facts`.
fn known(images: ImageFolder, path: &Path, facts: Option<&Facts>) -> Result<ImageFolder> {
    images::check_classes(images.class_names(), path, facts)?;
    Ok(images)
}

/// The images to train on and those that are held back: of folders named so, else a tenth by a seed that is always the same.
fn both(request: &Request<'_>) -> Result<(Shared, Shared)> {
    let root = root(request)?;
    if let Some(test) = test_folder(root) {
        let train = root.join("train");
        let train = known(images_of(&train, request)?, &train, request.facts)?;
        let classes = Facts::default().with(Facts::CLASSES, Fact::Names(train.class_names().to_vec()));
        let test = known(images_of(&test, request)?, &test, Some(&classes))?;
        return Ok((Arc::new(train), Arc::new(test)));
    }
    let images = Arc::new(known(images_of(root, request)?, root, request.facts)?);
    let held_back = images.len().div_ceil(10);
    let split = Subset::split(images, held_back, 0)?;
    Ok((Arc::new(split.train), Arc::new(split.test)))
}
