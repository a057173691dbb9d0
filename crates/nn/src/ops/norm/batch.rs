//! Batch norm: in training without running statistics, and in evaluation.

use super::behind::Behind;
use super::{Affine, REDUCED, apply, check_affine, composed, fused, inputs, recomputed, seen};
use crate::autograd::{Cast, Rule, RuleContext, no_grad, vjp};
use crate::ops::acc_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{BatchNormParams, GroupNormParams, Op};
use std::borrow::Cow;

pub(super) const OP: &str = "batch_norm";
const EVAL: &str = "batch_norm_eval";

/// The scale or the shift of a batch norm of `x` in mixed precision: of f32 it stays as it is (`torch.autocast`).
pub(super) fn wide_or_cast<'a, B: Backend>(
    cast: &Cast,
    x: &Tensor<B>,
    t: Option<&'a Tensor<B>>,
) -> Result<Option<Cow<'a, Tensor<B>>>> {
    match t.filter(|t| t.dtype() == acc_dtype(x.dtype())) {
        Some(wide) => Ok(Some(Cow::Borrowed(wide))),
        None => cast.option(t),
    }
}

/// The rule of batch norm in evaluation, which is an affine map of each channel.
struct BatchNormEval<B: Backend> {
    x: Tensor<B>,
    scale: Option<Tensor<B>>,
    shift: Option<Tensor<B>>,
    residual: Option<Tensor<B>>,
    mean: Tensor<B>,
    var: Tensor<B>,
    eps: f64,
    relu: bool,
}

impl<B: Backend> Rule<B> for BatchNormEval<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let mut inputs = inputs(&self.x, (self.scale.as_ref(), self.shift.as_ref()));
        let affine = inputs.len();
        inputs.extend(&self.residual);
        vjp(&inputs, cx.grad, |t| {
            let scale = self.scale.is_some().then(|| &t[1]);
            let shift = self.shift.is_some().then(|| &t[affine - 1]);
            let behind = Behind {
                residual: t.get(affine),
                relu: self.relu,
            };
            behind.of(composed_eval(&t[0], (&self.mean, &self.var), (scale, shift), self.eps)?)
        })
    }
}

