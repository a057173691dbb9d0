//! The parts of a training step, each with a loss and an optimizer of its own.

use crate::{Output, Result, TrainError};
use kiln_core::Backend;
use kiln_data::Batch;
use kiln_nn::optim::{Optimizer, Schedule};
use kiln_nn::{Entry, EntryMut, Module, Walk, WalkMut};

/// The function of a phase: the loss of a batch.
pub(crate) type Closure<'a, B, M, T> = Box<dyn Fn(&M, &<T as Batch>::On<B>) -> kiln_core::Result<Output<B>> + 'a>;

/// Which parameters a phase trains, by dotted name.
type Select<'a> = Box<dyn Fn(&str) -> bool + 'a>;

/// One update of a training step: a loss, the optimizer that follows it, the parameters that it changes, and how often it is its
/// turn. A step of a GAN has two, one for the critic and one for the generator:
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// use kiln_nn::layers::{Flatten, Linear, Noise};
/// use kiln_nn::{Backend, DType, Init, Layer, Module, Sequential, Tensor, optim::Adam};
/// use kiln_train::{Output, Phase, TrainOptions, Trainer};
/// use std::sync::Arc;
///
/// #[derive(Module)]
/// struct Gan<B: Backend> {
///     noise: Noise<B>,
///     generator: Linear<B>,
///     critic: Sequential<B>,
/// }
///
/// impl<B: Backend> Gan<B> {
///     fn fakes(&self, count: usize) -> kiln_nn::Result<Tensor<B>> {
///         self.generator.forward(&self.noise.randn(&[count, 4], DType::F32)?)
///     }
/// }
///
/// let cpu = Cpu::new();
/// let init = &mut Init::new(&cpu, 0);
/// let mut gan = Gan {
///     noise: Noise::new(init)?,
///     generator: Linear::new(init, 4, 9)?,
///     critic: Sequential::new().push(Flatten::default()).push(Linear::new(init, 9, 1)?),
/// };
/// let data = Loader::new(Arc::new(Synthetic::images(20, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
///
/// let (mut critic, mut generator) = (Adam::new(1e-3), Adam::new(1e-3));
/// let phases = vec![
///     Phase::new("critic", &mut critic, |gan: &Gan<Cpu>, batch: &LabelledOn<Cpu>| {
///         let real = gan.critic.forward(&batch.inputs)?.mean(&[], false)?;
///         let fake = gan.critic.forward(&gan.fakes(batch.labels.size())?)?.mean(&[], false)?;
///         Ok(Output::new(fake.sub(&real)?))
///     })
///     .trains(|parameter| parameter.starts_with("critic.")),
///     Phase::new("generator", &mut generator, |gan: &Gan<Cpu>, batch: &LabelledOn<Cpu>| {
///         let fake = gan.critic.forward(&gan.fakes(batch.labels.size())?)?.mean(&[], false)?;
///         Ok(Output::new(fake.mul_scalar(-1.0)?))
///     })
///     .trains(|parameter| parameter.starts_with("generator."))
///     .every(5),
/// ];
/// let options = TrainOptions { epochs: 10, ..Default::default() };
/// let report = Trainer::new(&cpu, options).fit_phases(&mut gan, phases, &data, None)?;
/// assert!(report.history.epochs()[4].train.contains_key("generator/loss"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Phase<'a, B: Backend, M, T: Batch> {
    pub(crate) name: String,
    pub(crate) optimizer: &'a mut dyn Optimizer<B>,
    pub(crate) closure: Closure<'a, B, M, T>,
    pub(crate) trains: Option<Select<'a>>,
    pub(crate) every: u64,
    pub(crate) schedule: Option<Schedule>,
}

impl<'a, B: Backend, M: Module<B>, T: Batch> Phase<'a, B, M, T> {
    /// Creates a phase that follows the loss of `step` with `optimizer`, in every training step and for all trainable parameters.
    /// Its measured values are called `{name}/loss`, `{name}/{part}`.
    pub fn new(
        name: impl Into<String>,
        optimizer: &'a mut dyn Optimizer<B>,
        step: impl Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>> + 'a,
    ) -> Self {
        Phase {
            name: name.into(),
            optimizer,
            closure: Box::new(step),
            trains: None,
            every: 1,
            schedule: None,
        }
    }

    /// Restricts the phase to the parameters whose dotted names `select` accepts. The others are frozen while it runs: no
    /// gradients are computed for them.
    pub fn trains(mut self, select: impl Fn(&str) -> bool + 'a) -> Self {
        self.trains = Some(Box::new(select));
        self
    }

    /// Runs the phase in each `steps`-th training step only, after `steps − 1` steps of the phases before it.
    pub fn every(mut self, steps: u64) -> Self {
        self.every = steps;
        self
    }

    /// Sets the learning rate of every update of this phase from `schedule`, which counts this phase's updates from 0, skipped
    /// ones included. A phase without a schedule follows [`Trainer::schedule`](crate::Trainer::schedule).
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// True if the phase trains a parameter of this name, if that is trainable.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.trains.as_ref().is_none_or(|selects| selects(name))
    }

    /// Checks the phase before a run.
    pub(crate) fn check(&self, model: &M) -> Result<()> {
        if self.every == 0 {
            return Err(TrainError::invalid("every", 0, "at least 1"));
        }
        let Some(selects) = &self.trains else { return Ok(()) };
        let mut any = false;
        model.walk(&mut Walk::new(&mut |name, entry| {
            any |= matches!(entry, Entry::Param(p) if p.is_trainable()) && selects(name);
        }));
        match any {
            true => Ok(()),
            false => Err(TrainError::invalid(
                "trains",
                format!("no parameter in phase `{}`", self.name),
                "a rule that selects at least one trainable parameter by its dotted name",
            )),
        }
    }

    /// Freezes the trainable parameters that the phase leaves alone, and returns their names.
    pub(crate) fn freeze(&self, model: &mut M) -> Vec<String> {
        let mut frozen = Vec::new();
        let Some(selects) = &self.trains else { return frozen };
        model.walk_mut(&mut WalkMut::new(&mut |name, entry| {
            if let EntryMut::Param(p) = entry
                && p.is_trainable()
                && !selects(name)
            {
                p.set_trainable(false);
                frozen.push(name.to_string());
            }
        }));
        frozen
    }
}

/// Unfreezes the parameters of these names.
pub(crate) fn unfreeze<B: Backend, M: Module<B>>(model: &mut M, frozen: Vec<String>) {
    if frozen.is_empty() {
        return;
    }
    let mut frozen = frozen.into_iter().peekable();
    model.walk_mut(&mut WalkMut::new(&mut |name, entry| {
        if let EntryMut::Param(p) = entry
            && frozen.next_if(|f| f == name).is_some()
        {
            p.set_trainable(true);
        }
    }));
}

impl<B: Backend, M, T: Batch> std::fmt::Debug for Phase<'_, B, M, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Phase")
            .field("name", &self.name)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
