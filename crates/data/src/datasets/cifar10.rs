//! CIFAR-10 in the table of datasets.

use super::card::DatasetCard;
use super::images::{self, IMAGES};
use super::opened::Opened;
use crate::{DataError, Result, cifar};
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
    classes: &cifar::CLASS_NAMES,
    has_target: false,
    facts: &[],
    recognises: |path| {
        let nested = path.join("cifar-10-batches-bin");
        ["data_batch_1.bin", "test_batch.bin"]
            .iter()
            .any(|file| path.join(file).exists() || nested.join(file).exists())
    },
    open: |request| Ok(Opened::of(cifar::folder(folder(request.path)?, request.bad)?)),
    held_back: |request| Ok(Arc::new(cifar::test_folder(folder(request.path)?, request.bad)?)),
    file: Some(images::scaled),
};

/// The folder, which has to be named.
fn folder(path: Option<&Path>) -> Result<&Path> {
    path.ok_or_else(|| DataError::invalid("cifar10", "path", "none", "a folder"))
}
