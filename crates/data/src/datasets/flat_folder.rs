//! Folders of image files without classes in the table of datasets.

use super::card::DatasetCard;
use super::folder::{self, has_folders};
use super::images::{self, IMAGES};
use crate::ImageFolder;
use crate::formats::is_image;
use std::path::Path;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of images without classes",
    description: "PNG and JPEG files in one folder, for networks that draw such images; a tenth is held back",
    files: "the images in",
    ships: None,
    obtain: "put the images into a folder",
    example: "faces",
    samples: &IMAGES,
    shape: None,
    classes: &[],
    has_classes: false,
    has_target: false,
    facts: &[],
    recognises: |path| !has_folders(path) && has_images(path),
    open: |request| folder::open_images(request, |path, options| ImageFolder::without_classes(path, options)),
    held_back: |request| folder::images_held_back(request, |path, options| ImageFolder::without_classes(path, options)),
    file: Some(images::scaled),
};

/// True if there is an image file in this folder.
fn has_images(path: &Path) -> bool {
    let mut entries = path.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| is_image(&entry.file_name().to_string_lossy()))
}
