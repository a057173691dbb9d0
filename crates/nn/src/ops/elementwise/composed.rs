//! Functions of two and three tensors that are composed of others.

use super::binary::each;
use crate::autograd::{Cast, Rule, RuleContext, no_grad};
use crate::ops::reduce::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};

/// `f` in the dtype of accumulators, so that halves are rounded once.
fn wide<B: Backend>(
    op: &'static str,
    [a, b]: [&Tensor<B>; 2],
    f: impl FnOnce(&Tensor<B>, &Tensor<B>) -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    if let Some(cast) = Cast::widest(&[a, b]) {
        return wide(op, [&*cast.of(a)?, &*cast.of(b)?], f);
    }
    same_dtype(op, a, b)?;
    let dtype = acc_dtype(a.dtype());
    f(&a.to_dtype(dtype)?, &b.to_dtype(dtype)?)?.to_dtype(a.dtype())
}

/// The integer part of a quotient is constant between its steps.
struct FmodRule<B: Backend> {
    a: Tensor<B>,
    b: Tensor<B>,
}

impl<B: Backend> Rule<B> for FmodRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (g, a, b) = (cx.grad, self.a.detach(), self.b.detach());
        // In a half the quotient could be rounded to the next integer.
        let whole = || g.mul(&wide("fmod", [&a, &b], |a, b| a.div(b)?.trunc())?)?.neg();
        each(cx, [a.shape(), b.shape()], [&|| Ok(g.clone()), &whole])
    }
}

/// The gradient of what is constant between its steps.
struct ZeroRule {
    inputs: [Shape; 2],
}

impl<B: Backend> Rule<B> for ZeroRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let g = cx.grad;
        let zeros = |shape: &Shape| Tensor::zeros(g.backend(), shape, g.dtype()).map(Some);
        self.inputs.iter().map(zeros).collect()
    }
}

/// The shares of both terms in a sum of exponentials, σ(a − b) and σ(b − a).
struct LogAddExpRule<B: Backend> {
    a: Tensor<B>,
    b: Tensor<B>,
}

impl<B: Backend> Rule<B> for LogAddExpRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let share = |a: &Tensor<B>, b: &Tensor<B>| cx.grad.mul(&apart(a, b)?.sigmoid()?);
        let (a, b) = (&self.a, &self.b);
        each(cx, [a.shape(), b.shape()], [&|| share(a, b), &|| share(b, a)])
    }
}

/// The difference, 0 between equal infinities.
fn apart<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let difference = a.sub(b)?;
    let undefined = difference.ne(&difference)?;
    difference.masked_fill(&undefined, 0.0)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The remainder of `self`/`other` rounded towards zero, which has the sign of `self`, with broadcasting (`torch.fmod`).
    /// [`Tensor::remainder`] has the sign of `other`.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, -5.0], &[2])?, Tensor::from_slice(&cpu, &[3f32], &[1])?);
    /// assert_eq!(x.fmod(&y)?.to_vec::<f32>()?, [2.0, -2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn fmod(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        let y = no_grad(|| {
            let size = self.abs()?.remainder(&other.abs()?)?;
            Tensor::where_(&self.lt_scalar(0.0)?, &size.neg()?, &size)
        })?;
        Ok(y.record("fmod", &[self, other], || FmodRule {
            a: self.clone(),
            b: other.clone(),
        }))
    }

    /// `self`/`other` rounded down, with broadcasting (`torch.floor_divide`; `torch.div` with `rounding_mode="floor"`): exactly
    /// the integer for which [`Tensor::remainder`] is what is left, where the dtype holds it. Its gradient is 0.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, -5.0], &[2])?, Tensor::from_slice(&cpu, &[3f32], &[1])?);
    /// assert_eq!(x.floor_divide(&y)?.to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn floor_divide(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "floor_divide";
        let y = wide(OP, [&self.detach(), &other.detach()], |a, b| {
            let quotient = a.div(b)?;
            let whole = a.sub(&a.remainder(b)?)?.div(b)?.round()?;
            // Of an infinite quotient there is no remainder, and zero by zero stays NaN.
            let infinite = quotient.abs()?.eq_scalar(f64::INFINITY)?;
            let whole = Tensor::where_(&infinite, &quotient, &whole)?;
            // Of an infinite divisor the quotient lies between −1 and 0, or between 0 and 1.
            let sign = a
                .sign()?
                .mul(&b.sign()?)?
                .clamp_max(0.0)?
                .add(&quotient.mul_scalar(0.0)?)?;
            Tensor::where_(&b.abs()?.eq_scalar(f64::INFINITY)?, &sign, &whole)
        })?;
        Ok(y.record(OP, &[self, other], || ZeroRule {
            inputs: [*self.shape(), *other.shape()],
        }))
    }

    /// ln(e^`self` + e^`other`) without overflow, with broadcasting (`torch.logaddexp`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1000f64], &[1])?;
    /// assert!((x.logaddexp(&x)?.item()? - (1000.0 + 2f64.ln())).abs() < 1e-9);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn logaddexp(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "logaddexp";
        wide(OP, [self, other], |a, b| {
            let y = no_grad(|| a.maximum(b)?.add(&apart(a, b)?.abs()?.neg()?.exp()?.log1p()?))?;
            Ok(y.record(OP, &[a, b], || LogAddExpRule {
                a: a.clone(),
                b: b.clone(),
            }))
        })
    }

    /// Each element not below that of `min` and not above that of `max`, with broadcasting (`torch.clamp` with tensors). Where
    /// `min` is above `max` the result is `max`.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 5.0], &[2])?;
    /// let min = Tensor::from_slice(&cpu, &[2f32, 3.0], &[2])?;
    /// assert_eq!(x.clamp_tensors(Some(&min), None)?.to_vec::<f32>()?, [2.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn clamp_tensors(&self, min: Option<&Tensor<B>>, max: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let mut y = self.clone();
        if let Some(min) = min {
            y = Tensor::where_(&y.lt(min)?, min, &y)?;
        }
        if let Some(max) = max {
            y = Tensor::where_(&y.gt(max)?, max, &y)?;
        }
        Ok(y)
    }

    /// `self + weight·(end − self)` with broadcasting (`torch.lerp`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[0f32, 10.0], &[2])?, Tensor::from_slice(&cpu, &[4f32, 20.0], &[2])?);
    /// let weight = Tensor::from_slice(&cpu, &[0.25f32], &[1])?;
    /// assert_eq!(x.lerp(&y, &weight)?.to_vec::<f32>()?, [1.0, 12.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn lerp(&self, end: &Tensor<B>, weight: &Tensor<B>) -> Result<Tensor<B>> {
        same_dtype("lerp", self, weight)?;
        wide("lerp", [self, end], |a, b| {
            a.add(&b.sub(a)?.mul(&weight.to_dtype(a.dtype())?)?)
        })
    }

    /// One half of the elements along `axis` times the sigmoid of the other (`torch.nn.functional.glu`; Dauphin et al. 2016).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[3f32, 4.0, 0.0, 100.0], &[4])?;
    /// assert_eq!(x.glu(-1)?.to_vec::<f32>()?, [1.5, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or of odd length.
    pub fn glu(&self, axis: isize) -> Result<Tensor<B>> {
        let size = self.shape()[self.shape().axis("glu", axis)?];
        if !size.is_multiple_of(2) {
            return Err(Error::invalid("glu", "axis", size, "an even number of elements"));
        }
        let value = self.narrow(axis, 0, size / 2)?;
        value.mul(&self.narrow(axis, size / 2, size / 2)?.sigmoid()?)
    }
}
