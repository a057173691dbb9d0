//! Resilient backpropagation.

use super::algorithm::{Algorithm, Update};
use super::options::optimizer;
use super::{check, check_positive};
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Resilient backpropagation, for gradients of all samples at once: each element has a step size of its own, which grows while its
    /// gradient keeps its sign and shrinks when it changes (Riedmiller and Braun 1993; `torch.optim.Rprop`). The learning rate is
    /// the first step size.
    Rprop, RpropRule {
        /// Sets the factors by which a step size shrinks and grows, by default 0.5 and 1.2.
        etas: (f64, f64) = (0.5, 1.2),
        /// Sets the least and the largest step size, by default 1e-6 and 50.
        step_sizes: (f64, f64) = (1e-6, 50.0),
    }
}

impl Algorithm for RpropRule {
    const NAME: &'static str = "rprop";

    fn check(&self) -> Result<()> {
        let ((shrink, grow), (least, largest)) = (self.etas, self.step_sizes);
        check(
            Self::NAME,
            "etas.0",
            shrink,
            shrink > 0.0 && shrink < 1.0,
            "between 0 and 1",
        )?;
        check(Self::NAME, "etas.1", grow, grow > 1.0, "a finite number above 1")?;
        check_positive(Self::NAME, "step_sizes.0", least)?;
        check(
            Self::NAME,
            "step_sizes.1",
            largest,
            largest >= least,
            "a finite number, step_sizes.0 or more",
        )
    }

    fn weight_decay(&self) -> f64 {
        0.0
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["prev", "step_size"]
    }

    fn initial(&self, state: &str, lr: f64) -> f64 {
        if state == "step_size" { lr } else { 0.0 }
    }

    fn scalars(&self, lr: f64, _: u64) -> Vec<f64> {
        vec![lr, 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let (prev, step) = (&u.state[0], &u.state[1]);
        let agreement = u.grad.mul(prev)?;
        let (same, other) = (agreement.gt_scalar(0.0)?, agreement.lt_scalar(0.0)?);
        let factor = step
            .full_like(1.0)?
            .masked_fill(&same, self.etas.1)?
            .masked_fill(&other, self.etas.0)?;
        let step = step.mul(&factor)?.clamp(self.step_sizes.0, self.step_sizes.1)?;
        // Where the sign has changed the element rests for this step.
        let g = u.grad.masked_fill(&other, 0.0)?;
        Ok((u.param.sub(&g.sign()?.mul(&step)?)?, vec![g, step]))
    }
}
