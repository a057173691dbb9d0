//! Folders of image files in the table of datasets.

use super::card::{DatasetCard, Request};
use super::facts::{Fact, Facts};
use super::images::{self, IMAGES};
use super::opened::{Opened, Shared};
use crate::formats::image_shape;
use crate::{DataError, Dataset, ImageFolder, ImageFolderOptions, ImageLimits, Result, Sample, Subset};
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
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: |path| has_folders(&train_folder(path)),
    open: |request| open_images(request, |path, options| ImageFolder::open(path, options)),
    held_back: |request| images_held_back(request, |path, options| ImageFolder::open(path, options)),
    file: Some(images::scaled),
};

/// True if there is a folder in this one that is not hidden.
pub(super) fn has_folders(path: &Path) -> bool {
    let mut entries = path.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| entry.path().is_dir() && !entry.file_name().to_string_lossy().starts_with('.'))
}

/// The folder, which has to be named.
fn root<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let missing = || DataError::invalid("folder", "path", "none", "a folder");
    request.path.ok_or_else(missing)
}

/// The folder in `root` of the samples that are held back, if there is one.
fn test_folder(root: &Path) -> Option<PathBuf> {
    let folders = ["test", "val"].map(|name| root.join(name));
    let train = root.join("train");
    folders.into_iter().find(|folder| folder.is_dir() && train.is_dir())
}

/// The folder of the samples to train on: `train/` beside those that are held back, or `root` itself, a part of whose samples is.
pub(super) fn train_folder(root: &Path) -> PathBuf {
    match test_folder(root) {
        Some(_) => root.join("train"),
        None => root.to_path_buf(),
    }
}

/// A function that lists the images of a folder.
type Open = fn(&Path, ImageFolderOptions) -> Result<ImageFolder>;

/// Images that a function lists.
pub(super) fn open_images(request: &Request<'_>, open: Open) -> Result<Opened> {
    let shape = shape_of(request, open)?;
    opened(request, |path| open(path, options(shape, request)))
}

/// The part of them that is held back.
pub(super) fn images_held_back(request: &Request<'_>, open: Open) -> Result<Shared> {
    let shape = shape_of(request, open)?;
    held_back(request, |path| open(path, options(shape, request)))
}

/// The shape to which the images of both parts are scaled.
fn shape_of(request: &Request<'_>, open: Open) -> Result<[usize; 3]> {
    images::wanted(request, || {
        let train = train_folder(root(request)?);
        // Broken images are left out here too, where they are to be.
        let options = ImageFolderOptions {
            bad: request.bad,
            ..Default::default()
        };
        match open(&train, options)?.path(0) {
            Some(first) => image_shape(first, &ImageLimits::default()),
            None => images::dimensions(request.shape),
        }
    })
}

fn options([h, w, c]: [usize; 3], request: &Request<'_>) -> ImageFolderOptions {
    ImageFolderOptions {
        resize: (!request.own_size).then_some((h, w)),
        channels: c,
        bad: request.bad,
        ..Default::default()
    }
}

/// The dataset of a folder whose sub-folders are classes, or have such folders, or that has none.
pub(super) fn opened<D: Dataset<Sample = Sample> + 'static>(
    request: &Request<'_>,
    open: impl Fn(&Path) -> Result<D>,
) -> Result<Opened> {
    let (train, test) = both(request, open)?;
    let facts = match train.classes() {
        Some(_) => Facts::default().with(Facts::CLASSES, Fact::Names(train.class_names().to_vec())),
        None => Facts::default(),
    };
    Ok(Opened { train, test, facts })
}

/// The part of it that is held back.
pub(super) fn held_back<D: Dataset<Sample = Sample> + 'static>(
    request: &Request<'_>,
    open: impl Fn(&Path) -> Result<D>,
) -> Result<Shared> {
    match test_folder(root(request)?) {
        Some(test) => Ok(Arc::new(known(open(&test)?, &test, request.facts)?)),
        None => Ok(both(request, open)?.1),
    }
}

/// The samples, if they have the classes of `facts` or none.
fn known<D: Dataset<Sample = Sample>>(samples: D, path: &Path, facts: Option<&Facts>) -> Result<D> {
    if samples.classes().is_some() {
        images::check_classes(samples.class_names(), path, facts)?;
    }
    Ok(samples)
}

/// The samples to train on and those that are held back: of folders named so, else a tenth by a seed that is always the same.
fn both<D: Dataset<Sample = Sample> + 'static>(
    request: &Request<'_>,
    open: impl Fn(&Path) -> Result<D>,
) -> Result<(Shared, Shared)> {
    let root = root(request)?;
    if let Some(test) = test_folder(root) {
        let train = train_folder(root);
        let train = known(open(&train)?, &train, request.facts)?;
        let classes = Facts::default().with(Facts::CLASSES, Fact::Names(train.class_names().to_vec()));
        let test = known(open(&test)?, &test, Some(&classes))?;
        return Ok((Arc::new(train), Arc::new(test)));
    }
    let samples = Arc::new(known(open(root)?, root, request.facts)?);
    let held_back = samples.len().div_ceil(10);
    let split = Subset::split(samples, held_back, 0)?;
    Ok((Arc::new(split.train), Arc::new(split.test)))
}
