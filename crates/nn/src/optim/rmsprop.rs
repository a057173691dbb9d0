//! RMSprop.

use super::algorithm::{Algorithm, Update};
use super::engine::Optim;
use super::{check_decay, check_positive};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Op, OptimSlot, RmspropParams};

/// RMSprop (Tieleman and Hinton 2012; `torch.optim.RMSprop`).
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor};
/// use kiln_nn::optim::{Optimizer, Rmsprop};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// let mut rmsprop = Rmsprop::new(1e-3).momentum(0.9).centered(true);
/// let loss = model.forward(&x)?.square()?.mean(&[], false)?;
/// rmsprop.step(&mut model, &loss.backward()?)?;
/// assert!(model.forward(&x)?.square()?.mean(&[], false)?.item()? < loss.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Rmsprop<B> = Optim<B, RmspropRule>;

/// The options of [`Rmsprop`].
///
/// See the example of [`Rmsprop`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmspropRule {
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

#[compiled_once]
impl<B: Backend> Optim<B, RmspropRule> {
    /// Alpha 0.99 and eps 1e-8, no momentum.
    ///
    /// See the example of [`Rmsprop`].
    pub fn new(lr: f64) -> Self {
        let rule = RmspropRule {
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
        };
        Optim::with(rule, lr)
    }

    /// Sets the smoothing of the mean square.
    ///
    /// See the example of [`Rmsprop`].
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.algorithm.alpha = alpha;
        self
    }

    /// Sets what is added to the denominator.
    ///
    /// See the example of [`Rmsprop`].
    pub fn eps(mut self, eps: f64) -> Self {
        self.algorithm.eps = eps;
        self
    }

    /// Sets the L2 penalty.
    ///
    /// See the example of [`Rmsprop`].
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }

    /// Sets the momentum.
    ///
    /// See the example of [`Rmsprop`].
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.algorithm.momentum = momentum;
        self
    }

    /// Normalises by the variance instead of the mean square.
    ///
    /// See the example of [`Rmsprop`].
    pub fn centered(mut self, centered: bool) -> Self {
        self.algorithm.centered = centered;
        self
    }
}

impl Algorithm for RmspropRule {
    const NAME: &'static str = "rmsprop";
    const FUSED: Option<Op> = Some(Op::Rmsprop);

    fn check(&self) -> Result<()> {
        check_decay(Self::NAME, "alpha", self.alpha)?;
        check_positive(Self::NAME, "eps", self.eps)?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)?;
        check_positive(Self::NAME, "momentum", self.momentum)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        let mut names = vec!["square_avg"];
        if self.momentum != 0.0 {
            names.push("momentum_buffer");
        }
        if self.centered {
            names.push("grad_avg");
        }
        names
    }

    fn scalars(&self, lr: f64, _: u64) -> Vec<f64> {
        vec![lr, 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let g = u.penalized()?;
        let square = u.mean(0, self.alpha, &g.square()?)?;
        let mut state = vec![square.clone()];
        let mut variance = square;
        let mean = match self.centered {
            true => Some(u.mean(u.state.len() - 1, self.alpha, &g)?),
            false => None,
        };
        if let Some(mean) = &mean {
            // Rounding can put it below zero.
            variance = variance.sub(&mean.square()?)?.clamp_min(0.0)?;
        }
        let mut direction = g.div(&variance.sqrt()?.add_scalar(self.eps)?)?;
        if self.momentum != 0.0 {
            direction = u.state[1].mul_scalar(self.momentum)?.add(&direction)?;
            state.push(direction.clone());
        }
        state.extend(mean);
        Ok((u.descended(&direction)?, state))
    }

    fn fused<B: Backend>(
        &self,
        weight_decay: f64,
        backend: &B,
        scalars: &B::Buffer,
        slots: &mut [OptimSlot<'_, B::Buffer>],
    ) -> Result<()> {
        let p = RmspropParams {
            alpha: self.alpha,
            eps: self.eps,
            weight_decay,
            momentum: self.momentum,
            centered: u32::from(self.centered),
            pad: 0,
        };
        backend.rmsprop(&p, scalars, slots)
    }
}
