//! Makes batches from a dataset: order, transforms, worker threads.

mod batch;
mod collate;
mod epoch;
mod fill;
mod position;
mod sampler;

pub use batch::Loaded;
pub use collate::{Collate, Stack, pad};
pub use epoch::Epoch;
pub use position::Position;
pub use sampler::{BatchSampler, Buckets, EpochPlan, Weighted};

use crate::transforms::Transform;
use crate::{AnyBatch, Batch, DataError, Dataset, Labelled, Result, Sample};
use batch::Spares;
use collate::AnyOf;
use fill::Job;
use sampler::InOrder;
use std::sync::Arc;

/// The options of a [`Loader`]. With a [`BatchSampler`] of its own, `batch_size`, `shuffle` and `drop_last` have no effect.
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

/// Batches that are alive at once: one is with the consumer; each worker is making one, and its queue holds `prefetch`.
fn alive(options: &LoaderOptions) -> usize {
    1 + options.workers * (options.prefetch + 1)
}

/// Makes batches of a dataset.
///
/// A batch is a pure function of dataset, transform, options and position. The number of workers changes neither the
/// order of the batches nor their bits.
///
/// Samples of one shape with a label are stacked. Batches of any other kind are made by a collate function:
///
/// ```
/// use kiln_data::{Batch, Buckets, DataError, Dataset, Loader, LoaderOptions, pad};
/// use ndarray::{Array1, ArrayD};
/// use std::sync::Arc;
///
/// struct Lines(Vec<Array1<i32>>);
///
/// impl Dataset for Lines {
///     type Sample = Array1<i32>;
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///     fn read(&self, index: usize, sample: &mut Array1<i32>) -> Result<(), DataError> {
///         sample.clone_from(&self.0[index]);
///         Ok(())
///     }
/// }
///
/// #[derive(Batch)]
/// struct Tokens {
///     ids: ArrayD<i32>,
///     lengths: Array1<i32>,
/// }
///
/// let lines = Lines((1..9).map(|n| Array1::from_elem(n, n as i32)).collect());
/// let lengths = lines.0.iter().map(|l| l.len() as u32).collect();
/// let collate = |lines: &[Array1<i32>]| {
///     let views: Vec<_> = lines.iter().map(|l| l.view().into_dyn()).collect();
///     let (ids, lengths) = pad(&views, 0, 1)?;
///     Ok(Tokens { ids, lengths })
/// };
/// let loader = Loader::with_collate(Arc::new(lines), collate, LoaderOptions { seed: 7, ..Default::default() })?
///     .with_sampler(Buckets::new(lengths, 2)?);
/// for batch in loader.epoch(0)? {
///     let batch = batch?;
///     assert_eq!(batch.ids.shape()[1] as i32, *batch.lengths.iter().max().unwrap());
///     assert!(batch.lengths[0].abs_diff(batch.lengths[1]) == 1);
/// }
/// # Ok::<(), kiln_data::DataError>(())
/// ```
pub struct Loader<S = Sample, T: Batch = Labelled> {
    dataset: Arc<dyn Dataset<Sample = S>>,
    transform: Option<Arc<dyn Transform<S>>>,
    collate: Arc<dyn Collate<S, Batch = T>>,
    sampler: Arc<dyn BatchSampler>,
    options: LoaderOptions,
    spares: Arc<Spares<T>>,
}

impl Loader {
    /// The largest number of workers that a loader accepts.
    pub const MAX_WORKERS: usize = 256;

    /// Creates a loader that stacks samples, without a transform.
    ///
    /// # Errors
    /// As [`Loader::with_collate`].
    pub fn new(dataset: Arc<dyn Dataset<Sample = Sample>>, options: LoaderOptions) -> Result<Self> {
        let stack = Stack::of(&*dataset);
        Loader::with_collate(dataset, stack, options)
    }
}

impl<S: Default + Send + 'static, T: Batch> Loader<S, T> {
    /// Creates a loader whose batches are made by `collate`.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch size of 0, a prefetch outside `1..=1024`, or more than
    /// [`Loader::MAX_WORKERS`] workers.
    pub fn with_collate(
        dataset: Arc<dyn Dataset<Sample = S>>,
        collate: impl Collate<S, Batch = T> + 'static,
        options: LoaderOptions,
    ) -> Result<Self> {
        if options.batch_size == 0 {
            return Err(DataError::invalid("loader", "batch_size", 0, "at least 1"));
        }
        if !(1..=1024).contains(&options.prefetch) {
            return Err(DataError::invalid("loader", "prefetch", options.prefetch, "1 to 1024"));
        }
        if options.workers > Loader::MAX_WORKERS {
            return Err(DataError::invalid("loader", "workers", options.workers, "at most 256"));
        }
        let sampler = InOrder {
            len: dataset.len(),
            batch_size: options.batch_size,
            shuffle: options.shuffle,
            drop_last: options.drop_last,
        };
        Ok(Loader {
            dataset,
            transform: None,
            collate: Arc::new(collate),
            sampler: Arc::new(sampler),
            options,
            spares: Arc::new(Spares::new(alive(&options))),
        })
    }

    /// Returns the loader with a transform for each sample; [`Compose`](crate::Compose) chains several.
    pub fn with_transform(mut self, transform: impl Transform<S> + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Returns the loader with another way to choose the samples of its batches.
    pub fn with_sampler(mut self, sampler: impl BatchSampler + 'static) -> Self {
        self.sampler = Arc::new(sampler);
        self
    }

    /// The same batches, whose type is forgotten.
    pub fn any(&self) -> Loader<S, AnyBatch>
    where
        S: 'static,
    {
        Loader {
            dataset: self.dataset.clone(),
            transform: self.transform.clone(),
            collate: Arc::new(AnyOf(self.collate.clone())),
            sampler: self.sampler.clone(),
            options: self.options,
            spares: Arc::new(Spares::new(alive(&self.options))),
        }
    }

    /// The dataset.
    pub fn dataset(&self) -> &dyn Dataset<Sample = S> {
        &*self.dataset
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The number of batches in an epoch.
    pub fn batches(&self) -> usize {
        self.sampler.batches()
    }

    /// The number of samples in an epoch: all of them unless the last batch is dropped.
    pub fn samples(&self) -> usize {
        self.sampler.samples()
    }

    /// Starts epoch `epoch` at its first batch.
    ///
    /// # Errors
    /// As [`Loader::resume`].
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<S, T>> {
        self.resume(Position { epoch, batch: 0 })
    }

    /// Starts an epoch at a position. A position at the epoch's end yields no batches.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch past the end, which means that the dataset or the options differ from
    /// those of the saved run; [`DataError::OutOfMemory`] for the order; [`DataError::Worker`] when a thread cannot start.
    pub fn resume(&self, position: Position) -> Result<Epoch<S, T>> {
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
        let job = Job {
            dataset: self.dataset.clone(),
            transform: self.transform.clone(),
            collate: self.collate.clone(),
            plan: self.sampler.plan(self.options.seed, position.epoch)?,
            seed: self.options.seed,
            epoch: position.epoch,
            spares: self.spares.clone(),
        };
        Epoch::start(job, first, batches, self.options.workers, self.options.prefetch)
    }
}

impl<S, T: Batch> Clone for Loader<S, T> {
    fn clone(&self) -> Self {
        Loader {
            dataset: self.dataset.clone(),
            transform: self.transform.clone(),
            collate: self.collate.clone(),
            sampler: self.sampler.clone(),
            options: self.options,
            spares: self.spares.clone(),
        }
    }
}

impl<S, T: Batch> std::fmt::Debug for Loader<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("samples", &self.sampler.samples())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
