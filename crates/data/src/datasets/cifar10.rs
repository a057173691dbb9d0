//! CIFAR-10 in the table of datasets.

use super::card::{DatasetCard, Request};
use super::images::{self, IMAGES};
use super::opened::Opened;
use crate::{Cifar, DataError, Result};
use std::path::Path;
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "CIFAR-10",
    description: "60,000 colour images of 32x32 in ten classes, the binary version",
    files: "CIFAR-10 of",
    ships: None,
    obtain: "download https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, unpack it",
    example: "cifar-10-batches-bin",
    samples: &IMAGES,
    shape: Some(&[32, 32, 3]),
    classes: Cifar::Ten.class_names(),
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: |path| Cifar::Ten.is_in(path),
    open: |request| Ok(Opened::of(Cifar::Ten.folder(folder(request)?, request.bad)?)),
    held_back: |request| Ok(Arc::new(Cifar::Ten.test_folder(folder(request)?, request.bad)?)),
    file: Some(images::scaled),
};

/// The folder, which has to be named, for a network of these classes.
fn folder<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("cifar10", "path", "none", "a folder"))?;
    images::check_classes(Cifar::Ten.class_names(), path, request.facts)?;
    Ok(path)
}
