//! Makes batches from a dataset: order, transforms, worker threads.

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

/// The options of a [`Loader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// The number of samples in a batch.
    pub batch_size: usize,
    /// True to draw a new random order for each epoch.
    pub shuffle: bool,
    /// True to drop a last batch of fewer samples, as in PyTorch's `DataLoader`.
    pub drop_last: bool,
    /// The number of worker threads, at most [`Loader::MAX_WORKERS`]; with 0 the calling thread makes the batches.
    pub workers: usize,
    /// The number of batches that each worker makes ahead, 1 to 1024.
    pub prefetch: usize,
    /// The seed of the random orders and of the transforms.
    pub seed: u64,
}

impl Default for LoaderOptions {
    /// Batches of 32 in the order of the dataset, made on the calling thread.
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
/// A batch is a pure function of dataset, transform, options and position. The number of workers changes neither the
/// order of the batches nor their bits.
#[derive(Clone)]
pub struct Loader {
    dataset: Arc<dyn Dataset>,
    transform: Option<Arc<dyn Transform>>,
    options: LoaderOptions,
    spares: Arc<Spares>,
}

impl Loader {
    /// The largest number of workers that a loader accepts.
    pub const MAX_WORKERS: usize = 256;

    /// Creates a loader without a transform.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch size of 0, a prefetch outside `1..=1024`, or more than
    /// [`Loader::MAX_WORKERS`] workers.
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
        // One batch is with the consumer; each worker is making one, and its queue holds `prefetch`.
        let alive = 1 + options.workers * (options.prefetch + 1);
        Ok(Loader {
            dataset,
            transform: None,
            options,
            spares: Arc::new(Spares::new(alive)),
        })
    }

    /// Returns the loader with a transform for each sample; [`Compose`](crate::Compose) chains several.
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

    /// The number of batches in an epoch.
    pub fn batches(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.options.batch_size);
        if self.options.drop_last {
            n / size
        } else {
            n.div_ceil(size)
        }
    }

    /// The number of samples in an epoch: all of them unless the last batch is dropped.
    pub fn samples(&self) -> usize {
        let n = self.dataset.len();
        n.min(self.batches().saturating_mul(self.options.batch_size))
    }

    /// Starts epoch `epoch` at its first batch.
    ///
    /// # Errors
    /// As [`Loader::resume`].
    pub fn epoch(&self, epoch: u64) -> Result<Epoch> {
        self.resume(Position { epoch, batch: 0 })
    }

    /// Starts an epoch at a position. A position at the epoch's end yields no batches.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch past the end, which means that the dataset or the options differ from
    /// those of the saved run; [`DataError::OutOfMemory`] for the order; [`DataError::Worker`] when a thread cannot start.
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
