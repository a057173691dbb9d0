//! Adam with a rate for each layer.

use super::algorithm::{Algorithm, Update};
use super::check_moments;
use super::options::optimizer;
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Adam whose step of each parameter is as long as the parameter, for large batches (You et al. 2020, algorithm 2, with the norm
    /// itself as φ).
    Lamb, LambRule {
        @betas(0.9, 0.999);
        /// Sets the number added to the denominator, by default 1e-6.
        eps: f64 = 1e-6,
        /// Sets the weight decay, which is part of the direction, by default 0.
        weight_decay: f64 = 0.0,
    }
}

impl Algorithm for LambRule {
    const NAME: &'static str = "lamb";

    fn check(&self) -> Result<()> {
        check_moments(Self::NAME, self.betas, self.eps, self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let corrected = |beta: f64| 1.0 - beta.powf(step as f64);
        vec![lr, corrected(self.betas.0), corrected(self.betas.1), 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let m = u.mean(0, self.betas.0, u.grad)?;
        let v = u.mean(1, self.betas.1, &u.grad.square()?)?;
        let spread = v.div(&u.c[1])?.sqrt()?.add_scalar(self.eps)?;
        let direction = m.div(&u.c[0])?.div(&spread)?;
        let direction = direction.add(&u.param.mul_scalar(u.weight_decay)?)?;
        let norm = |x: &Tensor<B>| x.norm(2.0, &[], false);
        let (length, own) = (norm(&direction)?, norm(u.param)?);
        // Of a parameter or a direction that is zero there is no ratio: it is 1.
        let none = length.mul(&own)?.eq_scalar(0.0)?;
        let trust = own.div(&length.masked_fill(&none, 1.0)?)?.masked_fill(&none, 1.0)?;
        Ok((u.descended(&direction.mul(&trust)?)?, vec![m, v]))
    }
}
