//! Reductions over axes, and searches and running sums along one.
//!
//! Axes may count from the end; an empty list means every axis. With `keep_dim` a reduced axis stays with size 1.

mod norm;
mod nuclear;
mod order;
mod product;

use crate::autograd::{Cast, Rule, RuleContext, no_grad};
use crate::{Backend, DType, Error, Indices, Result, Shape, State, Tensor};
use kiln_core::ops::{AxisParams, Op, Reduce, ReduceParams};

/// The shapes that the gradient of a reduction needs.
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

/// The rule of sum and mean: every element gets the gradient of its sum, times `scale` for a mean.
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

/// The rule of maximum and minimum: the gradient is shared equally among the elements that attain it, or among the NaNs if it
/// is NaN.
struct ExtremeRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for ExtremeRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        // Ties are counted in the accumulation dtype: half precision could not hold their number.
        let (x, wide) = (self.x.detach(), acc_dtype(self.x.dtype()));
        let extreme = cx.output().detach().reshape(&self.axes.kept)?;
        // A NaN is not equal to itself.
        let hit = x.eq(&extreme)?.to_float(wide)?.masked_fill(&x.ne(&x)?, 1.0)?;
        let count = hit.sum_to_size(&self.axes.kept)?;
        let share = cx.grad.to_dtype(wide)?.reshape(&self.axes.kept)?.div(&count)?;
        Ok(vec![Some(hit.mul(&share)?.to_dtype(x.dtype())?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// ∂var/∂x = 2·(x − mean)/divisor. The derivative through the mean is left out: it is 0, or ∞ − ∞ where the divisor is 0.
struct VarRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
    mean: Mean,
}

impl<B: Backend> Rule<B> for VarRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let g = cx.grad.reshape(&self.axes.kept)?.mul_scalar(2.0 / self.mean.divisor)?;
        Ok(vec![Some(self.mean.centred(&self.x)?.mul(&g)?)])
    }
}

/// ∂std/∂x = (x − mean)/(divisor·std), and 0 where the deviation is 0 (PyTorch's subgradient).
struct StdRule<B: Backend> {
    axes: Axes,
    x: Tensor<B>,
    mean: Mean,
}

