//! Batches from a dataset: order, transforms, worker threads.

mod batch;
mod device;
mod epoch;
mod fill;
mod position;

pub use batch::HostBatch;
pub use device::Batch;
pub use epoch::Epoch;
pub use position::Position;

use crate::dataset::permutation;
use crate::transforms::Transform;
use crate::{DataError, Dataset, Result, streams};
use batch::Spares;
use fill::Job;
use kiln_core::philox::Key;
use std::sync::Arc;

/// How a [`Loader`] makes batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples of a batch.
    pub batch_size: usize,
    /// Whether each epoch has a random order of its own.
    pub shuffle: bool,
    /// Whether a last batch with fewer samples is left out.
    pub drop_last: bool,
    /// Threads that make batches; 0 makes them where they are asked for.
    pub workers: usize,
    /// Batches that each worker makes ahead.
    pub prefetch: usize,
    /// Decides orders and augmentation.
    pub seed: u64,
}

impl Default for LoaderOptions {
    /// Batches of 32 in dataset order, made inline.
    fn default() -> Self {
        LoaderOptions {
            batch_size: 32,
            shuffle: false,
            drop_last: false,
            workers: 0,
            prefetch: 2,
            seed: 0,
        }
    }
}

/// Makes batches of a dataset.
///
/// A batch is a pure function of dataset, transform, options and position. Workers change only when it is made:
/// batches come in the same order with the same bits for any number of them.
#[derive(Clone)]
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    transform: Option<Arc<dyn Transform>>,
    options: LoaderOptions,
    spares: Arc<Spares>,
}

impl Loader {
    /// Workers that one loader accepts.
    pub const MAX_WORKERS: usize = 256;

    /// A loader without a transform.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch size of 0, a prefetch of 0, more than [`Loader::MAX_WORKERS`].
    pub fn new(dataset: Arc<dyn Dataset>, options: LoaderOptions) -> Result<Self> {
        if options.batch_size == 0 {
            return Err(DataError::invalid("loader", "batch_size", 0, "at least 1"));
        }
        if !(1..=1024).contains(&options.prefetch) {
            return Err(DataError::invalid("loader", "prefetch", options.prefetch, "1 to 1024"));
        }
        if options.workers > Self::MAX_WORKERS {
            return Err(DataError::invalid("loader", "workers", options.workers, "at most 256"));
        }
        // One in the consumer's hands, and per worker one in the making and those in its queue.
        let alive = 1 + options.workers * (options.prefetch + 1);
        Ok(Loader {
            dataset,
            transform: None,
            options,
            spares: Arc::new(Spares::new(alive)),
        })
    }

    /// The same loader with a transform of each sample; use a [`Compose`](crate::Compose) for several.
    pub fn with_transform(mut self, transform: impl Transform + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// The dataset.
    pub fn dataset(&self) -> &dyn Dataset {
        &*self.dataset
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Batches of an epoch.
    pub fn batches(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.options.batch_size);
        if self.options.drop_last {
            n / size
        } else {
            n.div_ceil(size)
        }
    }

    /// Samples of an epoch: all of them unless the last batch is dropped.
    pub fn samples(&self) -> usize {
        let n = self.dataset.len();
        n.min(self.batches().saturating_mul(self.options.batch_size))
    }

    /// The batches of an epoch from its start.
    ///
    /// # Errors
    /// As [`Loader::resume`].
    pub fn epoch(&self, epoch: u64) -> Result<Epoch> {
        self.resume(Position { epoch, batch: 0 })
    }

    /// The batches of an epoch from a position on. A position at the epoch's end gives none.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch past the end (the options or the dataset are not those that the
    /// position was saved with), [`DataError::OutOfMemory`] for the order, [`DataError::Worker`] when a thread cannot
    /// start.
    pub fn resume(&self, position: Position) -> Result<Epoch> {
        let batches = self.batches();
        let first = usize::try_from(position.batch).unwrap_or(usize::MAX);
        if first > batches {
            return Err(DataError::invalid(
                "loader",
                "position.batch",
                position.batch,
                "at most the number of batches; resume with the dataset and batch size of the saved run",
            ));
        }
        let order = if self.options.shuffle {
            let key = Key::new(self.options.seed, streams::SHUFFLE, position.epoch as u32);
            Some(permutation(key, self.dataset.len())?)
        } else {
            None
        };
        let job = Job {
            dataset: self.dataset.clone(),
            transform: self.transform.clone(),
            order,
            batch_size: self.options.batch_size,
            seed: self.options.seed,
            epoch: position.epoch,
            spares: self.spares.clone(),
        };
        Epoch::start(job, first, batches, self.options.workers, self.options.prefetch)
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("samples", &self.dataset.len())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
