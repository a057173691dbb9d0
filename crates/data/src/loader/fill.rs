//! Makes one batch: the same code on worker threads and on the calling thread.

use super::batch::{HostBatch, Spares};
use super::position::Position;
use crate::error::{panic_message, reserve};
use crate::transforms::{Draw, Transform};
use crate::{DataError, Dataset, Place, Result, Sample};
use kiln_core::{MAX_RANK, Shape};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that the batches of an epoch depend on.
pub(super) struct Job {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) transform: Option<Arc<dyn Transform>>,
    /// The shuffled order; `None` for the order of the dataset.
    pub(super) order: Option<Vec<usize>>,
    pub(super) batch_size: usize,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) spares: Arc<Spares>,
}

impl Job {
    /// Makes batch `number`, with `sample` as scratch memory. Returns `None` if `stop` returns true in the meantime.
    pub(super) fn batch(
        &self,
        number: usize,
        sample: &mut Sample,
        stop: &dyn Fn() -> bool,
    ) -> Option<Result<HostBatch>> {
        let position = Position {
            epoch: self.epoch,
            batch: number as u64,
        };
        let mut batch = HostBatch::from_spares(&self.spares, position);
        let start = number.saturating_mul(self.batch_size);
        let end = start.saturating_add(self.batch_size).min(self.dataset.len());
        for place in start..end {
            if stop() {
                return None;
            }
            let index = self.order.as_ref().map_or(place, |order| order[place]);
            let done = self
                .sample(index, sample)
                .and_then(|()| append(&mut batch, sample, end - start));
            if let Err(error) = done {
                return Some(Err(error.of_sample(index)));
            }
            batch.indices.push(index);
        }
        Some(Ok(batch))
    }

    /// Reads and transforms a sample. A panic in either becomes an error of this sample, so that the consumer does not hang
    /// and the result does not depend on the number of workers.
    fn sample(&self, index: usize, sample: &mut Sample) -> Result<()> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.dataset.read(index, sample)?;
            match &self.transform {
                Some(t) => t.apply(sample, &Draw::new(self.seed, self.epoch, index)),
                None => Ok(()),
            }
        }));
        outcome.unwrap_or_else(|panic| {
            Err(DataError::Panicked {
                message: panic_message(&*panic),
            })
        })?;
        if let Some(classes) = self.dataset.classes()
            && usize::try_from(sample.label).map_or(true, |label| label >= classes)
        {
            return Err(DataError::Label {
                path: self
                    .dataset
                    .source()
                    .map_or_else(|| PathBuf::from("dataset"), |p| p.to_path_buf()),
                place: Place::Record(index as u64),
                label: i64::from(sample.label),
                classes,
            });
        }
        Ok(())
    }
}

/// Appends a sample to a batch of `count` samples; the first one fixes the shape and the number of targets.
fn append(batch: &mut HostBatch, sample: &Sample, count: usize) -> Result<()> {
    if sample.input.len() != sample.shape.size() {
        let found = format!("{} values", sample.input.len());
        return Err(DataError::shape("sample", found, sample.shape));
    }
    if batch.labels.is_empty() {
        let rank = sample.shape.rank() + 1;
        let mut dims = [count; MAX_RANK + 1];
        dims[1..rank].copy_from_slice(&sample.shape);
        batch.input_shape = Shape::new(&dims[..rank])?;
        batch.target_width = sample.targets.len();
        reserve(&mut batch.inputs, batch.input_shape.size(), "a batch")?;
        reserve(&mut batch.labels, count, "a batch")?;
        reserve(&mut batch.indices, count, "a batch")?;
        reserve(&mut batch.targets, count.saturating_mul(batch.target_width), "a batch")?;
    }
    if batch.input_shape[1..] != *sample.shape {
        let expected = format!(
            "{:?} as the batch's first sample; resize or crop",
            &batch.input_shape[1..]
        );
        return Err(DataError::shape("batch", sample.shape, expected));
    }
    if batch.target_width != sample.targets.len() {
        let found = format!("{} targets", sample.targets.len());
        return Err(DataError::shape(
            "batch",
            found,
            format!("{} targets", batch.target_width),
        ));
    }
    batch.inputs.extend_from_slice(&sample.input);
    batch.targets.extend_from_slice(&sample.targets);
    batch.labels.push(sample.label);
    Ok(())
}
