//! The order of samples in an epoch, and where its batches end.

use crate::dataset::permutation;
use crate::error::reserve;
use crate::{DataError, Result, streams};
use kiln_core::philox::{Key, uniform};

/// The batches of one epoch: indices of samples in order, and the places where batches end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    /// The indices of the samples, batch after batch; `None` for the order of the dataset.
    order: Option<Vec<usize>>,
    samples: usize,
    ends: Ends,
}

/// The places where batches end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ends {
    /// After every so many samples, and after the last.
    Every(usize),
    /// For each batch, the number of samples up to its end.
    At(Vec<usize>),
}

impl EpochPlan {
    /// Batches of these samples, of which each ends after so many samples of `order`.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] unless the ends rise up to the number of samples.
    pub fn new(order: Vec<usize>, ends: Vec<usize>) -> Result<Self> {
        if !ends.is_sorted_by(|a, b| a < b) || ends.first() == Some(&0) || *ends.last().unwrap_or(&0) != order.len() {
            let expected = "numbers that rise from above 0 to the number of samples";
            return Err(DataError::invalid("epoch plan", "ends", format!("{ends:?}"), expected));
        }
        Ok(EpochPlan {
            samples: order.len(),
            order: Some(order),
            ends: Ends::At(ends),
        })
    }

    /// Batches of `size` samples in this order, the last one with those that are left.
    pub fn of_size(order: Vec<usize>, size: usize) -> Self {
        EpochPlan {
            samples: order.len(),
            order: Some(order),
            ends: Ends::Every(size.max(1)),
        }
    }

    /// Batches of `size` of the first `samples` samples of a dataset, the last one with those that are left.
    pub fn in_order(samples: usize, size: usize) -> Self {
        EpochPlan {
            samples,
            order: None,
            ends: Ends::Every(size.max(1)),
        }
    }

    /// The number of batches.
    pub fn batches(&self) -> usize {
        match &self.ends {
            Ends::Every(size) => self.samples.div_ceil(*size),
            Ends::At(ends) => ends.len(),
        }
    }

    /// The indices of the samples of a batch; none past the end.
    pub fn batch(&self, number: usize) -> impl ExactSizeIterator<Item = usize> {
        let (start, end) = match &self.ends {
            Ends::Every(size) => (
                number.saturating_mul(*size),
                (number.saturating_add(1)).saturating_mul(*size),
            ),
            Ends::At(ends) => {
                let end = |batch: usize| ends.get(batch).copied().unwrap_or(self.samples);
                (number.checked_sub(1).map_or(0, end), end(number))
            }
        };
        let place = |place: usize| self.order.as_ref().map_or(place, |order| order[place]);
        (start.min(self.samples)..end.min(self.samples)).map(place)
    }
}

/// A way to choose the samples of each batch (PyTorch's `BatchSampler`).
///
/// A plan is a pure function of seed and epoch, so that a resumed run continues with the same batches. Every epoch has the same
/// number of batches and of samples.
pub trait BatchSampler: Send + Sync {
    /// The number of batches in an epoch.
    fn batches(&self) -> usize;

    /// The number of samples in an epoch.
    fn samples(&self) -> usize;

    /// The batches of an epoch of the run with this seed.
    ///
    /// # Errors
    /// [`DataError::OutOfMemory`].
    fn plan(&self, seed: u64, epoch: u64) -> Result<EpochPlan>;
}

/// Batches of a fixed size, in the order of the dataset or in a new random order for each epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct InOrder {
    pub(super) len: usize,
    pub(super) batch_size: usize,
    pub(super) shuffle: bool,
    pub(super) drop_last: bool,
}

impl BatchSampler for InOrder {
    fn batches(&self) -> usize {
        match self.drop_last {
            true => self.len / self.batch_size,
            false => self.len.div_ceil(self.batch_size),
        }
    }
    fn samples(&self) -> usize {
        self.len.min(self.batches().saturating_mul(self.batch_size))
    }
    fn plan(&self, seed: u64, epoch: u64) -> Result<EpochPlan> {
        if !self.shuffle {
            return Ok(EpochPlan::in_order(self.samples(), self.batch_size));
        }
        let mut order = permutation(shuffle_key(seed, epoch), self.len)?;
        order.truncate(self.samples());
        Ok(EpochPlan::of_size(order, self.batch_size))
    }
}

/// Batches of samples of similar length, so that little of a padded batch is padding.
///
/// Each epoch shuffles the samples, sorts pools of them by length, cuts these into batches and shuffles the batches. Samples of
/// one batch come from one pool, so a larger pool means less padding and less randomness.
///
/// ```
/// use kiln_data::{BatchSampler, Buckets};
/// let lengths = vec![3, 90, 4, 88, 2, 95, 3, 91];
/// let plan = Buckets::new(lengths, 4)?.plan(0, 0)?;
/// let mut first: Vec<usize> = plan.batch(0).collect();
/// first.sort();
/// assert!(first == [0, 2, 4, 6] || first == [1, 3, 5, 7]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buckets {
    lengths: Vec<u32>,
    batch_size: usize,
    pool: usize,
}

