//! Optimizers, clipping and schedules.
//!
//! Formulas and defaults are those of `torch.optim`. Parameters change in place; everything that changes from step to
//! step reaches the device in one small block per group of parameters.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod algorithm;
mod asgd;
mod averaged;
mod by_name;
mod clip;
mod engine;
mod grad_scaler;
mod group;
mod lamb;
mod lbfgs;
mod lion;
mod model_optimizer;
mod muon;
mod nadam;
mod options;
mod plateau;
mod radam;
mod rmsprop;
mod rprop;
mod schedule;
mod sgd;
mod shared;
mod undecided;
mod update_bn;

pub use adadelta::{Adadelta, AdadeltaRule};
pub use adafactor::{Adafactor, AdafactorRule};
pub use adagrad::{Adagrad, AdagradRule};
pub use adam::{Adam, AdamRule, AdamW};
pub use adamax::{Adamax, AdamaxRule};
pub use algorithm::{Algorithm, Update};
pub use asgd::{Asgd, AsgdRule};
pub use averaged::AveragedModel;
pub use by_name::ByName;
pub use engine::Optim;
pub use grad_scaler::{GradScaler, GradScalerState};
pub use group::Group;
pub use lamb::{Lamb, LambRule};
pub use lbfgs::Lbfgs;
pub use lion::{Lion, LionRule};
pub use model_optimizer::ModelOptimizer;
pub use muon::{Muon, MuonRate, MuonRule};
pub use nadam::{NAdam, NAdamRule};
pub use plateau::{PlateauState, ReduceOnPlateau};
pub use radam::{RAdam, RAdamRule};
pub use rmsprop::{Rmsprop, RmspropRule};
pub use rprop::{Rprop, RpropRule};
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdRule};
pub use shared::SharedOptimizer;
pub use update_bn::{ResetNorms, reset_bn, update_bn};

use crate::module::StateDict;
use crate::{Backend, Gradients, Indices, Module, Result, StorageSnapshot};

/// The parameters that an update changed: those whose steps are to be counted, each time that it is made.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Optimizer, Sgd};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// # let grads = model.forward(&Tensor::ones(&cpu, &[2, 3], DType::F32)?)?.sum(&[], false)?.backward()?;
/// let mut sgd = Sgd::new(0.1);
/// sgd.prepare(&model)?;
/// let applied = sgd.apply(&mut model, &grads)?;
/// sgd.count(&applied);
/// assert!(applied.names().contains(&"weight".to_string()));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    names: Vec<String>,
}

impl Applied {
    /// The parameters of these dotted names.
    ///
    /// ```
    /// use kiln_nn::optim::Applied;
    /// let applied = Applied::new(vec!["head.weight".into()]);
    /// assert_eq!(applied.names(), ["head.weight"]);
    /// ```
    pub fn new(names: Vec<String>) -> Self {
        Applied { names }
    }

    /// Their dotted names.
    ///
    /// See the example of [`Applied`].
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// Something that changes a model's parameters by their gradients.
///
/// What it keeps of a parameter, it keeps under the parameter's dotted name and for that parameter alone: a second model whose
/// parameters have the same names needs an optimizer of its own. A state that was [loaded](Optimizer::load_state_dict) becomes
/// that of the parameters of the next step.
///
/// [`step`](Optimizer::step) is all that most callers need. It does three things that a captured step takes apart:
/// [`prepare`](Optimizer::prepare) on the host before it, [`apply`](Optimizer::apply) on the device, which is recorded
/// once and replayed, and [`count`](Optimizer::count) on the host after it.
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::optim::{Adam, Optimizer, Sgd};
/// let mut optimizers: [Box<dyn Optimizer<Cpu>>; 2] = [Box::new(Sgd::new(0.1)), Box::new(Adam::new(1e-3))];
/// for optimizer in &mut optimizers {
///     optimizer.set_lr(0.01);
///     assert_eq!(optimizer.lr(), 0.01);
/// }
/// ```
pub trait Optimizer<B: Backend>: Send {
    /// Updates every trainable parameter of `model` in place.
    ///
    /// # Errors
    /// [`Error::MissingGradient`](crate::Error::MissingGradient) for a trainable parameter without a gradient, unless
    /// the optimizer was told to skip those; [`Error::OtherParameter`](crate::Error::OtherParameter) for a parameter that has
    /// the name of another, whose state is kept; hyper-parameters outside their domain; a gradient of another shape or
    /// dtype. Nothing has changed then.
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()> {
        self.prepare(model)?;
        let applied = self.apply(model, grads)?;
        self.count(&applied);
        Ok(())
    }

    /// Writes what changes from step to step (learning rate, bias corrections) to the device, in place, for the step to
    /// come.
    ///
    /// # Errors
    /// Hyper-parameters outside their domain; [`Error::OtherParameter`](crate::Error::OtherParameter); the device.
    fn prepare(&mut self, model: &dyn Module<B>) -> Result<()>;

