//! Making a batch of samples.

use crate::error::reserve;
use crate::{AnyBatch, Batch, DataError, Dataset, Labelled, Place, Result, Sample, Windows};
use ndarray::{Array, ArrayD, Dimension, Ix2, IxDyn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a batch of samples (PyTorch's `collate_fn`). Closures `Fn(&[S]) -> Result<T>` do.
///
/// A batch is a pure function of its samples; `spare` is a batch that is no longer needed, whose memory may be used again.
pub trait Collate<S>: Send + Sync {
    /// The batch.
    type Batch: Batch;

    /// Makes a batch of one or more samples, which have these indices in the dataset.
    ///
    /// # Errors
    /// An error of one sample as [`DataError::of_sample`], and [`DataError::OutOfMemory`].
    fn collate(&self, samples: &[S], indices: &[usize], spare: Option<Self::Batch>) -> Result<Self::Batch>;
}

impl<S, T: Batch, F: Fn(&[S]) -> Result<T> + Send + Sync> Collate<S> for F {
    type Batch = T;

    fn collate(&self, samples: &[S], _: &[usize], _: Option<T>) -> Result<T> {
        self(samples)
    }
}

/// Makes the batches of another way, whose type is forgotten.
pub(super) struct AnyOf<S, T>(pub(super) Arc<dyn Collate<S, Batch = T>>);

impl<S, T: Batch> Collate<S> for AnyOf<S, T> {
    type Batch = AnyBatch;

    fn collate(&self, samples: &[S], indices: &[usize], spare: Option<AnyBatch>) -> Result<AnyBatch> {
        let spare = spare.and_then(AnyBatch::downcast);
        self.0.collate(samples, indices, spare).map(AnyBatch::new)
    }
}

/// Stacks samples of one shape; the way of a [`Loader`](super::Loader) that is told no other.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    classes: Option<usize>,
    source: PathBuf,
}

impl Stack {
    /// Creates a way to stack samples of `dataset`, which refuses labels that are not among its classes.
    pub fn of<D: Dataset + ?Sized>(dataset: &D) -> Self {
        Stack {
            classes: dataset.classes(),
            source: dataset.source().unwrap_or(Path::new("dataset")).to_path_buf(),
        }
    }

    fn check(&self, sample: &Sample, index: usize, first: &Sample) -> Result<()> {
        let shape = |what, found: String, expected: String| Err(DataError::shape(what, found, expected));
        if let Some(classes) = self.classes
            && usize::try_from(sample.label).map_or(true, |label| label >= classes)
        {
            return Err(DataError::Label {
                path: self.source.clone(),
                place: Place::Record(index as u64),
                label: i64::from(sample.label),
                classes,
            });
        }
        if sample.resident().is_some() != first.resident().is_some() {
            let found = "samples on a device and samples in memory".to_string();
            return shape("batch", found, "samples of one kind".to_string());
        }
        if sample.input.len() != sample.shape.size() {
            return shape(
                "sample",
                format!("{} values", sample.input.len()),
                sample.shape.to_string(),
            );
        }
        if sample.shape != first.shape {
            let expected = format!("{} as the batch's first sample; resize or crop", first.shape);
            return shape("batch", sample.shape.to_string(), expected);
        }
        if sample.targets.len() != first.targets.len() {
            let found = format!("{} targets", sample.targets.len());
            return shape("batch", found, format!("{} targets", first.targets.len()));
        }
        Ok(())
    }
}

impl Collate<Sample> for Stack {
    type Batch = Labelled;

    fn collate(&self, samples: &[Sample], indices: &[usize], spare: Option<Labelled>) -> Result<Labelled> {
        let first = &samples[0];
        for (sample, &index) in samples.iter().zip(indices) {
            self.check(sample, index, first).map_err(|e| e.of_sample(index))?;
        }
        let spare = spare.unwrap_or_default();
        let (count, width) = (samples.len(), first.targets.len());
        let mut inputs = emptied(spare.inputs, count.saturating_mul(first.input.len()))?;
        let mut labels = emptied(spare.labels, count)?;
        let mut targets = emptied(spare.targets.unwrap_or_default(), count.saturating_mul(width))?;
        let images = windows(samples, indices, spare.images)?;
        for sample in samples {
            inputs.extend_from_slice(&sample.input);
            targets.extend_from_slice(&sample.targets);
            labels.push(sample.label);
        }
        let shape: Vec<usize> = std::iter::once(count).chain(first.shape.iter().copied()).collect();
        Ok(Labelled {
            inputs: shaped(inputs, IxDyn(&shape))?,
            labels: labels.into(),
            targets: match width {
                0 => None,
                width => Some(shaped(targets, Ix2(count, width))?),
            },
            images,
        })
    }
}

/// The windows of samples whose images lie on a device; `None` for samples in memory.
fn windows(samples: &[Sample], indices: &[usize], spare: Option<Windows>) -> Result<Option<Windows>> {
    let Some(first) = samples[0].resident() else {
        return Ok(None);
    };
    let (size, table) = (first.image.size(), first.image.read_values());
    let [_, n, c] = table.image("device images")?;
    let (windows, values) = spare.map_or_else(Default::default, |spare| (spare.windows, spare.values));
    let (mut windows, mut values) = (emptied(windows, 4 * samples.len())?, emptied(values, n * c)?);
    for (sample, &index) in samples.iter().zip(indices) {
        let Some(place) = sample.resident() else { continue };
        let refused =
            |what, found: String, expected: &str| Err(DataError::shape(what, found, expected).of_sample(index));
        let (image, at) = (&place.image, place.image.corner());
        if image.size() != size {
            let expected = format!("{}×{} as the batch's first sample", size.0, size.1);
            return refused("batch", format!("{}×{}", image.size().0, image.size().1), &expected);
        }
        if place.home != first.home || image.read_values() != table {
            let expected = "images of one dataset, whose pixels are changed alike";
            return refused("batch", "another dataset or other values".to_string(), expected);
        }
        let (Ok(row), Ok(column)) = (i32::try_from(at.0), i32::try_from(at.1)) else {
            return refused("window", format!("{at:?}"), "numbers of 32 bits");
        };
        windows.extend([place.index, row, column, i32::from(image.is_mirrored())]);
    }
    // From [1, 257, C] to [C, 257].
    (0..c).for_each(|channel| values.extend(table.input[channel..].iter().step_by(c)));
    Ok(Some(Windows {
        windows: shaped(windows, Ix2(samples.len(), 4))?,
        values: shaped(values, Ix2(c, n))?,
        shape: [samples.len(), size.0, size.1, c],
        home: first.home.clone(),
    }))
}

/// The memory of an array, emptied, with room for `room` elements.
fn emptied<T, D: Dimension>(array: Array<T, D>, room: usize) -> Result<Vec<T>> {
    let mut values = array.into_raw_vec_and_offset().0;
    values.clear();
    reserve(&mut values, room, "a batch")?;
    Ok(values)
}

fn shaped<T, D: Dimension>(values: Vec<T>, shape: D) -> Result<Array<T, D>> {
    let found = format!("{} values", values.len());
    let expected = format!("{:?}", shape.slice());
    Array::from_shape_vec(shape, values).map_err(|_| DataError::shape("batch", found, expected))
}

/// Stacks arrays that differ in length along their first dimension: the shorter ones are filled up with `value`
/// (`torch.nn.utils.rnn.pad_sequence` with `batch_first`). Returns the batch `[N, T, …]` and the length of each array.
///
/// `T` is the longest length, rounded up to a multiple of `multiple`. A multiple above 1 makes for fewer different shapes, of
/// which a step that is captured can repeat more.
///
/// ```
/// use kiln_data::pad;
/// use ndarray::{Array2, array};
///
/// let tokens = [array![5, 6, 7], array![8]].map(|line| line.into_dyn());
/// let (padded, lengths) = pad(&tokens.each_ref().map(|t| t.view()), -1, 4)?;
/// assert_eq!(padded, array![[5, 6, 7, -1], [8, -1, -1, -1]].into_dyn());
/// assert_eq!(lengths, array![3, 1]);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
///
/// # Errors
/// [`DataError::Shape`] for arrays of rank 0, or that differ in another dimension than the first;
/// [`DataError::InvalidArgument`] for a multiple of 0; [`DataError::OutOfMemory`].
pub fn pad<T: Copy>(
    arrays: &[ndarray::ArrayViewD<'_, T>],
    value: T,
    multiple: usize,
) -> Result<(ArrayD<T>, ndarray::Array1<i32>)> {
    if multiple == 0 {
        return Err(DataError::invalid("pad", "multiple", 0, "at least 1"));
    }
    let Some(first) = arrays.first() else {
        return shaped(Vec::new(), IxDyn(&[0, 0])).map(|empty| (empty, ndarray::Array1::default(0)));
    };
    let dims = |array: &ndarray::ArrayViewD<'_, T>| match array.shape() {
        [] => Err(DataError::shape("pad", "[]", "at least one dimension")),
        [_, rest @ ..] if Some(rest) != first.shape().get(1..) => Err(DataError::shape(
            "pad",
            format!("{:?}", array.shape()),
            format!("{:?} after the first dimension", &first.shape()[1..]),
        )),
        [length, ..] => Ok(*length),
    };
    let lengths = arrays.iter().map(dims).collect::<Result<Vec<usize>>>()?;
    let longest = lengths.iter().max().copied().unwrap_or(0).next_multiple_of(multiple);
    let row: usize = first.shape()[1..].iter().product();
    let each = longest.saturating_mul(row);
    let mut values = Vec::new();
    reserve(&mut values, each.saturating_mul(arrays.len()), "a padded batch")?;
    for (i, array) in arrays.iter().enumerate() {
        values.extend(array.iter().copied());
        values.resize((i + 1) * each, value);
    }
    let mut shape = vec![arrays.len(), longest];
    shape.extend_from_slice(&first.shape()[1..]);
    let lengths = lengths.into_iter().map(|l| l as i32).collect();
    Ok((shaped(values, IxDyn(&shape))?, lengths))
}
