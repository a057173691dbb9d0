//! RMSprop.

use super::engine::{Algorithm, Optim};
use super::{check_decay, check_positive};
use crate::{Backend, Result};
use kiln_core::ops::{OptimSlot, RmspropParams};

/// RMSprop (Tieleman and Hinton 2012; `torch.optim.RMSprop`).
pub type Rmsprop<B> = Optim<B, RmspropRule>;

/// The options of [`Rmsprop`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmspropRule {
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

impl<B: Backend> Optim<B, RmspropRule> {
    /// Alpha 0.99 and eps 1e-8, no momentum.
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
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.algorithm.alpha = alpha;
        self
    }

    /// Sets what is added to the denominator.
    pub fn eps(mut self, eps: f64) -> Self {
        self.algorithm.eps = eps;
        self
    }

    /// Sets the L2 penalty.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.algorithm.weight_decay = weight_decay;
        self
    }

    /// Sets the momentum.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.algorithm.momentum = momentum;
        self
    }

    /// Normalises by the variance instead of the mean square.
    pub fn centered(mut self, centered: bool) -> Self {
        self.algorithm.centered = centered;
        self
    }
}

impl Algorithm for RmspropRule {
    const NAME: &'static str = "rmsprop";

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

    fn scalars(&self, lr: f64, _: u64) -> [f64; 4] {
        [lr, 0.0, 0.0, 1.0]
    }

    fn update<B: Backend>(
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
