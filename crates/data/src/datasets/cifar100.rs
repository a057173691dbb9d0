//! CIFAR-100 in the table of datasets.

use super::card::{DatasetCard, Request};
use super::facts::{Fact, Facts};
use super::images::{self, IMAGES};
use super::opened::Opened;
use crate::{Cifar, DataError, Dataset, Result};
use std::path::Path;
use std::sync::Arc;

/// The dataset's row of the table.
pub(super) const CARD: DatasetCard = DatasetCard {
    title: "CIFAR-100",
    description: "60,000 colour images of 32x32 in a hundred classes, the binary version",
    files: "CIFAR-100 of",
    ships: None,
    obtain: "download https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz, unpack it",
    example: "cifar-100-binary",
    samples: &IMAGES,
    shape: Some(&[32, 32, 3]),
    classes: Cifar::Hundred.class_names(),
    has_classes: true,
    has_target: false,
    facts: &[],
    recognises: |path| Cifar::Hundred.is_in(path),
    open: |request| {
        let opened = Opened::of(Cifar::Hundred.folder(folder(request)?, request.bad)?);
        let names = Fact::Names(opened.train.class_names().to_vec());
        Ok(Opened {
            facts: Facts::default().with(Facts::CLASSES, names),
            ..opened
        })
    },
    held_back: |request| Ok(Arc::new(Cifar::Hundred.test_folder(folder(request)?, request.bad)?)),
    file: Some(images::scaled),
};

/// The folder, which has to be named, for a network of these classes.
fn folder<'a>(request: &Request<'a>) -> Result<&'a Path> {
    let path = request
        .path
        .ok_or_else(|| DataError::invalid("cifar100", "path", "none", "a folder"))?;
    images::check_classes(Cifar::Hundred.class_names(), path, request.facts)?;
    Ok(path)
}
