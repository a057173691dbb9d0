//! Makes one batch: the same code on worker threads and on the calling thread.

use super::batch::{Loaded, Spares};
use super::collate::Collate;
use super::position::Position;
use super::sampler::EpochPlan;
use crate::error::panic_message;
use crate::transforms::{Draw, Transform};
use crate::{Batch, ByteImage, DataError, Dataset, Result, Sample};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Everything that the batches of an epoch depend on.
pub(super) struct Job<S, T: Batch> {
    pub(super) dataset: Arc<dyn Dataset<Sample = S>>,
    pub(super) transform: Option<Arc<dyn Transform<S>>>,
    pub(super) collate: Arc<dyn Collate<S, Batch = T>>,
    pub(super) plan: EpochPlan,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) spares: Arc<Spares<T>>,
}

impl<S: Default + Send + 'static, T: Batch> Job<S, T> {
    /// Makes batch `number`, with `samples` as scratch memory. Returns `None` if `stop` returns true in the meantime.
    pub(super) fn batch(
        &self,
        number: usize,
        samples: &mut Vec<S>,
        stop: &dyn Fn() -> bool,
    ) -> Option<Result<Loaded<T>>> {
        let (spare, mut indices) = self.spares.take();
        indices.extend(self.plan.batch(number));
        if samples.len() < indices.len() {
            samples.resize_with(indices.len(), S::default);
        }
        for (sample, &index) in samples.iter_mut().zip(&indices) {
            if stop() {
                return None;
            }
            if let Err(error) = self.sample(index, sample) {
                return Some(Err(error.of_sample(index)));
            }
        }
        let made = caught(|| self.collate.collate(&samples[..indices.len()], &indices, spare));
        let position = Position {
            epoch: self.epoch,
            batch: number as u64,
        };
        Some(made.map(|batch| Loaded::new(batch, indices, position, &self.spares)))
    }

    /// Reads and transforms a sample.
    fn sample(&self, index: usize, sample: &mut S) -> Result<()> {
        caught(|| {
            self.dataset.read(index, sample)?;
            let Some(transform) = &self.transform else {
                return Ok(());
            };
            let draw = Draw::new(self.seed, self.epoch, index);
            match on_device(sample) {
                Some(image) => transform.on_bytes(image, &draw),
                None => transform.apply(sample, &draw),
            }
        })
    }
}

/// The image on a device of a sample of one.
fn on_device<S: 'static>(sample: &mut S) -> Option<&mut ByteImage> {
    let sample: &mut dyn Any = sample;
    sample.downcast_mut::<Sample>()?.image_on_device()
}

/// Turns a panic into an error, so that the consumer does not hang and the result does not depend on the number of workers.
fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(DataError::Panicked {
            message: panic_message(&*panic),
        })
    })
}
