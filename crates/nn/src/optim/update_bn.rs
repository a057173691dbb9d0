//! The running statistics of batch norms, computed anew for the weights that a model has.

use crate::layers::cumulative;
use crate::module::{Entry, StateDict, entries};
use crate::{Backend, Indices, Module, Result};
use std::collections::BTreeSet;

/// The name of the counter of a batch norm, and those of its statistics.
const COUNTER: &str = "num_batches_tracked";
const STATISTICS: [&str; 2] = ["running_mean", "running_var"];

/// Computes the running statistics of the batch norms of a model anew (`torch.optim.swa_utils.update_bn`): `pass` runs the model on
/// the batches of the training data, and the statistics become the equal means of those of the batches. Averaged weights need that:
/// the statistics of the models that they are the mean of are not theirs. Returns what `pass` returns; without batch norms it is not
/// called, and there is `None`.
///
/// The model is in training mode for the pass, and afterwards. Layers such as dropout draw their numbers in it.
///
/// ```
/// use kiln_nn::layers::BatchNorm;
/// use kiln_nn::optim::{AveragedModel, update_bn};
/// use kiln_nn::{Init, Layer, Sequential, Tensor, no_grad};
///
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let new = || -> kiln_nn::Result<_> { Ok(Sequential::new().push(BatchNorm::new(&mut Init::new(&cpu, 0), 1)?)) };
/// let (model, mut averaged) = (new()?, new()?);
/// let average = AveragedModel::swa(&model)?;
/// // … training, with `average.update(&model)` after some of its steps …
/// average.copy_to(&mut averaged)?;
/// let batches = [[1.0, 3.0], [5.0, 9.0]].map(|batch: [f32; 2]| Tensor::from_slice(&cpu, &batch, &[2, 1]));
/// update_bn(&mut averaged, |model| {
///     no_grad(|| batches.iter().try_for_each(|batch| model.forward(batch.as_ref().unwrap()).map(drop)))
/// })?;
/// let running = averaged.state_dict();
/// assert_eq!(running.float("0.running_mean").unwrap().to_vec::<f32>()?, [4.5]); // of 2 and 7
/// assert!((running.float("0.running_var").unwrap().item()? - 5.0).abs() < 1e-6); // of 2 and 8
/// # use kiln_nn::Module;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `pass`, and of the device.
pub fn update_bn<B: Backend, M: Module<B>, R>(model: &mut M, pass: impl FnOnce(&M) -> Result<R>) -> Result<Option<R>> {
    let Some(norms) = reset_bn(model)? else {
        return Ok(None);
    };
    model.train();
    norms.cumulative(|| pass(model)).map(Some)
}

/// The batch norms of a model whose statistics are to be computed: [`reset_bn`].
#[derive(Debug)]
pub struct ResetNorms(());

impl ResetNorms {
    /// Runs `pass`, in which the statistics of batch norms in training mode become the equal means of those of the batches, on this
    /// thread: a momentum of `None` in PyTorch.
    pub fn cumulative<R>(self, pass: impl FnOnce() -> R) -> R {
        cumulative(pass)
    }
}

/// The first half of [`update_bn`]: sets the statistics of all batch norms of a model to those of new ones; `None` if it has none.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::BatchNorm, optim::reset_bn};
/// # let cpu = kiln_cpu::Cpu::new();
/// let norm = BatchNorm::new(&mut Init::new(&cpu, 0), 1)?;
/// norm.forward(&Tensor::ones(&cpu, &[4, 1], DType::F32)?)?;
/// if let Some(norms) = reset_bn(&norm)? {
///     norms.cumulative(|| norm.forward(&Tensor::full(&cpu, &[4, 1], DType::F32, 5.0)?))?;
/// }
/// assert_eq!(norm.state_dict().float("running_mean").map(|t| t.to_f64()).transpose()?, Some(vec![5.0]));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// An error of the device.
pub fn reset_bn<B: Backend, M: Module<B> + ?Sized>(model: &M) -> Result<Option<ResetNorms>> {
    Ok(reset_running_stats(model)?.then_some(ResetNorms(())))
}

/// The names of the modules with the counter and the statistics of a batch norm, with a dot behind each.
pub(super) fn batch_norms<B: Backend, M: Module<B> + ?Sized>(model: &M) -> BTreeSet<String> {
    let names: BTreeSet<String> = entries(model).into_iter().map(|(name, _)| name).collect();
    let counters = names.iter().filter_map(|name| name.strip_suffix(COUNTER));
    let with_statistics = |prefix: &&str| STATISTICS.iter().all(|of| names.contains(&format!("{prefix}{of}")));
    counters.filter(with_statistics).map(str::to_string).collect()
}

/// True if an entry of a state dictionary is a statistic, or the counter, of one of these batch norms.
pub(super) fn is_statistic(norms: &BTreeSet<String>, name: &str) -> bool {
    let mut ends = STATISTICS.iter().chain([&COUNTER]);
    ends.any(|end| name.strip_suffix(end).is_some_and(|prefix| norms.contains(prefix)))
}

/// Sets the statistics of all batch norms to those of a new one; false if there are none.
fn reset_running_stats<B: Backend, M: Module<B> + ?Sized>(model: &M) -> Result<bool> {
    let norms = batch_norms(model);
    for (name, entry) in entries(model) {
        if !is_statistic(&norms, &name) {
            continue;
        }
        match entry {
            Entry::State(state) if name.ends_with("var") => state.fill(1.0)?,
            Entry::State(state) => state.fill(0.0)?,
            Entry::Counter(counter) => {
                counter.assign(&Indices::from_slice(counter.get().backend(), &[0i32], &[])?)?;
            }
            Entry::Param(_) | Entry::Mode(_) => {}
        }
    }
    Ok(!norms.is_empty())
}

/// The statistics of all batch norms of a model, by the names of its state dictionary.
pub(super) fn statistics<B: Backend, M: Module<B> + ?Sized>(model: &M) -> StateDict<B> {
    let norms = batch_norms(model);
    let mut found = StateDict::new();
    for (name, value) in StateDict::of_entries(&entries(model)).iter() {
        if is_statistic(&norms, name) {
            found.insert(name, value.clone());
        }
    }
    found
}
