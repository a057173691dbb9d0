//! Adam with a rectified rate.

use super::algorithm::{Algorithm, Update};
use super::check_moments;
use super::options::optimizer;
use crate::{Backend, Result, Tensor};

optimizer! {
    /// Adam that warms up by itself: its first steps leave out the second moment, whose variance is still large (Liu et al. 2020;
    /// `torch.optim.RAdam`).
    RAdam, RAdamRule {
        @betas(0.9, 0.999);
        /// Sets the number added to the denominator, by default 1e-8.
        eps: f64 = 1e-8,
        /// Sets the weight decay, by default 0.
        weight_decay: f64 = 0.0,
        /// Lets weight decay shrink the parameter directly instead of adding to the gradient.
        decoupled_weight_decay: bool = false,
    }
}

impl Algorithm for RAdamRule {
    const NAME: &'static str = "radam";

    fn check(&self) -> Result<()> {
        check_moments(Self::NAME, self.betas, self.eps, self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    /// The correction of the first moment, and the rectification with that of the second: 0 while there is none.
    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let t = step as f64;
        let power = self.betas.1.powf(t);
        let longest = 2.0 / (1.0 - self.betas.1) - 1.0;
        let length = longest - 2.0 * t * power / (1.0 - power);
        let rectification = match length > 5.0 {
            true => ((length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)).sqrt(),
            false => 0.0,
        };
        vec![
            lr,
            1.0 - self.betas.0.powf(t),
            rectification * (1.0 - power).sqrt(),
            1.0,
        ]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let (param, g) = u.decayed(self.decoupled_weight_decay)?;
        let m = u.mean(0, self.betas.0, &g)?;
        let v = u.mean(1, self.betas.1, &g.square()?)?;
        let direction = m.div(&u.c[0])?;
        let adaptive = direction.mul(&u.c[1])?.div(&v.sqrt()?.add_scalar(self.eps)?)?;
        let direction = Tensor::where_(&u.c[1].gt_scalar(0.0)?, &adaptive, &direction)?;
        Ok((param.sub(&direction.mul(&u.lr)?)?, vec![m, v]))
    }
}
