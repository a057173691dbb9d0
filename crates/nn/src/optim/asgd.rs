//! Averaged stochastic gradient descent.

use super::algorithm::{Algorithm, Update};
use super::check_positive;
use super::options::optimizer;
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Averaged stochastic gradient descent (Polyak and Juditsky 1992; `torch.optim.ASGD`). The mean of the parameters since step
    /// `t0` is the state `ax`.
    Asgd, AsgdRule {
        /// Sets the decay of the parameters and of the rate, by default 1e-4.
        lambd: f64 = 1e-4,
        /// Sets the power by which the rate decays, by default 0.75.
        alpha: f64 = 0.75,
        /// Sets the step at which the mean begins, by default 1e6.
        t0: f64 = 1e6,
        /// Sets the L2 penalty, by default 0.
        weight_decay: f64 = 0.0,
    }
}

impl Algorithm for AsgdRule {
    const NAME: &'static str = "asgd";

    fn check(&self) -> Result<()> {
        check_positive(Self::NAME, "lambd", self.lambd)?;
        check_positive(Self::NAME, "alpha", self.alpha)?;
        check_positive(Self::NAME, "t0", self.t0)?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["ax"]
    }

    /// The share of the parameter that is left, and the share of the new one in the mean.
    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let before = (step - 1) as f64;
        let rate = lr / (1.0 + self.lambd * lr * before).powf(self.alpha);
        vec![rate, 1.0 - self.lambd * rate, 1.0 / (before - self.t0).max(1.0), 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let param = u.param.mul(&u.c[0])?.sub(&u.penalized()?.mul(&u.lr)?)?;
        let mean = u.state[0].add(&param.sub(&u.state[0])?.mul(&u.c[1])?)?;
        Ok((param, vec![mean]))
    }
}
