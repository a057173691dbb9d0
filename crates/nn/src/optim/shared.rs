//! One optimizer in several hands.

use super::{Applied, Optimizer};
use crate::module::StateDict;
use crate::{Backend, Gradients, Indices, Module, Result, StorageSnapshot};
use std::sync::{Arc, Mutex, MutexGuard};

/// A handle to an optimizer that has several: each step of one of them is a step of the same optimizer, with the same state. Two losses
/// of the same parameters that are followed in turn share Adam's moments so, such as the loss of a discriminator and a penalty that is
/// computed in some steps alone (the lazy regularisation of StyleGAN2, Karras et al. 2020).
///
/// The learning rate is one for all of them too. Where each is saved, the state is saved as often.
///
/// ```
/// use kiln_nn::optim::{Adam, Optimizer, SharedOptimizer};
/// use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut layer = Linear::new(&mut Init::new(&cpu, 0), 2, 1)?;
/// let mut one = SharedOptimizer::new(Adam::new(1e-3));
/// let mut other = one.clone();
/// let loss = layer.forward(&Tensor::ones(&cpu, &[1, 2], DType::F32)?)?.mean(&[], false)?;
/// one.step(&mut layer, &loss.backward()?)?;
/// assert!(other.state_dict()?.float("weight.exp_avg").is_some());
/// other.set_lr(0.5);
/// assert_eq!(one.lr(), 0.5);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct SharedOptimizer<B: Backend>(Arc<Mutex<dyn Optimizer<B>>>);

impl<B: Backend> SharedOptimizer<B> {
    /// The first handle to an optimizer.
    ///
    /// See the example of [`SharedOptimizer`].
    pub fn new(optimizer: impl Optimizer<B> + 'static) -> Self {
        SharedOptimizer(Arc::new(Mutex::new(optimizer)))
    }

    /// The optimizer. A call that panicked leaves it as any other call that panics does.
    fn held(&self) -> MutexGuard<'_, dyn Optimizer<B> + 'static> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<B: Backend> Clone for SharedOptimizer<B> {
    /// Another handle to the same optimizer.
    fn clone(&self) -> Self {
        SharedOptimizer(self.0.clone())
    }
}

impl<B: Backend> std::fmt::Debug for SharedOptimizer<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedOptimizer")
            .field("handles", &Arc::strong_count(&self.0))
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Optimizer<B> for SharedOptimizer<B> {
    fn step(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<()> {
        self.held().step(model, grads)
    }
    fn prepare(&mut self, model: &dyn Module<B>) -> Result<()> {
        self.held().prepare(model)
    }
    fn apply(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<Applied> {
        self.held().apply(model, grads)
    }
    fn apply_if_finite(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: &Indices<B>,
    ) -> Result<Applied> {
        self.held().apply_if_finite(model, grads, found_inf)
    }
    fn count(&mut self, applied: &Applied) {
        self.held().count(applied);
    }
    fn settle(&mut self) -> Result<()> {
        self.held().settle()
    }
    fn storage(&self, storage: &mut StorageSnapshot) {
        self.held().storage(storage);
    }
    fn lr(&self) -> f64 {
        self.held().lr()
    }
    fn set_lr(&mut self, lr: f64) {
        self.held().set_lr(lr);
    }
    fn set_grad_scale(&mut self, scale: f64) {
        self.held().set_grad_scale(scale);
    }
    fn state_dict(&self) -> Result<StateDict<B>> {
        self.held().state_dict()
    }
    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()> {
        self.held().load_state_dict(state)
    }
}