impl<B: Backend> Rule<B> for StdRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let std = cx.output().reshape(&self.axes.kept)?;
        let zero = std.eq_scalar(0.0)?;
        let g = cx.grad.reshape(&self.axes.kept)?.mul_scalar(1.0 / self.mean.divisor)?;
        let g = g.div(&std.masked_fill(&zero, 1.0)?)?.masked_fill(&zero, 0.0)?;
        Ok(vec![Some(self.mean.centred(&self.x)?.mul(&g)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The axes of the mean that a variance is taken around, and the divisor of its sum of squares.
struct Mean {
    axes: Vec<isize>,
    divisor: f64,
}

impl Mean {
    fn centred<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.sub(&x.mean(&self.axes, true)?)
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
        // Where every term is −∞ the gradient of each is 0, not the NaN of −∞ + ∞.
        let y = y.masked_fill(&y.eq_scalar(f64::NEG_INFINITY)?, 0.0)?;
        let share = self.x.sub(&y)?.exp()?;
        Ok(vec![Some(share.mul(&cx.grad.reshape(&self.axes.kept)?)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The rule of a running sum: the gradient is a running sum from the other end.
struct CumsumRule {
    axis: isize,
    reverse: bool,
}

impl<B: Backend> Rule<B> for CumsumRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cumsum(cx.grad, self.axis, !self.reverse)?)])
    }
}

/// The rule of top-k: the gradient of each value goes to its position along the axis.
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

/// The reduced tensor, untracked, with the shapes that its rule needs.
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

/// The dtype that a composed op computes in, so that half precision is rounded once, at its end: f64 for f64, else f32.
pub(crate) fn acc_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Σx over `axes` (`torch.sum`); 0 for an empty sum.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.sum(&[0], false)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// assert_eq!(x.sum(&[-1], true)?.shape().dims(), [2, 1]);
    /// assert_eq!(x.sum(&[], false)?.item()?, 10.0); // over all axes
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn sum(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.sum(axes, keep_dim);
        }
        let (y, axes) = reduce("sum", Reduce::Sum, self, axes, keep_dim)?;
        Ok(y.record("sum", &[self], || SumRule { axes, scale: 1.0 }))
    }

    /// Σx/n over `axes` (`torch.mean`); NaN for an empty mean.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.mean(&[0], false)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(x.mean(&[], false)?.item()?, 2.5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn mean(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        let (y, axes) = reduce("mean", Reduce::Mean, self, axes, keep_dim)?;
        let scale = y.size() as f64 / self.size() as f64;
        Ok(y.record("mean", &[self], || SumRule { axes, scale }))
    }

    /// The largest element over `axes`, NaN if any is NaN. Elements that attain it share the gradient equally
    /// (`torch.amax`): where it is NaN, those that are NaN (`torch.max` of a whole tensor).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.max(&[1], false)?.to_vec::<f32>()?, [5.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice, an empty reduction.
    pub fn max(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        self.extreme("max", Reduce::Max, axes, keep_dim)
    }

    /// The smallest element over `axes`, NaN if any is NaN. Elements that attain it share the gradient equally
    /// (`torch.amin`): where it is NaN, those that are NaN (`torch.min` of a whole tensor).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.min(&[1], false)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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

    /// Σ(x − mean)²/(n − `correction`) over `axes` (`torch.var`): correction 1 is the unbiased estimate, 0 the variance
    /// of the values themselves. The divisor is at least 0: with n ≤ `correction` the result is NaN or ∞, and the
    /// gradient is NaN for values equal to the mean and infinite for others.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?;
    /// assert_eq!(x.var(&[], 1, false)?.item()?, 2.0);
    /// assert_eq!(x.var(&[], 0, false)?.item()?, 1.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn var(&self, axes: &[isize], correction: usize, keep_dim: bool) -> Result<Tensor<B>> {
        let x = self.to_dtype(acc_dtype(self.dtype()))?;
        let (var, axes, mean) = x.variance("var", axes, correction, keep_dim)?;
        let rule = || VarRule {
            axes,
            x: x.clone(),
            mean,
        };
        var.record("var", &[&x], rule).to_dtype(self.dtype())
    }

    /// The square root of [`Tensor::var`] (`torch.std`), with gradient 0 where it is 0.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0], &[2])?;
    /// assert_eq!(x.std(&[], 0, false)?.item()?, 2.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::var`].
    pub fn std(&self, axes: &[isize], correction: usize, keep_dim: bool) -> Result<Tensor<B>> {
        let x = self.to_dtype(acc_dtype(self.dtype()))?;
        let (var, axes, mean) = x.variance("std", axes, correction, keep_dim)?;
        let rule = || StdRule {
            axes,
            x: x.clone(),
            mean,
        };
        var.sqrt()?.record("std", &[&x], rule).to_dtype(self.dtype())
    }

    /// The variance, untracked, with the shapes and the mean that its rule needs.
    fn variance(
        &self,
        op: &'static str,
        axes: &[isize],
        correction: usize,
        keep_dim: bool,
    ) -> Result<(Tensor<B>, Axes, Mean)> {
        let (p, _) = ReduceParams::new(op, Reduce::Mean, self.shape(), axes, keep_dim)?;
        let mean = Mean {
            axes: axes.to_vec(),
            divisor: (p.count as usize).saturating_sub(correction) as f64,
        };
        let centred = no_grad(|| mean.centred(self))?;
        let (squares, axes) = reduce(op, Reduce::SumSquares, &centred, axes, keep_dim)?;
        Ok((squares.div_scalar(mean.divisor)?, axes, mean))
    }

    /// ln Σeˣ over `axes` (`torch.logsumexp`), without overflow; −∞ for an empty sum. The gradient is 0 where every
    /// term is −∞.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1000f64, 1000.0], &[2])?;
    /// assert!((x.logsumexp(&[], false)?.item()? - (1000.0 + 2f64.ln())).abs() < 1e-9);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn logsumexp(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        const OP: &str = "logsumexp";
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.logsumexp(axes, keep_dim);
        }
        let (p, kept) = ReduceParams::new(OP, Reduce::Sum, self.shape(), axes, true)?;
        let (_, to) = ReduceParams::new(OP, Reduce::Sum, self.shape(), axes, keep_dim)?;
        let y = no_grad(|| -> Result<_> {
            let x = self.to_dtype(acc_dtype(self.dtype()))?;
            if p.count == 0 {
                return Tensor::full(self.backend(), &to, self.dtype(), f64::NEG_INFINITY);
            }
            let (m, _) = reduce(OP, Reduce::Max, &x, axes, true)?;
            // An infinite maximum subtracted from itself would be NaN.
            let m = m.masked_fill(&m.abs()?.eq_scalar(f64::INFINITY)?, 0.0)?;
            let y = x.sub(&m)?.exp()?.sum(axes, true)?.log()?.add(&m)?;
            y.to_dtype(self.dtype())?.reshape(&to)
        })?;
        let rule = || LogSumExpRule {
            axes: Axes {
                from: *self.shape(),
                kept,
            },
            x: self.clone(),
        };
        Ok(y.record("logsumexp", &[self], rule))
    }

    /// The i32 index of the largest element along `axis` (`torch.argmax`): the first of equal elements; a NaN counts as larger.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0, 4.0, 3.0], &[2, 2])?;
    /// assert_eq!(x.argmax(1, false)?.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, an empty axis.
    pub fn argmax(&self, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        self.arg_reduce("argmax", axis, false, keep_dim)
    }

    /// Adds `weight` times the number of right answers to `sum`: of the rows, along the last dimension, whose largest element is at their
    /// label; `sum += weight * (self.argmax(-1) == labels).sum()`. It is how a metric counts them without a copy of anything. A label that
    /// is no index counts as wrong.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let scores = Tensor::from_slice(&cpu, &[1f32, 5.0, 4.0, 3.0], &[2, 2])?;
    /// let labels = Indices::from_slice(&cpu, &[1, 1], &[2])?;
    /// let sum = State::new(Tensor::zeros(&cpu, &[], DType::F32)?);
    /// scores.add_correct(&labels, 1.0, &sum)?;
    /// scores.add_correct(&labels, 0.5, &sum)?;
    /// assert_eq!(sum.get().item()?, 1.5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Labels that are not one i32 for each row; an empty last dimension; a `sum` that is not one f32; a weight that is not finite.
    pub fn add_correct(&self, labels: &Indices<B>, weight: f64, sum: &State<B>) -> Result<()> {
        let op = "add_correct";
        let p = AxisParams::arg(op, self.shape(), -1, false)?;
        let refused = |lhs: &Shape, rhs: &Shape| Error::ShapeMismatch {
            op,
            lhs: *lhs,
            rhs: *rhs,
        };
        if labels.shape().dims() != &self.shape()[..self.rank() - 1] {
            return Err(refused(labels.shape(), self.shape()));
        }
        sum.update(|sum| {
            if sum.size() != 1 {
                return Err(refused(sum.shape(), &Shape::new(&[1])?));
            }
            let backend = self.backend();
            if self.has_op(Op::AddCorrect) {
                return backend.add_correct(&p, self.buffer(), labels.buffer(), weight, sum.buffer_mut()?);
            }
            let correct = self.argmax(-1, false)?.eq(labels)?.to_float(DType::F32)?;
            let term = correct.sum(&[], false)?.mul_scalar(weight)?;
            backend.accumulate(term.buffer(), sum.buffer_mut()?)
        })
    }

    /// The i32 index of the smallest element along `axis` (`torch.argmin`): the first of equal elements; a NaN counts as
    /// smaller.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0, 4.0, 3.0], &[2, 2])?;
    /// assert_eq!(x.argmin(1, false)?.to_vec::<i32>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(x.cumsum(0)?.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn cumsum(&self, axis: isize) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.cumsum(axis);
        }
        cumsum(self, axis, false)
    }

    /// The `k` largest elements along `axis` (the smallest unless `largest`) and their i32 indices (`torch.topk`), sorted;
    /// equal elements by lower index, NaN as the largest. The values are differentiable.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[3f32, 1.0, 2.0], &[3])?;
    /// let (values, at) = x.top_k(2, 0, true)?;
    /// assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
    /// assert_eq!(at.to_vec::<i32>()?, [0, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