/// The definition of batch norm in evaluation.
fn composed_eval<B: Backend>(
    x: &Tensor<B>,
    (mean, var): (&Tensor<B>, &Tensor<B>),
    affine: Affine<'_, B>,
    eps: f64,
) -> Result<Tensor<B>> {
    let rstd = var.add_scalar(eps)?.rsqrt()?;
    let hat = x.to_dtype(mean.dtype())?.sub(mean)?.mul(&rstd)?;
    apply(&hat, affine, mean.shape())?.to_dtype(x.dtype())
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Batch norm in training (Ioffe & Szegedy 2015; `torch.nn.functional.batch_norm`) over all axes but the last,
    /// the channels: `(x − mean)/√(var + eps)·scale + shift`, with optional scale and shift `[C]` of the dtype of `self`, or of f32
    /// for a half.
    ///
    /// Returns the result, the batch mean and the biased batch variance `[C]`, both untracked and of the accumulation
    /// dtype (f32; f64 for f64), for running statistics. (PyTorch's running variance is the unbiased one: multiply by
    /// n/(n − 1) for n values per channel.) For an empty batch they are NaN.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 10.0, 3.0, 30.0], &[2, 2])?;
    /// let (y, mean, var) = x.batch_norm(None, None, 1e-5)?;
    /// assert_eq!(mean.to_vec::<f32>()?, [2.0, 20.0]);
    /// assert!((y.to_f64()?[0] + 1.0).abs() < 1e-4 && (var.to_f64()?[1] - 100.0).abs() < 1e-2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Rank below 2; a single value per channel; a scale or shift of another shape or dtype; an
    /// `eps` that is negative or not finite.
    pub fn batch_norm(
        &self,
        scale: Option<&Tensor<B>>,
        shift: Option<&Tensor<B>>,
        eps: f64,
    ) -> Result<(Tensor<B>, Tensor<B>, Tensor<B>)> {
        if let Some(cast) = Cast::like(self) {
            let (scale, shift) = (wide_or_cast(&cast, self, scale)?, wide_or_cast(&cast, self, shift)?);
            return self.batch_norm(scale.as_deref(), shift.as_deref(), eps);
        }
        let p = GroupNormParams::batch(OP, self.shape(), eps)?;
        if p.positions == 1 {
            let expected = "more than one value per channel in training";
            return Err(Error::invalid(OP, "input", self.shape(), expected));
        }
        let channels = Shape::new(&[p.groups as usize])?;
        check_affine(OP, self, (scale, shift), &channels, true)?;
        let wide = acc_dtype(self.dtype());
        if self.size() == 0 {
            let nothing = Tensor::full(self.backend(), &channels, wide, f64::NAN)?;
            return Ok((composed(&p, self, (scale, shift))?, nothing.clone(), nothing));
        }
        if !self.has_op(Op::GroupNorm) {
            let (mean, var) = no_grad(|| {
                let x = seen(&p, self)?;
                let mean = x.mean(&REDUCED, true)?;
                let var = x.sub(&mean)?.square()?.mean(&REDUCED, false)?;
                Ok::<_, Error>((mean.reshape(&channels)?, var.reshape(&channels)?))
            })?;
            return Ok((recomputed(OP, p, self, (scale, shift))?, mean, var));
        }
        let (y, mean, rstd) = fused(OP, p, self, (scale, shift))?;
        let var = rstd.square()?.reciprocal()?.sub_scalar(eps)?.clamp_min(0.0)?;
        Ok((y, mean.reshape(&channels)?, var.reshape(&channels)?))
    }

    /// Batch norm in evaluation: as [`Tensor::batch_norm`] with given `mean` and `var` `[C]` of the accumulation dtype.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[5f32], &[1, 1])?;
    /// let (mean, var) = (Tensor::full(&cpu, &[1], DType::F32, 3.0)?, Tensor::full(&cpu, &[1], DType::F32, 4.0)?);
    /// assert_eq!(x.batch_norm_eval(&mean, &var, None, None, 0.0)?.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::batch_norm`], except that a single value per channel is allowed; statistics of another shape or dtype;
    /// [`Error::NoGradient`] for tracked statistics.
    pub fn batch_norm_eval(
        &self,
        mean: &Tensor<B>,
        var: &Tensor<B>,
        scale: Option<&Tensor<B>>,
        shift: Option<&Tensor<B>>,
        eps: f64,
    ) -> Result<Tensor<B>> {
        self.batch_norm_eval_then((mean, var), (scale, shift), eps, Behind::default())
    }

    /// [`Tensor::batch_norm_eval`] and what is behind it.
    pub(crate) fn batch_norm_eval_then(
        &self,
        (mean, var): (&Tensor<B>, &Tensor<B>),
        (scale, shift): Affine<'_, B>,
        eps: f64,
        behind: Behind<'_, B>,
    ) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::like(self) {
            let (scale, shift) = (wide_or_cast(&cast, self, scale)?, wide_or_cast(&cast, self, shift)?);
            return self.batch_norm_eval_then((mean, var), (scale.as_deref(), shift.as_deref()), eps, behind);
        }
        if !behind.fits(self) {
            return behind.of(self.batch_norm_eval(mean, var, scale, shift, eps)?);
        }
        let mut p = BatchNormParams::new(EVAL, self.shape(), eps)?;
        p.relu = u32::from(behind.relu);
        let channels = [p.channels as usize];
        check_affine(EVAL, self, (scale, shift), &channels, true)?;
        for stat in [mean, var] {
            if stat.is_tracked() {
                return Err(Error::NoGradient { op: EVAL });
            }
            if stat.dtype() != acc_dtype(self.dtype()) {
                return Err(Error::DTypeMismatch {
                    op: EVAL,
                    lhs: stat.dtype(),
                    rhs: acc_dtype(self.dtype()),
                });
            }
            if stat.shape()[..] != channels {
                return Err(Error::ShapeMismatch {
                    op: EVAL,
                    lhs: *stat.shape(),
                    rhs: Shape::new(&channels)?,
                });
            }
        }
        if self.size() > 0 && !self.has_op(Op::BatchNormEval) {
            return behind.of(composed_eval(self, (mean, var), (scale, shift), eps)?);
        }
        let mut y = self.alloc_like(*self.shape())?;
        if self.size() > 0 {
            self.backend().batch_norm_eval(
                &p,
                self.buffer(),
                behind.residual.map(Tensor::buffer),
                scale.map(Tensor::buffer),
                shift.map(Tensor::buffer),
                mean.buffer(),
                var.buffer(),
                &mut y,
            )?;
        }
        let y = Tensor::from_buffer(self.backend(), y, *self.shape());
        let mut inputs = inputs(self, (scale, shift));
        inputs.extend(behind.residual);
        Ok(y.record(EVAL, &inputs, || BatchNormEval {
            x: self.clone(),
            scale: scale.cloned(),
            shift: shift.cloned(),
            residual: behind.residual.cloned(),
            mean: mean.clone(),
            var: var.clone(),
            eps,
            relu: behind.relu,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use kiln_cpu::Cpu;

    #[test]
    fn batch_statistics_are_those_of_the_batch() -> Result<()> {
        let x = Tensor::from_slice(&Cpu::poisoned(), &[1.0f32, 10.0, 3.0, 10.0], &[2, 2])?;
        let (y, mean, var) = x.batch_norm(None, None, 1e-5)?;
        assert_eq!(mean.to_f64()?, [2.0, 10.0]);
        let var = var.to_f64()?;
        assert!((var[0] - 1.0).abs() < 1e-6 && var[1].abs() < 1e-10, "{var:?}");
        let eval = x.batch_norm_eval(
            &mean,
            &Tensor::from_slice(x.backend(), &[1.0f32, 0.0], &[2])?,
            None,
            None,
            1e-5,
        )?;
        assert_eq!(y.to_vec::<f32>()?, eval.to_vec::<f32>()?);
        let half = x.to_dtype(DType::BF16)?;
        assert_eq!(half.batch_norm(None, None, 1e-5)?.1.dtype(), DType::F32);
        Ok(())
    }
}
