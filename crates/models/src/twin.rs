//! Networks as twins of those that are trained on another backend.

use crate::task::Task;
use kiln_core::{Backend, Result};
use kiln_data::Batch;
use kiln_nn::Module;
use kiln_train::{Twin, TwinStep};

/// The twin with the losses of a task.
pub(crate) fn of<B: Backend, M: Module<B> + 'static, T: Batch>(
    backend: &B,
    task: impl Fn(&B) -> Result<Task<B, M, T>>,
) -> kiln_train::Result<Twin> {
    let phases = task(backend)?.phases.into_iter();
    let steps = phases.map(|phase| (phase.name.to_string(), Box::new(phase.step) as TwinStep<B, M, T>));
    Twin::of_phases::<B, M, T>(backend, |backend| Ok(task(backend)?.net), steps.collect())
}
