//! Adafactor.

use super::algorithm::{Algorithm, Update};
use super::options::optimizer;
use super::{check, check_positive};
use crate::{Backend, DType, Result, Shape, Tensor};

optimizer! {
    /// Adafactor, which keeps of a matrix's second moments the means of rows and of columns alone (Shazeer and Stern 2018;
    /// `torch.optim.Adafactor`, whose default rate is 0.01).
    Adafactor, AdafactorRule {
        /// Sets the power of the step by which the second moments' decay grows to 1, by default -0.8.
        beta2_decay: f64 = -0.8,
        /// Sets the least root of a second moment (by default the distance from 1 to the next number of the precision of
        /// arithmetic) and the least root mean square of a parameter (by default 1e-3).
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// Sets the root mean square from which on updates are clipped, by default 1.
        d: f64 = 1.0,
        /// Sets the decoupled weight decay, by default 0.
        weight_decay: f64 = 0.0,
    }
}

/// The root mean square of all elements, `[]`.
fn root_mean_square<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    x.norm(2.0, &[], false)?.mul_scalar((x.size() as f64).sqrt().recip())
}

impl Algorithm for AdafactorRule {
    const NAME: &'static str = "adafactor";

    fn check(&self) -> Result<()> {
        check(
            Self::NAME,
            "beta2_decay",
            self.beta2_decay,
            self.beta2_decay <= 0.0,
            "a finite number, 0 or less",
        )?;
        check_positive(Self::NAME, "eps.0", self.eps.0.unwrap_or(0.0))?;
        check_positive(Self::NAME, "eps.1", self.eps.1)?;
        check(Self::NAME, "d", self.d, self.d >= 1.0, "a finite number, 1 or more")?;
        check_positive(Self::NAME, "weight_decay", self.weight_decay)
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn states(&self) -> Vec<&'static str> {
        vec!["row_var", "col_var", "variance"]
    }

    fn state_shape(&self, state: &str, param: &Shape) -> Shape {
        let rank = param.rank();
        let none = Shape::new(&[0]).unwrap_or_default();
        match state {
            "variance" if rank < 2 => *param,
            "row_var" if rank > 1 => param.with(rank - 1, 1).unwrap_or(none),
            "col_var" if rank > 1 => param.with(rank - 2, 1).unwrap_or(none),
            _ => none,
        }
    }

    /// The relative step size, and the share of a new second moment.
    fn scalars(&self, lr: f64, step: u64) -> Vec<f64> {
        let t = step as f64;
        vec![lr, lr.min(t.sqrt().recip()), t.powf(self.beta2_decay), 1.0]
    }

    fn step<B: Backend>(&self, u: &Update<'_, B>) -> Result<(Tensor<B>, Vec<Tensor<B>>)> {
        let machine = if u.param.dtype() == DType::F64 {
            f64::EPSILON
        } else {
            f64::from(f32::EPSILON)
        };
        let eps = self.eps.0.unwrap_or(machine);
        let square = u.grad.square()?;
        let mean = |i: usize, x: &Tensor<B>| u.state[i].add(&x.sub(&u.state[i])?.mul(&u.c[1])?);
        let mut state = u.state.to_vec();
        let moment = match u.param.rank() {
            0 | 1 => {
                state[2] = mean(2, &square)?;
                state[2].clone()
            }
            _ => {
                state[0] = mean(0, &square.mean(&[-1], true)?)?;
                state[1] = mean(1, &square.mean(&[-2], true)?)?;
                let rows = state[0].mean(&[-2], true)?.clamp_min(eps)?;
                state[0].matmul(&state[1])?.div(&rows)?
            }
        };
        let update = moment.clamp_min(eps * eps)?.rsqrt()?.mul(u.grad)?;
        let clip = root_mean_square(&update)?.mul_scalar(self.d.recip())?.clamp_min(1.0)?;
        let size = root_mean_square(u.param)?.clamp_min(self.eps.1)?.mul(&u.c[0])?;
        let (param, _) = u.decayed(true)?;
        Ok((param.sub(&update.mul(&size.div(&clip)?)?)?, state))
    }
}
