//! Losses that compare a tensor with a target element by element.

use super::{Reduction, agree, narrowed, widened};
use crate::autograd::{Rule, RuleContext, no_grad};
use crate::ops::elementwise::check_broadcasts;
use crate::{Backend, Error, Result, Tensor};

/// Both operands in the dtype that a loss is computed in. Refuses a target of another shape or dtype. (PyTorch
/// broadcasts, with a warning that it is likely a mistake.)
pub(super) fn operands<B: Backend>(op: &'static str, x: &Tensor<B>, target: &Tensor<B>) -> Result<[Tensor<B>; 2]> {
    agree(op, x, target)?;
    if x.shape() != target.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *x.shape(),
            rhs: *target.shape(),
        });
    }
    Ok([widened(x)?, widened(target)?])
}

/// The losses reduced and rounded to the dtype of the loss's input `x`.
pub(super) fn finish<B: Backend>(x: &Tensor<B>, losses: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
    narrowed(&reduction.apply(losses)?, x)
}

/// The rule of binary cross-entropy. Its gradient is bounded as PyTorch's is.
struct BceRule<B: Backend> {
    x: Tensor<B>,
    target: Tensor<B>,
}

/// The floor of logarithms and of x·(1 − x) in PyTorch's binary cross-entropy.
const LOG_FLOOR: f64 = -100.0;
const SLOPE_FLOOR: f64 = 1e-12;

impl<B: Backend> Rule<B> for BceRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (x, target) = (&self.x, &self.target);
        let dx = || -> Result<_> {
            let slope = x.mul(&x.rsub_scalar(1.0)?)?.clamp_min(SLOPE_FLOOR)?;
            cx.grad.mul(&x.sub(target)?.div(&slope)?)
        };
        let dt = || -> Result<_> {
            let (yes, no) = logs(x)?;
            cx.grad.mul(&no.sub(&yes)?)
        };
        Ok(vec![
            cx.needs(0).then(dx).transpose()?,
            cx.needs(1).then(dt).transpose()?,
        ])
    }
}

/// ln x and ln(1 − x), not below [`LOG_FLOOR`].
fn logs<B: Backend>(x: &Tensor<B>) -> Result<(Tensor<B>, Tensor<B>)> {
    let log = |t: &Tensor<B>| t.log()?.clamp_min(LOG_FLOOR);
    Ok((log(x)?, log(&x.rsub_scalar(1.0)?)?))
}

fn positive(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    if value > 0.0 {
        return Ok(());
    }
    Err(Error::invalid(op, argument, value, "a positive number"))
}

