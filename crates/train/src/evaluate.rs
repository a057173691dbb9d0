//! Evaluates a model on a dataset without changing the model.

use crate::losses::{LOSS, Losses};
use crate::{Metric, Output, Result, Running, StopHandle, Values};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::{Module, no_grad};
use std::time::Duration;

/// The number of batches between two reads of the losses.
const READ_EVERY: usize = 64;

/// The results of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// `loss`, its parts, and every metric that was measured, by name.
    pub values: Values,
    /// The number of samples evaluated.
    pub samples: u64,
}

/// Evaluates `model` on every batch of `loader`'s first epoch, with layers in evaluation mode and without a graph. The
/// model is left in training mode, which is the mode of a new model.
///
/// `step` is the closure that [`Trainer::fit`](crate::Trainer::fit) takes.
///
/// # Errors
/// The errors of the loader and of the closure. A loss that is not finite is no error but a result.
pub fn evaluate<B, M, S, D, T>(
    backend: &B,
    model: &mut M,
    step: &S,
    loader: &Loader<D, T>,
    metrics: &mut [&mut dyn Metric<B>],
) -> Result<Evaluation>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + ?Sized,
    D: Default + Send + 'static,
    T: Batch,
{
    let stop = StopHandle::new();
    let done = evaluate_until(backend, model, step, loader, metrics, &stop)?;
    done.ok_or_else(|| unreachable!("nobody holds the handle"))
}

/// As [`evaluate`]; `None` if `stop` was requested before the end.
pub(crate) fn evaluate_until<B, M, S, D, T>(
    backend: &B,
    model: &mut M,
    step: &S,
    loader: &Loader<D, T>,
    metrics: &mut [&mut dyn Metric<B>],
    stop: &StopHandle,
) -> Result<Option<Evaluation>>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + ?Sized,
    D: Default + Send + 'static,
    T: Batch,
{
    model.eval();
    let result = no_grad(|| measure(backend, model, step, loader, metrics, stop));
    model.train();
    result
}

/// A measurement of the model after each epoch: a loader, and the function that computes what is measured.
pub struct Validation<'a, B: Backend, M> {
    #[expect(clippy::type_complexity, reason = "the one place where it is written")]
    pub(crate) run: Box<dyn Fn(&B, &mut M, &mut [&mut dyn Metric<B>], &StopHandle) -> Result<Option<Evaluation>> + 'a>,
}

impl<'a, B: Backend, M: Module<B>> Validation<'a, B, M> {
    /// Creates a measurement of `step` on every batch of `loader`, as [`evaluate`] makes it.
    pub fn new<D: Default + Send + 'static, T: Batch>(
        loader: &'a Loader<D, T>,
        step: impl Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + 'a,
    ) -> Self {
        Validation {
            run: Box::new(move |backend, model, metrics, stop| {
                evaluate_until(backend, model, &step, loader, metrics, stop)
            }),
        }
    }
}

impl<B: Backend, M> std::fmt::Debug for Validation<'_, B, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Validation")
    }
}

fn measure<B, M, S, D, T>(
    backend: &B,
    model: &M,
    step: &S,
    loader: &Loader<D, T>,
    metrics: &mut [&mut dyn Metric<B>],
    stop: &StopHandle,
) -> Result<Option<Evaluation>>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + ?Sized,
    D: Default + Send + 'static,
    T: Batch,
{
    let mut running: Vec<Running<B>> = metrics.iter().map(|_| Running::new()).collect();
    let (mut losses, mut samples, mut worst) = (Losses::new(), 0, None);
    let mut batches = loader.epoch(0)?;
    let interrupt = stop.interrupt(Duration::ZERO);
    while batches.len() > 0 {
        if stop.is_requested() {
            return Ok(None);
        }
        let Some(host) = batches.next_until(&|| stop.is_requested()) else {
            return Ok(None);
        };
        let host = host?;
        let batch = host.to_device(backend)?;
        let mut output = None;
        let done = backend.interruptible(&interrupt, &mut || {
            output = Some(step(model, &batch)?);
            Ok(())
        });
        let output = match (done, output) {
            (Err(e), _) if e.is_interrupted() => return Ok(None),
            (Err(e), _) => return Err(e.into()),
            (Ok(()), None) => unreachable!("the body has run"),
            (Ok(()), Some(output)) => output,
        };
        losses.push(output.measured()?, host.len(), 0);
        samples += host.len() as u64;
        for (metric, running) in metrics.iter_mut().zip(&mut running) {
            running.add(&mut **metric, &output, host.len())?;
        }
        if losses.unreported() == READ_EVERY {
            worst = worst.or(losses.read()?.bad);
            losses.report();
        }
    }
    worst = worst.or(losses.read()?.bad);
    let mut values = losses.means();
    if let Some(worst) = worst {
        values.insert(LOSS.to_string(), worst.value);
    }
    for (metric, mut running) in metrics.iter_mut().zip(running) {
        values.extend(running.finish(&mut **metric)?);
    }
    Ok(Some(Evaluation { values, samples }))
}
