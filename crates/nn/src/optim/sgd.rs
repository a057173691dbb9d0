//! Stochastic gradient descent.

use super::algorithm::{Algorithm, Update};
use super::engine::Optim;
use super::{check, check_positive};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Op, OptimSlot, SgdParams};

/// Stochastic gradient descent (`torch.optim.SGD`).
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Optimizer, Sgd};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut sgd = Sgd::new(0.01).momentum(0.9).weight_decay(1e-4);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// sgd.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Sgd<B> = Optim<B, SgdRule>;

/// The options of [`Sgd`].
///
/// See the example of [`Sgd`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SgdRule {
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
}

#[compiled_once]
impl<B: Backend> Optim<B, SgdRule> {
    /// Plain gradient descent.
    ///
    /// See the example of [`Sgd`].
    pub fn new(lr: f64) -> Self {
        Optim::with(SgdRule::default(), lr)
    }

    /// Sets the momentum.
    ///
    /// See the example of [`Sgd`].
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.algorithm.momentum = momentum;
        self
    }

    /// Sets the dampening of the gradient in the momentum buffer.
    ///
    /// See the example of [`Sgd`].
    pub fn dampening(mut self, dampening: f64) -> Self {
        self.algorithm.dampening = dampening;
        self
    }

    /// Sets the L2 penalty.
    ///
    /// See the example of [`Sgd`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }

    /// Uses Nesterov's momentum, which needs a momentum and no dampening.
    ///
    /// See the example of [`Sgd`].
    pub fn nesterov(mut self, nesterov: bool) -> Self {
        self.algorithm.nesterov = nesterov;
        self
    }
}

impl Algorithm for SgdRule {
    const NAME: &'static str = "sgd";
    const FUSED: Option<Op> = Some(Op::Sgd);

    fn check(&self) -> Result<()> {
        check_positive(Self::NAME, "momentum", self.momentum)?;
        check(Self::NAME, "dampening", self.dampening, true, "a finite number")?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)?;
        let ok = !self.nesterov || (self.momentum > 0.0 && self.dampening == 0.0);
        check(
            Self::NAME,
            "momentum",
            self.momentum,
            ok,
            "more than 0, without dampening, for nesterov",
        )
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        if self.momentum != 0.0 {
            vec!["momentum_buffer"]
        } else {
            vec![]
        }
    }

    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        vec![lr, f64::from(u8::from(step == 1)), 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let g = u.penalized()?;
        let [v] = u.state else {
            return Ok((u.descended(&g)?, vec![]));
        };
        let moved = v.mul_scalar(self.momentum)?.add(&g.mul_scalar(1.0 - self.dampening)?)?;
        // The first step takes the gradient as it is.
        let v = Tensor::where_(&u.c[0].gt_scalar(0.5)?, &g, &moved)?;
        let direction = match self.nesterov {
            true => g.add(&v.mul_scalar(self.momentum)?)?,
            false => v.clone(),
        };
        Ok((u.descended(&direction)?, vec![v]))
    }

    fn fused<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()> {
        let p = SgdParams {
            momentum: self.momentum,
            dampening: self.dampening,
            weight_decay,
            nesterov: u32::from(self.nesterov),
            pad: 0,
        };
        backend.sgd(&p, scalars, slots)
    }
}
