//! Random access to samples in host memory.

use crate::error::reserve;
use crate::{DataError, Result, Skipped};
use kiln_core::Shape;
use kiln_core::philox::Key;
use std::path::Path;
use std::sync::Arc;

/// One sample: an input of any shape with its label.
///
/// Images are channels-last `[H, W, C]`; datasets give raw pixels 0 to 255 as floats and leave scaling to transforms.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// The input's elements, row-major.
    pub input: Vec<f32>,
    /// The input's shape, without a batch dimension.
    pub shape: Shape,
    /// The class; 0 where the dataset has none.
    pub label: i32,
    /// Regression targets; empty for classification.
    pub targets: Vec<f32>,
    scratch: Vec<f32>,
}

impl Sample {
    /// Replaces the input by `values`, keeping the memory.
    ///
    /// # Errors
    /// [`DataError::Shape`] unless there are exactly `shape.size()` values, [`DataError::OutOfMemory`].
    pub fn fill(&mut self, shape: Shape, values: impl ExactSizeIterator<Item = f32>) -> Result<()> {
        if values.len() != shape.size() {
            let found = format!("{} values", values.len());
            return Err(DataError::shape("sample", found, shape));
        }
        self.input.clear();
        reserve(&mut self.input, values.len(), "a sample")?;
        self.input.extend(values);
        self.shape = shape;
        Ok(())
    }

    /// Replaces the input by what `write` makes of it in a zeroed buffer of the new shape: how a transform changes
    /// shape without allocating once the buffers have grown.
    ///
    /// # Errors
    /// [`DataError::OutOfMemory`].
    pub fn rewrite(&mut self, shape: Shape, write: impl FnOnce(&[f32], &mut [f32])) -> Result<()> {
        self.scratch.clear();
        reserve(&mut self.scratch, shape.size(), "a sample")?;
        self.scratch.resize(shape.size(), 0.0);
        write(&self.input, &mut self.scratch);
        std::mem::swap(&mut self.input, &mut self.scratch);
        self.shape = shape;
        Ok(())
    }

    /// The dimensions of an image.
    ///
    /// # Errors
    /// [`DataError::Shape`] when the sample is not `[H, W, C]` or holds another number of elements.
    pub fn image(&self, what: &'static str) -> Result<[usize; 3]> {
        match self.shape.dims() {
            &[h, w, c] if self.input.len() == self.shape.size() => Ok([h, w, c]),
            _ => Err(DataError::shape(what, self.shape, "an image [H, W, C]")),
        }
    }
}

/// Random access to samples, from any thread.
///
/// A read is a pure function of the index: two reads of one index give the same sample, whoever asks.
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads sample `index` into `sample`, reusing its memory. All fields are set.
    ///
    /// # Errors
    /// [`DataError::Index`] past the end, and whatever is wrong with the record.
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()>;

    /// Sample `index` in memory of its own.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    fn get(&self, index: usize) -> Result<Sample> {
        let mut sample = Sample::default();
        self.read(index, &mut sample)?;
        Ok(sample)
    }

    /// The shape that every input has, when they all have the same.
    fn shape(&self) -> Option<Shape>;

    /// Number of classes: labels are in `0..classes`. `None` when labels are not classes.
    fn classes(&self) -> Option<usize>;

    /// The classes' names in label order; empty when they have none.
    fn class_names(&self) -> &[String] {
        &[]
    }

    /// The records that were left out when the dataset was opened.
    fn skipped(&self) -> Option<&Skipped> {
        None
    }

    /// The file or folder the samples come from, for messages.
    fn source(&self) -> Option<&Path> {
        None
    }
}

/// A dataset behind a shared pointer is the dataset.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        (**self).read(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        (**self).shape()
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
}

/// Checks an index against a dataset's length.
pub(crate) fn check_index(index: usize, len: usize) -> Result<()> {
    if index < len {
        Ok(())
    } else {
        Err(DataError::Index { index, len })
    }
}

/// A training set and the set held back from it.
#[derive(Debug, Clone)]
pub struct Split<D> {
    /// What to train on.
    pub train: D,
    /// What to measure on.
    pub test: D,
}

/// Some of the samples of another dataset, in a given order.
#[derive(Debug, Clone)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples `indices` of `dataset`; an index may stand more than once.
    ///
    /// # Errors
    /// [`DataError::Index`] for an index past the end.
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Self> {
        for &index in &indices {
            check_index(index, dataset.len())?;
        }
        Ok(Subset { dataset, indices })
    }

    /// Splits `dataset` at random: `held_back` samples to test on, the rest to train on, each once. The same seed
    /// gives the same split.
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
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        self.dataset.read(self.indices[index], sample)
    }
    fn shape(&self) -> Option<Shape> {
        self.dataset.shape()
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
}

/// [`Key::permutation`] in fallibly reserved memory: the length may come from an option, not from data.
pub(crate) fn permutation(key: Key, n: usize) -> Result<Vec<usize>> {
    let mut order = Vec::new();
    reserve(&mut order, n, "a permutation")?;
    order.extend(0..n);
    key.shuffle(&mut order);
    Ok(order)
}
