//! Adadelta.

use super::algorithm::{Algorithm, Update};
use super::options::optimizer;
use super::{check_decay, check_positive};
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Adadelta, whose steps have the size of earlier ones (Zeiler 2012; `torch.optim.Adadelta`, whose default rate is 1).
    Adadelta, AdadeltaRule {
        /// Sets the decay of both mean squares, by default 0.9.
        rho: f64 = 0.9,
        /// Sets the number added below the roots, by default 1e-6.
        eps: f64 = 1e-6,
        /// Sets the L2 penalty, by default 0.
        weight_decay: f64 = 0.0,
    }
}

impl Algorithm for AdadeltaRule {
    const NAME: &'static str = "adadelta";

    fn check(&self) -> Result<()> {
        check_decay(Self::NAME, "rho", self.rho)?;
        check_positive(Self::NAME, "eps", self.eps)?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["square_avg", "acc_delta"]
    }

    fn scalars(&self, lr: f64, _: u64) -> Vec<f64> {
        vec![lr, 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let g = u.penalized()?;
        let square = u.mean(0, self.rho, &g.square()?)?;
        let spread = |square: &Tensor<B>| square.add_scalar(self.eps)?.sqrt();
        let delta = spread(&u.state[1])?.div(&spread(&square)?)?.mul(&g)?;
        let deltas = u.mean(1, self.rho, &delta.square()?)?;
        Ok((u.descended(&delta)?, vec![square, deltas]))
    }
}
