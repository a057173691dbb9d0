//! Adagrad.

use super::algorithm::{Algorithm, Update};
use super::check_positive;
use super::engine::Optim;
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{AdagradParams, Op, OptimSlot};

/// Adagrad (Duchi et al. 2011; `torch.optim.Adagrad`).
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Adagrad, Optimizer};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut adagrad = Adagrad::new(0.01).lr_decay(0.1);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// adagrad.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Adagrad<B> = Optim<B, AdagradRule>;

/// The options of [`Adagrad`].
///
/// See the example of [`Adagrad`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradRule {
    lr_decay: f64,
    eps: f64,
    weight_decay: f64,
    initial: f64,
}

#[compiled_once]
impl<B: Backend> Optim<B, AdagradRule> {
    /// Eps 1e-10, no decay, an accumulator that starts at 0.
    ///
    /// See the example of [`Adagrad`].
    pub fn new(lr: f64) -> Self {
        let rule = AdagradRule {
            lr_decay: 0.0,
            eps: 1e-10,
            weight_decay: 0.0,
            initial: 0.0,
        };
        Optim::with(rule, lr)
    }

    /// Divides the rate of step `t` by `1 + (t − 1)·decay`.
    ///
    /// See the example of [`Adagrad`].
    pub fn lr_decay(mut self, decay: f64) -> Self {
        self.algorithm.lr_decay = decay;
        self
    }

    /// Sets what is added to the denominator.
    ///
    /// See the example of [`Adagrad`].
    pub fn eps(mut self, eps: f64) -> Self {
        self.algorithm.eps = eps;
        self
    }

    /// Sets the L2 penalty.
    ///
    /// See the example of [`Adagrad`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }

    /// Sets what the sum of squares starts with.
    ///
    /// See the example of [`Adagrad`].
    pub fn initial_accumulator(mut self, value: f64) -> Self {
        self.algorithm.initial = value;
        self
    }
}

impl Algorithm for AdagradRule {
    const NAME: &'static str = "adagrad";
    const FUSED: Option<Op> = Some(Op::Adagrad);

    fn check(&self) -> Result<()> {
        check_positive(Self::NAME, "lr_decay", self.lr_decay)?;
        check_positive(Self::NAME, "eps", self.eps)?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)?;
        check_positive(Self::NAME, "initial_accumulator", self.initial)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["sum"]
    }

    fn initial(&self, _: &str, _: f64) -> f64 {
        self.initial
    }

    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        vec![lr / (1.0 + (step - 1) as f64 * self.lr_decay), 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let g = u.penalized()?;
        let sum = u.state[0].add(&g.square()?)?;
        let direction = g.div(&sum.sqrt()?.add_scalar(self.eps)?)?;
        Ok((u.descended(&direction)?, vec![sum]))
    }

    fn fused<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()> {
        let p = AdagradParams {
            eps: self.eps,
            weight_decay,
        };
        backend.adagrad(&p, scalars, slots)
    }
}