    /// Updates the parameters by device work alone; tells which. Once it has been called for all of them it writes in
    /// place: state is made where a parameter first meets a gradient.
    ///
    /// # Errors
    /// As [`step`](Optimizer::step); a parameter that was not there in [`prepare`](Optimizer::prepare).
    fn apply(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<Applied>;

    /// As [`apply`](Optimizer::apply), where `found_inf`, i32 `[1]`, is 0. Where it is not, parameters, state and the number of
    /// steps stay as they are. The device decides, so this may be captured: the host counts such a step as made, and takes those
    /// back that were left out when it [settles](Optimizer::settle). Numbers that depend on the step are those of the steps made.
    ///
    /// # Errors
    /// As [`apply`](Optimizer::apply).
    fn apply_if_finite(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: &Indices<B>,
    ) -> Result<Applied>;

    /// Counts a step of the parameters that an [`apply`](Optimizer::apply), or a replay of it, has updated.
    fn count(&mut self, applied: &Applied);

    /// Reads how many of the last steps the device has left out, and takes them back from the numbers of steps. Where steps are made
    /// by [`apply_if_finite`](Optimizer::apply_if_finite), [`prepare`](Optimizer::prepare) does so itself after at most 63 of them.
    ///
    /// # Errors
    /// An error of the device.
    fn settle(&mut self) -> Result<()>;

    /// Adds where the state lies, and what else a captured [`apply`](Optimizer::apply) depends on.
    fn storage(&self, storage: &mut StorageSnapshot);

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the steps to come.
    fn set_lr(&mut self, lr: f64);

    /// Sets what every gradient is multiplied by first, in the steps to come; 1 until it is set. Where a loss was multiplied
    /// so that its gradients do not underflow in f16, this is one divided by that factor. It is not saved.
    fn set_grad_scale(&mut self, scale: f64);

    /// Everything the next step depends on beside the model: per parameter its moments and its number of steps
    /// (`{parameter}.{moment}`, `{parameter}.step`), and the learning rate (`lr`, the bits of an f64 as two i32). Empty
    /// before the first step, which is where an optimizer learns what device the parameters are on.
    ///
    /// # Errors
    /// Memory that could not be had.
    fn state_dict(&self) -> Result<StateDict<B>>;

    /// Continues from a saved state.
    ///
    /// # Errors
    /// Entries that are missing, unknown, or not what this optimizer saves. Nothing has changed then.
    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()>;
}

/// Compiles the functions of an optimizer.
pub(crate) fn instance<B: Backend, O: Optimizer<B> + 'static>() -> *const () {
    (std::ptr::null::<O>() as *const dyn Optimizer<B>).cast()
}

impl<B: Backend, O: Optimizer<B> + ?Sized> Optimizer<B> for Box<O> {
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()> {
        (**self).step(model, grads)
    }
    fn prepare(&mut self, model: &dyn Module<B>) -> Result<()> {
        (**self).prepare(model)
    }
    fn apply(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<Applied> {
        (**self).apply(model, grads)
    }
    fn apply_if_finite(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: &Indices<B>,
    ) -> Result<Applied> {
        (**self).apply_if_finite(model, grads, found_inf)
    }
    fn count(&mut self, applied: &Applied) {
        (**self).count(applied);
    }
    fn settle(&mut self) -> Result<()> {
        (**self).settle()
    }
    fn storage(&self, storage: &mut StorageSnapshot) {
        (**self).storage(storage);
    }
    fn lr(&self) -> f64 {
        (**self).lr()
    }
    fn set_lr(&mut self, lr: f64) {
        (**self).set_lr(lr);
    }
    fn set_grad_scale(&mut self, scale: f64) {
        (**self).set_grad_scale(scale);
    }
    fn state_dict(&self) -> Result<StateDict<B>> {
        (**self).state_dict()
    }
    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()> {
        (**self).load_state_dict(state)
    }
}

/// Refuses a hyper-parameter outside its domain.
fn check(op: &'static str, argument: &'static str, value: f64, ok: bool, expected: &str) -> Result<()> {
    if ok && value.is_finite() {
        return Ok(());
    }
    Err(crate::Error::invalid(op, argument, value, expected))
}

/// Refuses a negative, infinite or NaN hyper-parameter.
fn check_positive(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    check(op, argument, value, value >= 0.0, "a finite number, 0 or more")
}

/// Refuses a decay outside `0 ≤ value < 1`.
fn check_decay(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    check(op, argument, value, (0.0..1.0).contains(&value), "0 ≤ value < 1")
}

/// Refuses options outside their domain of a rule that keeps two moments.
fn check_moments(op: &'static str, betas: (f64, f64), eps: f64, weight_decay: f64) -> Result<()> {
    check_decay(op, "beta1", betas.0)?;
    check_decay(op, "beta2", betas.1)?;
    check_positive(op, "eps", eps)?;
    check_positive(op, "weight_decay", weight_decay)
}
