//! Evaluates a model on a dataset without changing the model.

use crate::losses::Losses;
use crate::{Batch, Metric, Output, Result, Running, StopHandle, TrainError, Values};
use kiln_core::Backend;
use kiln_data::Loader;
use kiln_nn::{Module, no_grad};
use std::time::Duration;

/// The number of batches between two reads of the losses.
const READ_EVERY: usize = 64;

/// The results of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// `loss`, and every metric by its name.
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
pub fn evaluate<B, M, S>(
    backend: &B,
    model: &mut M,
    step: &S,
    loader: &Loader,
    metrics: &mut [&mut dyn Metric<B>],
) -> Result<Evaluation>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    let stop = StopHandle::new();
    let done = evaluate_until(backend, model, step, loader, metrics, &stop)?;
    done.ok_or_else(|| unreachable!("nobody holds the handle"))
}

/// As [`evaluate`]; `None` if `stop` was requested before the end.
pub(crate) fn evaluate_until<B, M, S>(
    backend: &B,
    model: &mut M,
    step: &S,
    loader: &Loader,
    metrics: &mut [&mut dyn Metric<B>],
    stop: &StopHandle,
) -> Result<Option<Evaluation>>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
{
    model.eval();
    let result = no_grad(|| measure(backend, model, step, loader, metrics, stop));
    model.train();
    result
}

fn measure<B, M, S>(
    backend: &B,
    model: &M,
    step: &S,
    loader: &Loader,
    metrics: &mut [&mut dyn Metric<B>],
    stop: &StopHandle,
) -> Result<Option<Evaluation>>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &Batch<B>) -> kiln_core::Result<Output<B>>,
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
        let batch = host?.to_device(backend)?;
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
        losses.push(&output.loss, batch.labels.size(), 0);
        samples += batch.labels.size() as u64;
        if let Some(scores) = &output.scores {
            for (metric, running) in metrics.iter().zip(&mut running) {
                running.add(&**metric, scores, &batch)?;
            }
        }
        if losses.unreported() == READ_EVERY {
            worst = worst.or(losses.read()?);
            losses.report();
        }
    }
    worst = worst.or(losses.read()?);
    let loss = worst.map_or(losses.mean(), |w| w.value);
    let mut values = Values::from([("loss".to_string(), loss)]);
    for (metric, mut running) in metrics.iter_mut().zip(running) {
        values.insert(metric.name(), running.finish(&mut **metric)?);
    }
    Ok(Some(Evaluation { values, samples }))
}

/// Checks, before the run starts, that the monitored metric is among those measured.
pub(crate) fn check_monitor(monitor: &crate::Monitor, names: &[String]) -> Result<()> {
    if monitor.metric == "loss" || names.contains(&monitor.metric) {
        return Ok(());
    }
    let found = std::iter::once("loss").chain(names.iter().map(String::as_str));
    Err(TrainError::UnknownMetric {
        asked: monitor.metric.clone(),
        found: found.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
    })
}
