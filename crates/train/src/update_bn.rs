//! The running statistics of batch norms for averaged weights, by a pass over the training data.

use crate::run::Run;
use crate::{Average, Output, Result, StopHandle, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, Epoch, Loader};
use kiln_nn::{Module, no_grad, optim};
use kiln_nvtx::range;
use std::time::Duration;

/// Computes the running statistics of the batch norms of `model` anew, by a pass over the first epoch of `loader` in training mode and
/// without gradients (`torch.optim.swa_utils.update_bn`): afterwards they are the equal means of those of the batches. Weights that are
/// the mean of others need it, since the statistics of those are not theirs. The pass draws the numbers of layers such as dropout.
///
/// `step` is the closure that [`Trainer::fit`](crate::Trainer::fit) takes. Returns false, without a pass, for a model without batch
/// norms.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// use kiln_nn::{Init, Layer, Module, Sequential, layers::{BatchNorm, Flatten, Linear}};
/// use kiln_train::{Output, update_bn};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cpu = Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut soup = Sequential::new()
///     .push(BatchNorm::new(init, 1)?)
///     .push(Flatten::default())
///     .push(Linear::new(init, 9, 2)?);
/// // … load the mean of some weights into it …
/// let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
///     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// };
/// assert!(update_bn(&cpu, &mut soup, &step, &data)?);
/// assert_eq!(soup.state_dict().int("0.num_batches_tracked").unwrap().to_vec::<i32>()?, [2]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors of the loader and of the closure.
pub fn update_bn<B, M, S, D, T>(backend: &B, model: &mut M, step: &S, loader: &Loader<D, T>) -> Result<bool>
where
    B: Backend,
    M: Module<B>,
    S: Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + ?Sized,
    D: Default + Send + 'static,
    T: Batch,
{
    let mut failed = Ok(());
    let passed = optim::update_bn(model, |model| {
        let forward = |batch: &T::On<B>| no_grad(|| step(model, batch).map(drop));
        failed = loader
            .epoch(0)
            .map_err(TrainError::from)
            .and_then(|batches| pass(backend, batches, &StopHandle::new(), &forward).map(drop));
        Ok(())
    })?;
    failed.map(|()| passed.is_some())
}

/// Runs `forward` on every batch; false if a stop was requested before the end.
fn pass<B: Backend, D: Default + Send + 'static, T: Batch>(
    backend: &B,
    mut batches: Epoch<D, T>,
    stop: &StopHandle,
    forward: &dyn Fn(&T::On<B>) -> kiln_core::Result<()>,
) -> Result<bool> {
    let interrupt = stop.interrupt(Duration::ZERO);
    while batches.len() > 0 {
        let Some(host) = batches.next_until(&|| stop.is_requested()) else {
            return Ok(false);
        };
        let batch = host?.to_device(backend)?;
        match backend.interruptible(&interrupt, &mut || forward(&batch)) {
            Err(e) if e.is_interrupted() => return Ok(false),
            done => done?,
        }
    }
    Ok(!stop.is_requested())
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// Computes the statistics of the batch norms of the averaged weights on the batches of the epoch, if that is asked for; false if a
    /// stop was requested before the end.
    pub(crate) fn update_bn<D: Default + Send + 'static>(&mut self, loader: &Loader<D, T>) -> Result<bool> {
        let options = &self.trainer.options;
        let by_default = matches!(options.average, Some(Average::Swa { .. }));
        if self.averaged.is_none() || !options.update_bn.unwrap_or(by_default) {
            return Ok(true);
        }
        let _range = range("batch norms of the averaged weights");
        let (backend, stop) = (self.trainer.backend.clone(), self.trainer.stop.clone());
        self.with_average(|run| {
            let Some(norms) = optim::reset_bn(run.model)? else {
                return Ok(true);
            };
            run.model.train();
            let batches = loader.epoch(run.epoch - 1)?;
            let forward = |batch: &T::On<B>| match run.legs.len() {
                1 => no_grad(|| run.forward(0, batch).map(drop)),
                // A phase may take gradients itself.
                legs => (0..legs).try_for_each(|at| run.forward(at, batch).map(drop)),
            };
            if !norms.cumulative(|| pass(&backend, batches, &stop, &forward))? {
                return Ok(false);
            }
            if let Some(averaged) = &run.averaged {
                averaged.take_statistics(&*run.model)?;
            }
            Ok(true)
        })
    }
}
