//! Adam with the infinity norm.

use super::algorithm::{Algorithm, Update};
use super::check_moments;
use super::options::optimizer;
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Adam with the infinity norm in place of the second moment (Kingma and Ba 2015, section 7; `torch.optim.Adamax`).
    Adamax, AdamaxRule {
        @betas(0.9, 0.999);
        /// Sets the number added to the magnitude of gradients, by default 1e-8.
        eps: f64 = 1e-8,
        /// Sets the L2 penalty, by default 0.
        weight_decay: f64 = 0.0,
    }
}

impl Algorithm for AdamaxRule {
    const NAME: &'static str = "adamax";

    fn check(&self) -> Result<()> {
        check_moments(Self::NAME, self.betas, self.eps, self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_inf"]
    }

    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        vec![lr / (1.0 - self.betas.0.powf(step as f64)), 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let g = u.penalized()?;
        let m = u.mean(0, self.betas.0, &g)?;
        let largest = u.state[1]
            .mul_scalar(self.betas.1)?
            .maximum(&g.abs()?.add_scalar(self.eps)?)?;
        Ok((u.descended(&m.div(&largest)?)?, vec![m, largest]))
    }
}