/// q·(d − q/2) with d = x − t and q = d clamped to −δ..=δ: both branches of Huber's loss in one expression, which is smooth but
/// for a jump of the second derivative at ±δ.
fn huber<B: Backend>(x: &Tensor<B>, target: &Tensor<B>, delta: f64) -> Result<Tensor<B>> {
    let distance = x.sub(target)?;
    let near = distance.clamp(-delta, delta)?;
    near.mul(&distance.sub(&near.mul_scalar(0.5)?)?)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// (x − t)² of each element, reduced (`torch.nn.functional.mse_loss`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?);
    /// assert_eq!(x.mse_loss(&t, Reduction::Mean)?.item()?, 5.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn mse_loss(&self, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, t] = operands("mse_loss", self, target)?;
        finish(self, &x.sub(&t)?.square()?, reduction)
    }

    /// |x − t| of each element, reduced (`torch.nn.functional.l1_loss`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, -3.0], &[2])?);
    /// assert_eq!(x.l1_loss(&t, Reduction::Mean)?.item()?, 2.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn l1_loss(&self, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, t] = operands("l1_loss", self, target)?;
        finish(self, &x.sub(&t)?.abs()?, reduction)
    }

    /// With d = |x − t|: d²/2 up to `delta`, δ·(d − δ/2) beyond (Huber 1964; `torch.nn.functional.huber_loss`); an
    /// infinite `delta` gives d²/2 everywhere.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?);
    /// assert_eq!(x.huber_loss(&t, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.5, 2.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype, a `delta` that is not positive.
    pub fn huber_loss(&self, target: &Tensor<B>, delta: f64, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, t] = operands("huber_loss", self, target)?;
        positive("huber_loss", "delta", delta)?;
        finish(self, &huber(&x, &t, delta)?, reduction)
    }

    /// With d = |x − t|: d²/(2β) up to `beta`, d − β/2 beyond (`torch.nn.functional.smooth_l1_loss`); `beta` 0 is
    /// [`Tensor::l1_loss`], and with an infinite `beta` the loss is 0.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?);
    /// assert_eq!(x.smooth_l1_loss(&t, 2.0, Reduction::None)?.to_vec::<f32>()?, [0.25, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype, a `beta` that is negative or NaN.
    pub fn smooth_l1_loss(&self, target: &Tensor<B>, beta: f64, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, t] = operands("smooth_l1_loss", self, target)?;
        if beta == 0.0 {
            return self.l1_loss(target, reduction);
        }
        positive("smooth_l1_loss", "beta", beta)?;
        finish(self, &huber(&x, &t, beta)?.div_scalar(beta)?, reduction)
    }

    /// −t·ln x − (1 − t)·ln(1 − x) for probabilities x (`torch.nn.functional.binary_cross_entropy`): the logarithms
    /// stop at −100 and the gradient's denominator x·(1 − x) at 1e-12. NaN where x is outside of 0..=1.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (p, t) = (Tensor::full(&cpu, &[2], DType::F32, 0.5)?, Tensor::from_slice(&cpu, &[0f32, 1.0], &[2])?);
    /// assert!((p.bce_loss(&t, Reduction::Mean)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn bce_loss(&self, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("bce_loss", self, target)?;
        let losses = no_grad(|| -> Result<_> {
            let (yes, no) = logs(&x)?;
            target.mul(&no.sub(&yes)?)?.sub(&no)
        })?;
        let losses = losses.record("bce_loss", &[&x, &target], || BceRule {
            x: x.clone(),
            target: target.clone(),
        });
        finish(self, &losses, reduction)
    }

    /// Binary cross-entropy of logits (`torch.nn.functional.binary_cross_entropy_with_logits`), without overflow:
    /// `(1 − t)·x + (1 + (w − 1)·t)·ln(1 + e⁻ˣ)`, where the weight `w` of positive targets (1 if absent) broadcasts to
    /// the shape of `self`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[2], DType::F32)?, Tensor::from_slice(&cpu, &[0f32, 1.0], &[2])?);
    /// assert!((x.bce_with_logits(&t, None, Reduction::Mean)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype, a `pos_weight` that does not broadcast or has another dtype.
    pub fn bce_with_logits(
        &self,
        target: &Tensor<B>,
        pos_weight: Option<&Tensor<B>>,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        const OP: &str = "bce_with_logits";
        let [x, target] = operands(OP, self, target)?;
        // Beyond ±40, ln(1 + e⁻ˣ) is 0 or −x to rounding, in f64 as well.
        let mut log_term = x.neg()?.softplus(1.0, 40.0)?;
        if let Some(w) = pos_weight {
            agree(OP, self, w)?;
            check_broadcasts(OP, w.shape(), self.shape())?;
            log_term = log_term.mul(&widened(w)?.sub_scalar(1.0)?.mul(&target)?.add_scalar(1.0)?)?;
        }
        let losses = target.rsub_scalar(1.0)?.mul(&x)?.add(&log_term)?;
        finish(self, &losses, reduction)
    }

    /// t·(ln t − x) for log-probabilities x (`torch.nn.functional.kl_div`), 0 where t = 0; with `log_target` the target
    /// is ln t. The mean is over elements, as PyTorch's `mean`; its `batchmean` is the sum divided by the batch.
    ///
    /// ```
    /// # use kiln_nn::{Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let t = Tensor::from_slice(&cpu, &[0.25f32, 0.75], &[1, 2])?;
    /// assert!(t.log()?.kl_div(&t, false, Reduction::Sum)?.item()?.abs() < 1e-6); // equal distributions
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn kl_div(&self, target: &Tensor<B>, log_target: bool, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("kl_div", self, target)?;
        let losses = if log_target {
            target.exp()?.mul(&target.sub(&x)?)?
        } else {
            let safe = target.masked_fill(&target.eq_scalar(0.0)?, 1.0)?;
            target.mul(&safe.log()?)?.sub(&target.mul(&x)?)?
        };
        finish(self, &losses, reduction)
    }
}