impl Buckets {
    /// Creates a sampler of samples with these lengths, with pools of 100 batches.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for a batch size of 0.
    pub fn new(lengths: Vec<u32>, batch_size: usize) -> Result<Self> {
        check_batch_size("buckets", batch_size)?;
        Ok(Buckets {
            lengths,
            batch_size,
            pool: 100,
        })
    }

    /// Sets the number of batches that are sorted together, at least 1.
    pub fn pool(mut self, batches: usize) -> Self {
        self.pool = batches.max(1);
        self
    }
}

impl BatchSampler for Buckets {
    fn batches(&self) -> usize {
        self.lengths.len().div_ceil(self.batch_size)
    }
    fn samples(&self) -> usize {
        self.lengths.len()
    }
    fn plan(&self, seed: u64, epoch: u64) -> Result<EpochPlan> {
        let mut order = permutation(shuffle_key(seed, epoch), self.lengths.len())?;
        for pool in order.chunks_mut(self.pool.saturating_mul(self.batch_size)) {
            pool.sort_by_key(|&index| self.lengths[index]);
        }
        let sorted = EpochPlan::of_size(order, self.batch_size);
        let batches = permutation(Key::new(seed, streams::BATCHES, epoch as u32), sorted.batches())?;
        let (mut order, mut ends) = (Vec::new(), Vec::new());
        reserve(&mut order, sorted.samples, "an order")?;
        reserve(&mut ends, batches.len(), "an order")?;
        for batch in batches {
            order.extend(sorted.batch(batch));
            ends.push(order.len());
        }
        EpochPlan::new(order, ends)
    }
}

/// Samples drawn with replacement, each with a probability proportional to its weight (PyTorch's `WeightedRandomSampler`): a
/// remedy for classes of which there are few samples.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// The sums of the weights up to each sample.
    sums: Vec<f64>,
    samples: usize,
    batch_size: usize,
}

impl Weighted {
    /// Creates a sampler that draws `samples` samples per epoch.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] for weights that are negative, not finite or all 0, and for a batch size of 0.
    pub fn new(weights: &[f64], samples: usize, batch_size: usize) -> Result<Self> {
        check_batch_size("weighted", batch_size)?;
        let mut sums = Vec::new();
        reserve(&mut sums, weights.len(), "weights")?;
        let mut sum = 0.0;
        for &weight in weights {
            if !(weight >= 0.0 && weight.is_finite()) {
                return Err(DataError::invalid(
                    "weighted",
                    "weights",
                    weight,
                    "finite numbers of 0 or more",
                ));
            }
            sum += weight;
            sums.push(sum);
        }
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(DataError::invalid(
                "weighted",
                "sum of weights",
                sum,
                "a finite number above 0",
            ));
        }
        Ok(Weighted {
            sums,
            samples,
            batch_size,
        })
    }
}

impl BatchSampler for Weighted {
    fn batches(&self) -> usize {
        self.samples.div_ceil(self.batch_size)
    }
    fn samples(&self) -> usize {
        self.samples
    }
    fn plan(&self, seed: u64, epoch: u64) -> Result<EpochPlan> {
        let key = Key::new(seed, streams::WEIGHTED, epoch as u32);
        let total = self.sums.last().copied().unwrap_or(0.0);
        let mut order = Vec::new();
        reserve(&mut order, self.samples, "an order")?;
        for i in 0..self.samples {
            // Two draws for the 48 bits that the sums of many weights need.
            let block = key.block(i as u64);
            let at = (f64::from(uniform(block[0])) + f64::from(uniform(block[1])) / (1u64 << 24) as f64) * total;
            // The first sample whose sum exceeds the draw; those of weight 0 exceed nothing that the one before does not.
            order.push(self.sums.partition_point(|&sum| sum <= at).min(self.last()));
        }
        Ok(EpochPlan::of_size(order, self.batch_size))
    }
}

impl Weighted {
    /// The last sample with a weight above 0.
    fn last(&self) -> usize {
        let total = self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|&sum| sum < total)
    }
}

fn shuffle_key(seed: u64, epoch: u64) -> Key {
    Key::new(seed, streams::SHUFFLE, epoch as u32)
}

fn check_batch_size(what: &'static str, batch_size: usize) -> Result<()> {
    match batch_size {
        0 => Err(DataError::invalid(what, "batch_size", 0, "at least 1")),
        _ => Ok(()),
    }
}
