//! Datasets that were opened.

use super::facts::Facts;
use crate::{Dataset, Sample, Split};
use std::sync::Arc;

/// A dataset that is shared by loaders.
pub type Shared = Arc<dyn Dataset<Sample = Sample>>;

/// A dataset that was opened: samples to train on, samples that are held back, and facts about them.
#[derive(Clone)]
pub struct Opened {
    /// The samples to train on.
    pub train: Shared,
    /// The samples that are held back.
    pub test: Shared,
    /// Facts that a network for this data is built and asked with.
    pub facts: Facts,
}

impl Opened {
    /// A dataset of which nothing has to be known.
    pub(super) fn of<D: Dataset<Sample = Sample> + 'static>(split: Split<D>) -> Self {
        Opened {
            train: Arc::new(split.train),
            test: Arc::new(split.test),
            facts: Facts::default(),
        }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("train", &self.train.len())
            .field("test", &self.test.len())
            .field("facts", &self.facts)
            .finish()
    }
}
