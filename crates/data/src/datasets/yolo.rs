//! Folders of objects as YOLO has them in the table of datasets.

use super::card::{DatasetCard, Request};
use super::images;
use super::objects::{self, OBJECTS};
use crate::{DataError, Pictures, Result, YoloListing, read_yolo};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of YOLO",
    description: "objects in images, as YOLO has them: a .yaml with names, train and val, folders images/ and labels/ with a text file of boxes \
                  for each image; without val a tenth is held back",
    files: "the objects of",
    ships: None,
    obtain: "export your boxes in YOLO's format",
    example: "coco128.yaml",
    shape: None,
    samples: &OBJECTS,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[],
    recognises: |path| listing(path).is_some(),
    open: |request| {
        let listing = open(request)?;
        let train = part(&listing, "train", request)?.ok_or_else(|| lacks(request))?;
        let test = held_back(&listing, request)?;
        objects::opened(request, train, test)
    },
    held_back: |request| {
        let listing = open(request)?;
        let test = match held_back(&listing, request)? {
            Some(test) => test,
            None => {
                let train = part(&listing, "train", request)?.ok_or_else(|| lacks(request))?;
                objects::parts(train, None).1
            }
        };
        Ok(Arc::new(objects::images_of(request, test)?))
    },
    file: Some(objects::fitted),
};

/// The `.yaml` file: this one, or the only one in this folder.
fn listing(path: &Path) -> Option<PathBuf> {
    let is_yaml = |path: &Path| path.extension().is_some_and(|e| e == "yaml" || e == "yml");
    if !path.is_dir() {
        return is_yaml(path).then(|| path.to_path_buf());
    }
    let entries = path.read_dir().ok()?.flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| is_yaml(path)).collect();
    match found.len() {
        1 => found.pop(),
        _ => found
            .into_iter()
            .find(|path| path.file_stem().is_some_and(|stem| stem == "data")),
    }
}

fn open(request: &Request<'_>) -> Result<YoloListing> {
    let path = objects::root(request)?;
    let found = listing(path).unwrap_or_else(|| path.to_path_buf());
    let listing = YoloListing::open(&found)?;
    images::check_classes(&listing.classes, &found, request.facts)?;
    Ok(listing)
}

fn part(listing: &YoloListing, part: &str, request: &Request<'_>) -> Result<Option<Pictures>> {
    let images = listing.images(part)?;
    images
        .map(|images| read_yolo(images, listing.classes.clone(), request.bad))
        .transpose()
}

fn held_back(listing: &YoloListing, request: &Request<'_>) -> Result<Option<Pictures>> {
    match part(listing, "val", request)? {
        Some(pictures) => Ok(Some(pictures)),
        None => part(listing, "test", request),
    }
}

fn lacks(request: &Request<'_>) -> DataError {
    DataError::Missing {
        path: request.path.unwrap_or(Path::new("")).to_path_buf(),
        expected: "a line `train:` that names the folder of the images to train on",
        advice: "add it to the .yaml file",
    }
}
