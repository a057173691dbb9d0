//! Reductions over axes, and searches and running sums along one.
//!
//! Axes may count from the end; an empty list means every axis. With `keep_dim` a reduced axis stays with size 1.

use crate::autograd::{Rule, RuleContext, no_grad};
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{AxisParams, Reduce, ReduceParams};

/// Where a reduction came from.
struct Axes {
    from: Shape,
    /// The shape of the result with reduced axes of size 1.
    kept: Shape,
}

impl Axes {
    fn expand<B: Backend>(&self, reduced: &Tensor<B>) -> Result<Tensor<B>> {
        reduced.reshape(&self.kept)?.broadcast_to(&self.from)
    }
}

/// The gradient of a sum reaches every term; a mean scales it.
struct SumRule {
    axes: Axes,
    scale: f64,
}

impl<B: Backend> Rule<B> for SumRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let g = match self.scale {
            1.0 => cx.grad.clone(),
            scale => cx.grad.mul_scalar(scale)?,
        };
        Ok(vec![Some(self.axes.expand(&g)?)])
    }
}

/// The gradient of an extreme value, shared equally among the elements that attain it (`torch.amax`).
struct ExtremeRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for ExtremeRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let extreme = cx.output().detach().reshape(&self.axes.kept)?;
        let hit = self.x.detach().eq(&extreme)?.to_float(self.x.dtype())?;
        let count = hit.sum_to_size(&self.axes.kept)?;
        let share = cx.grad.reshape(&self.axes.kept)?.div(&count)?;
        Ok(vec![Some(hit.mul(&share)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// ∂√(Σx²)/∂x = x/√(Σx²), and 0 where the norm is 0 (PyTorch's subgradient).
struct NormRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for NormRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let norm = cx.output().reshape(&self.axes.kept)?;
        let zero = norm.eq_scalar(0.0)?;
        let ratio = cx.grad.reshape(&self.axes.kept)?.div(&norm.masked_fill(&zero, 1.0)?)?;
        Ok(vec![Some(self.x.mul(&ratio.masked_fill(&zero, 0.0)?)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// ∂ln Σeˣ/∂x = e^(x − y).
struct LogSumExpRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for LogSumExpRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let y = cx.output().reshape(&self.axes.kept)?;
        // Where every term is −∞ the share of each is 0, not −∞ + ∞.
        let y = y.masked_fill(&y.eq_scalar(f64::NEG_INFINITY)?, 0.0)?;
        let share = self.x.sub(&y)?.exp()?;
        Ok(vec![Some(share.mul(&cx.grad.reshape(&self.axes.kept)?)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The gradient of a running sum is a running sum from the other end.
struct CumsumRule {
    axis: isize,
    reverse: bool,
}

impl<B: Backend> Rule<B> for CumsumRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cumsum(cx.grad, self.axis, !self.reverse)?)])
    }
}

/// The gradient of values picked along an axis goes back to where they were.
struct TopKRule<B: Backend> {
    axis: isize,
    from: Shape,
    index: Indices<B>,
}

impl<B: Backend> Rule<B> for TopKRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let zeros = Tensor::zeros(cx.grad.backend(), &self.from, cx.grad.dtype())?;
        Ok(vec![Some(zeros.scatter_add(self.axis, &self.index, cx.grad)?)])
    }
}

/// The reduced tensor, untracked, with what its rule needs to go back.
fn reduce<B: Backend>(
    op: &'static str,
    f: Reduce,
    x: &Tensor<B>,
    axes: &[isize],
    keep_dim: bool,
) -> Result<(Tensor<B>, Axes)> {
    let from = *x.shape();
    let (p, kept) = ReduceParams::new(op, f, &from, axes, true)?;
    let (_, to) = ReduceParams::new(op, f, &from, axes, keep_dim)?;
    let mut y = x.alloc_like(to)?;
    x.backend().reduce(&p, x.buffer(), &mut y)?;
    Ok((Tensor::from_buffer(x.backend(), y, to), Axes { from, kept }))
}

fn cumsum<B: Backend>(x: &Tensor<B>, axis: isize, reverse: bool) -> Result<Tensor<B>> {
    let p = AxisParams::new("cumsum", x.shape(), axis, 0, reverse)?;
    let mut y = x.alloc_like(*x.shape())?;
    x.backend().cumsum(&p, x.buffer(), &mut y)?;
    Ok(Tensor::from_buffer(x.backend(), y, *x.shape()).record("cumsum", &[x], || CumsumRule { axis, reverse }))
}

/// The dtype that a composed op computes in, so that halves are rounded once, at its end.
pub(super) fn wide_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

impl<B: Backend> Tensor<B> {
    /// Σx over `axes` (`torch.sum`); 0 for an empty sum.
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn sum(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let (y, axes) = reduce("sum", Reduce::Sum, self, axes, keep_dim)?;
        Ok(y.record("sum", &[self], || SumRule { axes, scale: 1.0 }))
    }

    /// Σx/n over `axes` (`torch.mean`); NaN for an empty mean.
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn mean(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let (y, axes) = reduce("mean", Reduce::Mean, self, axes, keep_dim)?;
        let scale = y.size() as f64 / self.size() as f64;
        Ok(y.record("mean", &[self], || SumRule { axes, scale }))
    }

    /// The largest element over `axes`, NaN if any is NaN. Elements that attain it share the gradient equally
    /// (`torch.amax`).
    ///
    /// # Errors
    /// An axis out of range or named twice, an empty reduction.
    pub fn max(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        self.extreme("max", Reduce::Max, axes, keep_dim)
    }

    /// The smallest element over `axes`, NaN if any is NaN. Elements that attain it share the gradient equally
    /// (`torch.amin`).
    ///
    /// # Errors
    /// An axis out of range or named twice, an empty reduction.
    pub fn min(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        self.extreme("min", Reduce::Min, axes, keep_dim)
    }

    fn extreme(&self, op: &'static str, f: Reduce, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let (y, axes) = reduce(op, f, self, axes, keep_dim)?;
        Ok(y.record(op, &[self], || ExtremeRule { axes, x: self.clone() }))
    }

    /// Σ(x − mean)²/(n − `correction`) over `axes` (`torch.var`): correction 1 is the unbiased estimate, 0 the
    /// variance of the values themselves. The divisor is never below 0, so too few values give NaN or ∞.
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn var(&self, axes: &[isize], correction: usize, keep_dim: bool) -> Result<Tensor<B>> {
        self.wide_var("var", axes, correction, keep_dim)?.to_dtype(self.dtype())
    }

    /// The square root of [`Tensor::var`] (`torch.std`).
    ///
    /// # Errors
    /// As [`Tensor::var`].
    pub fn std(&self, axes: &[isize], correction: usize, keep_dim: bool) -> Result<Tensor<B>> {
        let var = self.wide_var("std", axes, correction, keep_dim)?;
        var.sqrt()?.to_dtype(self.dtype())
    }

    /// The variance in the accumulation dtype.
    fn wide_var(&self, op: &'static str, axes: &[isize], correction: usize, keep_dim: bool) -> Result<Tensor<B>> {
        let (p, _) = ReduceParams::new(op, Reduce::Mean, self.shape(), axes, keep_dim)?;
        let x = self.to_dtype(wide_dtype(self.dtype()))?;
        let squares = x.sub(&x.mean(axes, true)?)?.square()?.sum(axes, keep_dim)?;
        squares.div_scalar((p.count as usize).saturating_sub(correction) as f64)
    }

    /// The vector norm of order `p` over `axes` (`torch.linalg.vector_norm`): `p` = 2 is √Σx², with gradient 0 where it
    /// is 0; `p` = 1 is Σ|x|; `p` = ∞ is max |x|; any other `p` > 0 is (Σ|x|ᵖ)^(1/p), with gradient 0 where `x` is 0.
    ///
    /// # Errors
    /// An order that is NaN, 0 or less; an axis out of range or named twice; an empty maximum.
    pub fn norm(&self, p: f64, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        match p {
            2.0 => {
                let wide = no_grad(|| self.to_dtype(wide_dtype(self.dtype())))?;
                let (squares, axes) = reduce("norm", Reduce::SumSquares, &wide, axes, keep_dim)?;
                let y = no_grad(|| squares.sqrt()?.to_dtype(self.dtype()))?;
                Ok(y.record("norm", &[self], || NormRule { axes, x: self.clone() }))
            }
            1.0 => self.abs()?.sum(axes, keep_dim),
            f64::INFINITY => self.abs()?.max(axes, keep_dim),
            p if p > 0.0 => self.power_norm(p, axes, keep_dim),
            _ => Err(Error::invalid("norm", "p", p, "a number above 0 or infinity")),
        }
    }

    /// (Σ|x|ᵖ)^(1/p). Zeros stand aside as ones: there a power has no slope, or one that gives 0·∞.
    fn power_norm(&self, p: f64, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let power = |x: &Tensor<B>, exponent: f64| -> Result<Tensor<B>> {
            let zero = x.eq_scalar(0.0)?;
            x.masked_fill(&zero, 1.0)?.powf(exponent)?.masked_fill(&zero, 0.0)
        };
        let x = self.to_dtype(wide_dtype(self.dtype()))?;
        let sum = power(&x.abs()?, p)?.sum(axes, keep_dim)?;
        power(&sum, 1.0 / p)?.to_dtype(self.dtype())
    }

    /// ln Σeˣ over `axes` (`torch.logsumexp`), without overflow.
    ///
    /// # Errors
    /// An axis out of range or named twice, an empty reduction.
    pub fn logsumexp(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let (y, a) = no_grad(|| -> Result<_> {
            let x = self.to_dtype(wide_dtype(self.dtype()))?;
            let (m, a) = reduce("logsumexp", Reduce::Max, &x, axes, true)?;
            // An infinite maximum would turn into NaN when subtracted from itself.
            let m = m.masked_fill(&m.abs()?.eq_scalar(f64::INFINITY)?, 0.0)?;
            let y = x.sub(&m)?.exp()?.sum(axes, true)?.log()?.add(&m)?;
            let (_, to) = ReduceParams::new("logsumexp", Reduce::Max, self.shape(), axes, keep_dim)?;
            Ok((y.to_dtype(self.dtype())?.reshape(&to)?, a))
        })?;
        let rule = || LogSumExpRule {
            axes: a,
            x: self.clone(),
        };
        Ok(y.record("logsumexp", &[self], rule))
    }

    /// The index of the largest element along `axis` (`torch.argmax`): the first among equals, NaN before all; i32.
    ///
    /// # Errors
    /// An axis out of range, an empty axis.
    pub fn argmax(&self, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        self.arg_reduce("argmax", axis, false, keep_dim)
    }

    /// The index of the smallest element along `axis` (`torch.argmin`): the first among equals, NaN before all; i32.
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    pub fn argmin(&self, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        self.arg_reduce("argmin", axis, true, keep_dim)
    }

    fn arg_reduce(&self, op: &'static str, axis: isize, reverse: bool, keep_dim: bool) -> Result<Indices<B>> {
        let p = AxisParams::arg(op, self.shape(), axis, reverse)?;
        let (_, to) = ReduceParams::new(op, Reduce::Sum, self.shape(), &[axis], keep_dim)?;
        let mut index = self.backend().alloc(DType::I32, to.size())?;
        self.backend().arg_reduce(&p, self.buffer(), &mut index)?;
        Ok(Indices::from_buffer(self.backend(), index, to))
    }

    /// `y[j] = Σ_{l ≤ j} x[l]` along `axis` (`torch.cumsum`).
    ///
    /// # Errors
    /// An axis out of range.
    pub fn cumsum(&self, axis: isize) -> Result<Tensor<B>> {
        cumsum(self, axis, false)
    }

    /// The `k` largest elements along `axis` (the smallest unless `largest`) and where they were (`torch.topk`), sorted;
    /// equal elements by lower index, NaN as the largest. The values are differentiable; the indices are i32.
    ///
    /// # Errors
    /// An axis out of range, a `k` larger than the axis.
    pub fn top_k(&self, k: usize, axis: isize, largest: bool) -> Result<(Tensor<B>, Indices<B>)> {
        let p = AxisParams::top_k("top_k", self.shape(), axis, k, !largest)?;
        let to = self.shape().with(self.shape().axis("top_k", axis)?, k)?;
        let mut values = self.alloc_like(to)?;
        let mut index = self.backend().alloc(DType::I32, to.size())?;
        self.backend().top_k(&p, self.buffer(), &mut values, &mut index)?;
        let index = Indices::from_buffer(self.backend(), index, to);
        let values = Tensor::from_buffer(self.backend(), values, to).record("top_k", &[self], || TopKRule {
            axis,
            from: *self.shape(),
            index: index.clone(),
        });
        Ok((values, index))
    }
}
