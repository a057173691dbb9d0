//! Folders of image files without classes in the table of datasets.

use super::card::DatasetCard;
use super::folder::{self, has_folders, train_folder};
use super::images::{self, IMAGES};
use crate::formats::is_image;
use crate::{ImageFolder, ImageFolderOptions, Result};
use std::path::Path;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of images without classes",
    description: "PNG and JPEG files in one folder, for networks that draw such images, or in train/ and test/ or val/; without those a tenth is held back",
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
    recognises: |path| {
        let train = train_folder(path);
        !has_folders(&train) && has_images(&train)
    },
    open: |request| folder::open_images(request, list),
    held_back: |request| folder::images_held_back(request, list),
    file: Some(images::scaled),
};

/// The images of a folder, of which the middle is read: squashed faces would be drawn squashed.
fn list(path: &Path, options: ImageFolderOptions) -> Result<ImageFolder> {
    ImageFolder::without_classes(path, ImageFolderOptions { crop: true, ..options })
}

/// True if there is an image file in this folder.
fn has_images(path: &Path) -> bool {
    let mut entries = path.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| is_image(&entry.file_name().to_string_lossy()))
}
