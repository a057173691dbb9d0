//! COCO and lists of objects in its format in the table of datasets.

use super::card::{DatasetCard, Request};
use super::objects::{self, OBJECTS};
use crate::{DataError, Pictures, Result, read_coco};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "COCO",
    description: "objects in images, in COCO's JSON: a folder with annotations/instances_train*.json and train*/, or train/ and valid/ with a \
                  _annotations.coco.json each, or one .json beside its images, of which a tenth is held back",
    files: "the objects of",
    ships: None,
    obtain: "download COCO 2017, or export your boxes in its format",
    example: "coco",
    shape: None,
    samples: &OBJECTS,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[],
    recognises: |path| match path.is_dir() {
        true => find(path, &TRAIN).is_some(),
        false => path.extension().is_some_and(|extension| extension == "json"),
    },
    open: |request| {
        let root = objects::root(request)?;
        let (list, images) = train(root)?;
        let train = read(&list, &images, request)?;
        let known = train.classes.clone();
        let test = match find(root, &TEST) {
            Some((list, images)) => Some(read_coco(&list, &images, Some(&known), request.bad)?),
            None => None,
        };
        objects::opened(request, train, test)
    },
    held_back: |request| {
        let root = objects::root(request)?;
        let test = match find(root, &TEST) {
            Some((list, images)) => read(&list, &images, request)?,
            None => {
                let (list, images) = train(root)?;
                objects::parts(read(&list, &images, request)?, None).1
            }
        };
        Ok(Arc::new(objects::images_of(request, test)?))
    },
    file: Some(objects::fitted),
};

/// The names of the parts, as they begin.
const TRAIN: [&str; 1] = ["train"];
const TEST: [&str; 2] = ["val", "test"];

fn read(list: &Path, images: &Path, request: &Request<'_>) -> Result<Pictures> {
    read_coco(list, images, objects::known(request), request.bad)
}

/// The list and the folder of the images to train on.
fn train(root: &Path) -> Result<(PathBuf, PathBuf)> {
    if root.is_file() {
        let beside = root.parent().unwrap_or(Path::new(""));
        let images = beside.join("images");
        let images = if images.is_dir() { images } else { beside.to_path_buf() };
        return Ok((root.to_path_buf(), images));
    }
    find(root, &TRAIN).ok_or_else(|| DataError::Missing {
        path: root.to_path_buf(),
        expected: "annotations/instances_train*.json, or train/_annotations.coco.json",
        advice: "name the folder that COCO's archives were unpacked into",
    })
}

/// The list and the folder of the images of a part: of COCO's own layout, or with the list among the images.
fn find(root: &Path, parts: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let names = |folder: &Path| {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    };
    let annotations = root.join("annotations");
    let listed = names(&annotations);
    for part in parts {
        let start = format!("instances_{part}");
        if let Some(name) = listed
            .iter()
            .find(|name| name.starts_with(&start) && name.ends_with(".json"))
        {
            // `instances_train2017.json` is of `train2017/`, or of `images/train2017/`.
            let folder = name.trim_start_matches("instances_").trim_end_matches(".json");
            let places = [root.join(folder), root.join("images").join(folder)];
            let images = places.into_iter().find(|place| place.is_dir());
            return Some((annotations.join(name), images.unwrap_or_else(|| root.join("images"))));
        }
    }
    for part in parts {
        for name in names(root).iter().filter(|name| name.starts_with(part)) {
            let list = root.join(name).join("_annotations.coco.json");
            if list.is_file() {
                return Some((list, root.join(name)));
            }
        }
    }
    None
}
