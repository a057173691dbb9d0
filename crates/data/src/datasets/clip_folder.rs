//! Folders of clips in the table of datasets.

use super::card::DatasetCard;
use super::clips::{self, CLIPS};
use super::folder;
use crate::ClipFolder;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "a folder of clips",
    description: "clips in a folder for each class, below train/ and test/ or val/, or a tenth is held back: folders of PNG or JPEG frames, \
                  GIF files and Y4M files",
    files: "the clips of",
    ships: None,
    obtain: "put the clips of each class into a folder of its own",
    example: "videos",
    samples: &CLIPS,
    shape: None,
    classes: &[],
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: folder::has_folders,
    open: |request| {
        let options = clips::options(request.shape)?;
        folder::opened(request, |path| ClipFolder::open(path, options, request.bad))
    },
    held_back: |request| {
        let options = clips::options(request.shape)?;
        folder::held_back(request, |path| ClipFolder::open(path, options, request.bad))
    },
    file: Some(clips::read),
};
