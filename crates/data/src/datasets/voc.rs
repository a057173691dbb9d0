//! Pascal VOC and folders of its layout in the table of datasets.

use super::card::{DatasetCard, Request};
use super::objects::{self, OBJECTS};
use crate::{Pictures, Result, read_voc, voc_annotations};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "Pascal VOC",
    description: "objects in images, in Pascal VOC's layout: Annotations/*.xml, JPEGImages/ and lists in ImageSets/Main (train or trainval, \
                  and val or test); without lists a tenth is held back",
    files: "the objects of",
    ships: None,
    obtain: "unpack VOCtrainval, or export your boxes in its format",
    example: "VOCdevkit/VOC2012",
    shape: None,
    samples: &OBJECTS,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[],
    recognises: |path| root_of(path).is_some(),
    open: |request| {
        let root = root(request)?;
        let lists = lists(&root);
        let train = read(&root, lists.map(|(train, _)| train), objects::known(request), request)?;
        let test = match lists {
            Some((_, test)) => Some(read(&root, Some(test), Some(&train.classes), request)?),
            None => None,
        };
        objects::opened(request, train, test)
    },
    held_back: |request| {
        let root = root(request)?;
        let test = match lists(&root) {
            Some((_, test)) => read(&root, Some(test), objects::known(request), request)?,
            None => objects::parts(read(&root, None, objects::known(request), request)?, None).1,
        };
        Ok(Arc::new(objects::images_of(request, test)?))
    },
    file: Some(objects::fitted),
};

/// The folder with the annotations: this one, or the first below it or below `VOCdevkit`.
fn root_of(path: &Path) -> Option<PathBuf> {
    let has = |path: &Path| path.join("Annotations").is_dir();
    if has(path) {
        return Some(path.to_path_buf());
    }
    let below = |path: &Path| {
        let mut folders: Vec<PathBuf> = path
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        folders.sort();
        folders.into_iter().find(|folder| has(folder))
    };
    below(path).or_else(|| below(&path.join("VOCdevkit")))
}

fn root(request: &Request<'_>) -> Result<PathBuf> {
    let path = objects::root(request)?;
    Ok(root_of(path).unwrap_or_else(|| path.to_path_buf()))
}

/// The lists of images to train on and of those that are held back, if there are both.
fn lists(root: &Path) -> Option<(&'static str, &'static str)> {
    let exists = |list: &&str| {
        root.join("ImageSets")
            .join("Main")
            .join(format!("{list}.txt"))
            .is_file()
    };
    match ["train", "val", "trainval", "test"].map(|list| exists(&list)) {
        [true, true, ..] => Some(("train", "val")),
        [_, _, true, true] => Some(("trainval", "test")),
        [true, _, _, true] => Some(("train", "test")),
        _ => None,
    }
}

fn read(root: &Path, list: Option<&str>, known: Option<&[String]>, request: &Request<'_>) -> Result<Pictures> {
    let images = root.join("JPEGImages");
    let images = if images.is_dir() { images } else { root.join("images") };
    read_voc(&voc_annotations(root, list)?, &images, known, request.bad)
}
