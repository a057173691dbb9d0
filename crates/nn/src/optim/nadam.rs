//! Adam with Nesterov's momentum.

use super::algorithm::{Algorithm, Update};
use super::options::optimizer;
use super::{check_moments, check_positive};
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Adam with Nesterov's momentum (Dozat 2016; `torch.optim.NAdam`).
    NAdam, NAdamRule {
        @betas(0.9, 0.999);
        /// Sets the number added to the denominator, by default 1e-8.
        eps: f64 = 1e-8,
        /// Sets the weight decay, by default 0.
        weight_decay: f64 = 0.0,
        /// Sets how fast the momentum grows to its final value, by default 0.004.
        momentum_decay: f64 = 4e-3,
        /// Lets weight decay shrink the parameter directly instead of adding to the gradient.
        decoupled_weight_decay: bool = false,
    }
}

impl NAdamRule {
    /// The momentum of a step.
    fn momentum(&self, step: u64) -> f64 {
        self.betas.0 * (1.0 - 0.5 * 0.96f64.powf(step as f64 * self.momentum_decay))
    }

    /// The product of the momenta of all steps up to this one; 0 once it no longer counts beside 1.
    fn product(&self, step: u64) -> f64 {
        let mut product = 1.0;
        for i in 1..=step {
            product *= self.momentum(i);
            if product < 1e-20 {
                return 0.0;
            }
        }
        product
    }
}

impl Algorithm for NAdamRule {
    const NAME: &'static str = "nadam";

    fn check(&self) -> Result<()> {
        check_positive(Self::NAME, "momentum_decay", self.momentum_decay)?;
        check_moments(Self::NAME, self.betas, self.eps, self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    /// The shares of the gradient and of the first moment, and the correction of the second.
    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let (now, next, product) = (self.momentum(step), self.momentum(step + 1), self.product(step));
        let second = 1.0 - self.betas.1.powf(step as f64);
        vec![
            lr,
            (1.0 - now) / (1.0 - product),
            next / (1.0 - product * next),
            1.0,
            second,
        ]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let (param, g) = u.decayed(self.decoupled_weight_decay)?;
        let m = u.mean(0, self.betas.0, &g)?;
        let v = u.mean(1, self.betas.1, &g.square()?)?;
        let direction = g.mul(&u.c[0])?.add(&m.mul(&u.c[1])?)?;
        let direction = direction.div(&v.div(&u.c[2])?.sqrt()?.add_scalar(self.eps)?)?;
        Ok((param.sub(&direction.mul(&u.lr)?)?, vec![m, v]))
    }
}
