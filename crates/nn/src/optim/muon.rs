//! Muon.

use super::algorithm::{Algorithm, Update};
use super::options::optimizer;
use super::{check, check_decay, check_positive};
use crate::{Backend, Error, Result, Tensor};

/// The factor by which [`Muon`] adapts the learning rate to the shape `[rows, columns]` of a parameter (`adjust_lr_fn`).
///
/// See the example of [`Muon`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MuonRate {
    /// √max(1, rows/columns), as Jordan et al. have it.
    #[default]
    Original,
    /// 0.2·√max(rows, columns), by which rates and weight decays of AdamW can be kept (Liu et al. 2025).
    MatchRmsAdamw,
    /// √(rows/columns) (Bernstein 2025).
    SpectralUnclamped,
}

/// The coefficients of the iteration, which were chosen for its slope at zero.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

optimizer! {
    /// Muon, for the matrices of hidden layers: steps in the direction of the nearest orthogonal matrix to the average of gradients,
    /// by a Newton–Schulz iteration (Jordan et al. 2024; `torch.optim.Muon`, which iterates in bf16; here it is the precision of
    /// arithmetic). A parameter of more dimensions is a matrix of its first dimension and all others. Vectors are refused: they are
    /// for another optimizer, which [`Gradients::take`](crate::Gradients::take) gives their gradients.
    Muon, MuonRule {
        /// Sets the decay of the average of gradients, by default 0.95.
        momentum: f64 = 0.95,
        /// Looks one step of the average ahead, by default.
        nesterov: bool = true,
        /// Sets the number of iterations (`ns_steps`), by default 5.
        steps: usize = 5,
        /// Sets how the rate depends on a parameter's shape, by default [`MuonRate::Original`].
        adjust: MuonRate = MuonRate::Original,
        /// Sets the decoupled weight decay, by default 0.1.
        weight_decay: f64 = 0.1,
    }
}

impl MuonRate {
    fn factor(self, rows: f64, columns: f64) -> f64 {
        match self {
            MuonRate::Original => (rows / columns).max(1.0).sqrt(),
            MuonRate::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
            MuonRate::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

/// The orthogonal matrix nearest to `x`, roughly: its singular values become numbers from about 0.7 to 1.2.
fn orthogonal<B: Backend>(x: &Tensor<B>, steps: usize) -> Result<Tensor<B>> {
    let tall = x.shape()[0] > x.shape()[1];
    let mut x = if tall { x.transpose(0, 1)? } else { x.clone() };
    x = x.div(&x.norm(2.0, &[], false)?.clamp_min(1e-7)?)?;
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..steps {
        let gram = x.matmul_t(&x, false, true)?;
        let update = gram.mul_scalar(b)?.add(&gram.matmul(&gram)?.mul_scalar(c)?)?;
        x = x.mul_scalar(a)?.add(&update.matmul(&x)?)?;
    }
    if tall { x.transpose(0, 1) } else { Ok(x) }
}

impl Algorithm for MuonRule {
    const NAME: &'static str = "muon";

    fn check(&self) -> Result<()> {
        check_decay(Self::NAME, "momentum", self.momentum)?;
        check(Self::NAME, "steps", self.steps as f64, self.steps < 100, "below 100")?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["momentum_buffer"]
    }

    fn scalars(&self, lr: f64, _: u64) -> Vec<f64> {
        vec![lr, 0.0, 0.0, 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        if u.param.rank() < 2 {
            return Err(Error::Rank {
                op: Self::NAME,
                expected: "2 or more; another optimizer serves vectors and scalars",
                rank: u.param.rank(),
            });
        }
        if u.param.size() == 0 {
            return Ok((u.param.clone(), u.state.to_vec()));
        }
        let average = u.mean(0, self.momentum, u.grad)?;
        let direction = match self.nesterov {
            true => u
                .grad
                .mul_scalar(1.0 - self.momentum)?
                .add(&average.mul_scalar(self.momentum)?)?,
            false => average.clone(),
        };
        let flat = direction.flatten(1, -1)?;
        let factor = self.adjust.factor(flat.shape()[0] as f64, flat.shape()[1] as f64);
        let update = orthogonal(&flat, self.steps)?.reshape(u.param.shape())?;
        let (param, _) = u.decayed(true)?;
        Ok((param.sub(&update.mul(&u.lr.mul_scalar(factor)?)?)?, vec![average]))
    }
}
