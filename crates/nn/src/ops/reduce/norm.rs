//! Vector norms.

use super::{Axes, acc_dtype, reduce};
use crate::autograd::{Cast, Rule, RuleContext, no_grad};
use crate::{Backend, Error, Result, Tensor};
use kiln_core::ops::{Reduce, ReduceParams};

/// ∂√(Σx²)/∂x = x/√(Σx²), and 0 where the norm is 0 (PyTorch's subgradient).
struct NormRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for NormRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let norm = cx.output().reshape(&self.axes.kept)?;
        let g = cx.grad.reshape(&self.axes.kept)?;
        let zero = norm.eq_scalar(0.0)?;
        // x is divided by the norm first, which gives at most 1: the gradient divided by a small norm could overflow half
        // precision.
        let share = self.x.div(&norm.masked_fill(&zero, 1.0)?)?;
        Ok(vec![Some(share.mul(&g.masked_fill(&zero, 0.0)?)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The vector norm of order `p` over `axes` (`torch.linalg.vector_norm`): `p` = 2 is √Σx², with gradient 0 where it
    /// is 0; `p` = 1 is Σ|x|; `p` = ∞ is max |x|, with the gradient of [`Tensor::max`]; any other `p` > 0 is
    /// (Σ|x|ᵖ)^(1/p), with gradient 0 where `x` is 0. `p` = 0 counts the elements that are not 0, without a gradient; `p` = −∞ is
    /// min |x|; any other `p` < 0 is (Σ|x|ᵖ)^(1/p) too, and 0 with gradient 0 where an element is 0.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[3f32, -4.0], &[2])?;
    /// assert_eq!(x.norm(2.0, &[], false)?.item()?, 5.0);
    /// assert_eq!(x.norm(1.0, &[], false)?.item()?, 7.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An order that is NaN; an axis out of range or named twice; an empty maximum, and a norm of nothing of an order below 0.
    pub fn norm(&self, p: f64, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.norm(p, axes, keep_dim);
        }
        match p {
            2.0 => {
                let wide = no_grad(|| self.to_dtype(acc_dtype(self.dtype())))?;
                let (squares, axes) = reduce("norm", Reduce::SumSquares, &wide, axes, keep_dim)?;
                let y = no_grad(|| squares.sqrt()?.to_dtype(self.dtype()))?;
                Ok(y.record("norm", &[self], || NormRule { axes, x: self.clone() }))
            }
            1.0 => self.abs()?.sum(axes, keep_dim),
            0.0 => {
                let marks = self.ne_scalar(0.0)?.to_float(acc_dtype(self.dtype()))?;
                marks.sum(axes, keep_dim)?.to_dtype(self.dtype())
            }
            f64::INFINITY => self.magnitude()?.max(axes, keep_dim),
            f64::NEG_INFINITY => self.magnitude()?.min(axes, keep_dim),
            p if p > 0.0 => self.power_norm(p, axes, keep_dim),
            p if p < 0.0 => {
                ReduceParams::new("norm", Reduce::Min, self.shape(), axes, keep_dim)?;
                let zero = self.eq_scalar(0.0)?.any(axes, keep_dim)?;
                self.power_norm(p, axes, keep_dim)?.masked_fill(&zero, 0.0)
            }
            _ => Err(Error::invalid("norm", "p", p, "a number")),
        }
    }

    /// (Σ|x|ᵖ)^(1/p). Powers are taken with zeros replaced by ones: at 0 the derivative does not exist, or leads to 0·∞.
    fn power_norm(&self, p: f64, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let power = |x: &Tensor<B>, exponent: f64| -> Result<Tensor<B>> {
            let zero = x.eq_scalar(0.0)?;
            x.masked_fill(&zero, 1.0)?.powf(exponent)?.masked_fill(&zero, 0.0)
        };
        let x = self.to_dtype(acc_dtype(self.dtype()))?;
        let sum = power(&x.abs()?, p)?.sum(axes, keep_dim)?;
        power(&sum, 1.0 / p)?.to_dtype(self.dtype())
    }

    /// |x|, which passes no gradient on where x is NaN; x itself does.
    fn magnitude(&self) -> Result<Tensor<B>> {
        Tensor::where_(&self.ne(self)?, self, &self.abs()?)
    }
}
