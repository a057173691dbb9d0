//! Random access to samples.

use crate::error::reserve;
use crate::{DataError, Questions, Result, Skipped, Tokens};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::Path;
use std::sync::Arc;

/// Random access to samples, from any thread (PyTorch's map-style `Dataset`).
///
/// A read is a pure function of the index: two reads of one index give the same sample, on any thread. A sample is of any type;
/// [`Sample`](crate::Sample) is one with a label, and other types are stacked to batches by a [`Collate`](crate::Collate) function.
pub trait Dataset: Send + Sync {
    /// A sample.
    type Sample: Default + Send + 'static;

    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `index` into `sample`, reusing its memory. All fields are set.
    ///
    /// # Errors
    /// [`DataError::Index`] for an index past the end, and the errors of reading and decoding the record.
    fn read(&self, index: usize, sample: &mut Self::Sample) -> Result<()>;

    /// Reads sample `index` into a new one.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    fn get(&self, index: usize) -> Result<Self::Sample> {
        let mut sample = Self::Sample::default();
        self.read(index, &mut sample)?;
        Ok(sample)
    }

    /// The shape of every input; `None` when they differ, or a sample is more than an input and its label.
    fn shape(&self) -> Option<Shape> {
        None
    }

    /// The length of sample `index`, in a unit of the dataset's, where it is known without reading the sample: for batches of samples of
    /// similar length ([`Buckets`](crate::Buckets)).
    fn length(&self, index: usize) -> Option<u32> {
        let _ = index;
        None
    }

    /// How often sample `index` is to be drawn in training, in proportion to the others ([`Weighted`](crate::Weighted)): a remedy for
    /// classes of which there are many more samples than of others. `None` if each sample is drawn once an epoch.
    fn weight(&self, index: usize) -> Option<f64> {
        let _ = index;
        None
    }

    /// Number of classes: labels are in `0..classes`. `None` when labels are not classes.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// The names of the classes in label order; empty when the classes have no names.
    fn class_names(&self) -> &[String] {
        &[]
    }

    /// The bad records that were left out when the dataset was opened; `None` for a dataset that never skips any.
    fn skipped(&self) -> Option<&Skipped> {
        None
    }

    /// The file or folder that the samples come from, for messages; `None` for data that was made in memory.
    fn source(&self) -> Option<&Path> {
        None
    }

    /// The tokens that its texts are cut into; `None` for other data.
    fn tokens(&self) -> Option<&Tokens> {
        None
    }

    /// The questions whose windows its samples are; `None` for other data.
    fn questions(&self) -> Option<&Questions> {
        None
    }

    /// The mean number of characters of its texts for each token; `None` for other data.
    fn characters_per_token(&self) -> Option<f64> {
        None
    }
}

/// Forwards every method to the dataset behind the pointer.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        (**self).len()
    }
    fn read(&self, index: usize, sample: &mut D::Sample) -> Result<()> {
        (**self).read(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        (**self).shape()
    }
    fn length(&self, index: usize) -> Option<u32> {
        (**self).length(index)
    }
    fn weight(&self, index: usize) -> Option<f64> {
        (**self).weight(index)
    }
    fn classes(&self) -> Option<usize> {
        (**self).classes()
    }
    fn class_names(&self) -> &[String] {
        (**self).class_names()
    }
    fn skipped(&self) -> Option<&Skipped> {
        (**self).skipped()
    }
    fn source(&self) -> Option<&Path> {
        (**self).source()
    }
    fn tokens(&self) -> Option<&Tokens> {
        (**self).tokens()
    }
    fn questions(&self) -> Option<&Questions> {
        (**self).questions()
    }
    fn characters_per_token(&self) -> Option<f64> {
        (**self).characters_per_token()
    }
}

/// Checks an index against a dataset's length.
pub(crate) fn check_index(index: usize, len: usize) -> Result<()> {
    if index < len {
        Ok(())
    } else {
        Err(DataError::Index { index, len })
    }
}

/// A training set and a test set.
#[derive(Debug, Clone)]
pub struct Split<D> {
    /// The samples to train on.
    pub train: D,
    /// The samples to measure on.
    pub test: D,
}

/// Some of the samples of another dataset, in a given order.
#[derive(Debug, Clone)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// Selects the samples `indices` of `dataset`, in that order; an index may occur more than once.
    ///
    /// # Errors
    /// [`DataError::Index`] for an index past the end.
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Self> {
        for &index in &indices {
            check_index(index, dataset.len())?;
        }
        Ok(Subset { dataset, indices })
    }

    /// Splits `dataset` at random into a test set of `held_back` samples and a training set of the others. The same seed
    /// gives the same split (PyTorch's `random_split`).
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] when more samples are held back than there are, [`DataError::OutOfMemory`].
    pub fn split(dataset: D, held_back: usize, seed: u64) -> Result<Split<Self>>
    where
        D: Clone,
    {
        let n = dataset.len();
        if held_back > n {
            return Err(DataError::invalid(
                "split",
                "held_back",
                held_back,
                "at most the number of samples",
            ));
        }
        let mut train = permutation(Key::new(seed, crate::streams::SPLIT, 0), n)?;
        let test = train.split_off(n - held_back);
        Ok(Split {
            train: Subset {
                dataset: dataset.clone(),
                indices: train,
            },
            test: Subset { dataset, indices: test },
        })
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Sample = D::Sample;

    fn len(&self) -> usize {
        self.indices.len()
    }
    fn read(&self, index: usize, sample: &mut D::Sample) -> Result<()> {
        check_index(index, self.len())?;
        self.dataset.read(self.indices[index], sample)
    }
    fn shape(&self) -> Option<Shape> {
        self.dataset.shape()
    }
    fn length(&self, index: usize) -> Option<u32> {
        self.dataset.length(*self.indices.get(index)?)
    }
    fn weight(&self, index: usize) -> Option<f64> {
        self.dataset.weight(*self.indices.get(index)?)
    }
    fn classes(&self) -> Option<usize> {
        self.dataset.classes()
    }
    fn class_names(&self) -> &[String] {
        self.dataset.class_names()
    }
    fn skipped(&self) -> Option<&Skipped> {
        self.dataset.skipped()
    }
    fn source(&self) -> Option<&Path> {
        self.dataset.source()
    }
    fn tokens(&self) -> Option<&Tokens> {
        self.dataset.tokens()
    }
    fn questions(&self) -> Option<&Questions> {
        self.dataset.questions()
    }
    fn characters_per_token(&self) -> Option<f64> {
        self.dataset.characters_per_token()
    }
}

/// As [`Key::permutation`], but running out of memory is an error: the length may come from an option.
pub(crate) fn permutation(key: Key, n: usize) -> Result<Vec<usize>> {
    let mut order = Vec::new();
    reserve(&mut order, n, "a permutation")?;
    order.extend(0..n);
    key.shuffle(&mut order);
    Ok(order)
}
