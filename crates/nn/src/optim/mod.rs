//! Optimizers, clipping and schedules.
//!
//! Formulas and defaults are those of `torch.optim`. Parameters change in place; everything that changes from step to
//! step reaches the device in one small block per group of parameters.

mod adagrad;
mod adam;
mod clip;
mod engine;
mod plateau;
mod rmsprop;
mod schedule;
mod sgd;

pub use adagrad::{Adagrad, AdagradRule};
pub use adam::{Adam, AdamRule, AdamW};
pub use engine::{Algorithm, Group, Optim};
pub use plateau::{PlateauState, ReduceOnPlateau};
pub use rmsprop::{Rmsprop, RmspropRule};
pub use schedule::Schedule;
pub use sgd::{Sgd, SgdRule};

use crate::module::StateDict;
use crate::{Backend, Gradients, Module, Result};

/// Something that changes a model's parameters by their gradients.
pub trait Optimizer<B: Backend>: Send {
    /// Updates every trainable parameter of `model` in place.
    ///
    /// # Errors
    /// [`Error::MissingGradient`](crate::Error::MissingGradient) for a trainable parameter without a gradient, unless
    /// the optimizer was told to skip those; hyper-parameters outside their domain; a gradient of another shape or
    /// dtype. Nothing has changed then.
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()>;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Sets the learning rate of the steps to come.
    fn set_lr(&mut self, lr: f64);

    /// Everything the next step depends on beside the model: per parameter its moments and its number of steps
    /// (`{parameter}.{moment}`, `{parameter}.step`), and the learning rate (`lr`, the bits of an f64 as two i32). Empty
    /// before the first step, which is where an optimizer learns what device the parameters are on.
    ///
    /// # Errors
    /// Memory.
    fn state_dict(&self) -> Result<StateDict<B>>;

    /// Continues from a saved state.
    ///
    /// # Errors
    /// Entries that are missing, unknown, or not what this optimizer saves. Nothing has changed then.
    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()>;
}

impl<B: Backend, O: Optimizer<B> + ?Sized> Optimizer<B> for Box<O> {
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()> {
        (**self).step(model, grads)
    }
    fn lr(&self) -> f64 {
        (**self).lr()
    }
    fn set_lr(&mut self, lr: f64) {
        (**self).set_lr(lr);
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
