//! Adam and AdamW.

use super::algorithm::{Algorithm, Update};
use super::check_moments;
use super::engine::Optim;
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{AdamParams, Op, OptimSlot};

/// Adam (Kingma and Ba 2015; `torch.optim.Adam`): weight decay adds to the gradient.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Adam, Optimizer};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut adam = Adam::new(1e-2).betas(0.9, 0.99);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// adam.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Adam<B> = Optim<B, AdamRule<false>>;

/// AdamW (Loshchilov and Hutter 2019; `torch.optim.AdamW`): weight decay shrinks the parameter directly, by default
/// with 0.01.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{AdamW, Optimizer};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut adamw = AdamW::new(1e-2).weight_decay(0.05);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// adamw.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type AdamW<B> = Optim<B, AdamRule<true>>;

/// The options of [`Adam`] and, when decoupled, of [`AdamW`].
///
/// See the example of [`Adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamRule<const DECOUPLED: bool> {
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    amsgrad: bool,
}

impl<B: Backend, const DECOUPLED: bool> Optim<B, AdamRule<DECOUPLED>> {
    /// Betas (0.9, 0.999) and eps 1e-8.
    ///
    /// See the example of [`Adam`].
    pub fn new(lr: f64) -> Self {
        let rule = AdamRule {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: if DECOUPLED { 0.01 } else { 0.0 },
            amsgrad: false,
        };
        Optim::with(rule, lr)
    }

    /// Sets the decay of the first and of the second moment.
    ///
    /// See the example of [`Adam`].
    pub fn betas(mut self, first: f64, second: f64) -> Self {
        self.algorithm.betas = (first, second);
        self
    }

    /// Sets what is added to the denominator.
    ///
    /// See the example of [`Adam`].
    pub fn eps(mut self, eps: f64) -> Self {
        self.algorithm.eps = eps;
        self
    }

    /// Sets the weight decay.
    ///
    /// See the example of [`AdamW`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }

    /// Divides by the largest second moment so far (Reddi et al. 2018).
    ///
    /// See the example of [`Adam`].
    pub fn amsgrad(mut self, amsgrad: bool) -> Self {
        self.algorithm.amsgrad = amsgrad;
        self
    }
}

impl<const DECOUPLED: bool> Algorithm for AdamRule<DECOUPLED> {
    const NAME: &'static str = if DECOUPLED { "adamw" } else { "adam" };
    const FUSED: Option<Op> = Some(Op::Adam);

    fn check(&self) -> Result<()> {
        check_moments(Self::NAME, self.betas, self.eps, self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        let mut names = vec!["exp_avg", "exp_avg_sq"];
        if self.amsgrad {
            names.push("max_exp_avg_sq");
        }
        names
    }

    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let corrected = |beta: f64| 1.0 - beta.powf(step as f64);
        vec![lr, corrected(self.betas.0), corrected(self.betas.1).sqrt(), 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let (param, g) = u.decayed(DECOUPLED)?;
        let m = u.mean(0, self.betas.0, &g)?;
        let v = u.mean(1, self.betas.1, &g.square()?)?;
        let mut state = vec![m.clone(), v.clone()];
        let mut largest = v;
        if self.amsgrad {
            largest = largest.maximum(&u.state[2])?;
            state.push(largest.clone());
        }
        let spread = largest.sqrt()?.div(&u.c[1])?.add_scalar(self.eps)?;
        let rate = u.lr.div(&u.c[0])?;
        Ok((param.sub(&m.div(&spread)?.mul(&rate)?)?, state))
    }

    fn fused<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()> {
        let p = AdamParams {
            beta1: self.betas.0,
            beta2: self.betas.1,
            eps: self.eps,
            weight_decay,
            decoupled: u32::from(DECOUPLED),
            amsgrad: u32::from(self.amsgrad),
        };
        backend.adam(&p, scalars, slots)
    }
}
