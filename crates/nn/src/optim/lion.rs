//! Lion.

use super::algorithm::{Algorithm, Update};
use super::engine::Optim;
use super::{check_decay, check_positive};
use crate::{Backend, Result, Tensor};

/// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): steps of one size in the direction of the sign of
/// an average of gradients, `p −= lr·(sign(β₁·m + (1 − β₁)·g) + weight_decay·p)`, `m = β₂·m + (1 − β₂)·g`. It keeps half the state of
/// AdamW, and wants a rate three to ten times smaller.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Lion, Optimizer};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut lion = Lion::new(1e-3).weight_decay(0.1);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// lion.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Lion<B> = Optim<B, LionRule>;

/// The options of [`Lion`].
///
/// See the example of [`Lion`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionRule {
    betas: (f64, f64),
    weight_decay: f64,
}

#[compiled_once]
impl<B: Backend> Optim<B, LionRule> {
    /// Betas (0.9, 0.99) and no weight decay.
    ///
    /// See the example of [`Lion`].
    pub fn new(lr: f64) -> Self {
        let rule = LionRule {
            betas: (0.9, 0.99),
            weight_decay: 0.0,
        };
        Optim::with(rule, lr)
    }

    /// Sets the weight of the average in a step, and the decay of the average.
    ///
    /// See the example of [`Lion`].
    pub fn betas(mut self, step: f64, average: f64) -> Self {
        self.algorithm.betas = (step, average);
        self
    }

    /// Sets the weight decay, which shrinks the parameter directly.
    ///
    /// See the example of [`Lion`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }
}

impl Algorithm for LionRule {
    const NAME: &'static str = "lion";

    fn check(&self) -> Result<()> {
        check_decay(Self::NAME, "beta1", self.betas.0)?;
        check_decay(Self::NAME, "beta2", self.betas.1)?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["exp_avg"]
    }

    fn scalars(&self, lr: f64, _: u64) -> Vec<f64> {
        vec![lr, 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let direction = u.mean(0, self.betas.0, u.grad)?.sign()?;
        let shrunk = u.param.mul_scalar(u.weight_decay)?;
        let param = u.descended(&direction.add(&shrunk)?)?;
        Ok((param, vec![u.mean(0, self.betas.1, u.grad)?]))
    }
}
