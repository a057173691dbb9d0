//! Negative log-likelihoods of distributions, and the losses of unbalanced segmentation.

use super::pointwise::{finish, operands};
use super::{Reduction, agree, widened};
use crate::{Backend, Error, Result, Tensor};
use std::f64::consts::TAU;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// (ln v + (x − t)²/v)/2 with v = max(`var`, eps) for normal distributions of mean x and variance `var`, with `full` plus
    /// ln(2π)/2 (`torch.nn.functional.gaussian_nll_loss`, whose eps is 1e-6 by default). The bound of the variance does not
    /// stop its gradient.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::full(&cpu, &[1], DType::F32, 1.0)?, Tensor::full(&cpu, &[1], DType::F32, 3.0)?);
    /// let var = Tensor::ones(&cpu, &[1], DType::F32)?;
    /// assert_eq!(x.gaussian_nll_loss(&t, &var, false, 1e-6, Reduction::Mean)?.item()?, 2.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target or a variance of a shape that does not broadcast, or of another dtype.
    pub fn gaussian_nll_loss(
        &self,
        target: &Tensor<B>,
        var: &Tensor<B>,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        const OP: &str = "gaussian_nll_loss";
        agree(OP, self, target)?;
        agree(OP, self, var)?;
        let [x, target, mut var] = [widened(self)?, widened(target)?, widened(var)?];
        // One variance for all elements of a vector.
        if self
            .shape()
            .split_last()
            .is_some_and(|(_, lead)| lead == &var.shape()[..])
        {
            var = var.unsqueeze(-1)?;
        }
        // The bound moves the value alone.
        let lift = var.detach().clamp_min(eps)?.sub(&var.detach())?;
        let var = var.add(&lift)?;
        let losses = var.log()?.add(&x.sub(&target)?.square()?.div(&var)?)?;
        let constant = if full { TAU.ln() / 2.0 } else { 0.0 };
        finish(self, &losses.affine(0.5, constant)?, reduction)
    }

    /// eˣ − t·x for Poisson distributions whose logarithm of the mean is x, or x − t·ln(x + eps) where x is the mean itself
    /// (`torch.nn.functional.poisson_nll_loss`, whose eps is 1e-8 by default). With `full`, Stirling's approximation of ln t! is
    /// added where t > 1.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[1], DType::F32)?, Tensor::ones(&cpu, &[1], DType::F32)?);
    /// assert_eq!(x.poisson_nll_loss(&t, true, false, 1e-8, Reduction::Mean)?.item()?, 1.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn poisson_nll_loss(
        &self,
        target: &Tensor<B>,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        let [x, target] = operands("poisson_nll_loss", self, target)?;
        let mut losses = match log_input {
            true => x.exp()?.sub(&target.mul(&x)?)?,
            false => x.sub(&target.mul(&x.add_scalar(eps)?.log()?)?)?,
        };
        if full {
            let few = target.le_scalar(1.0)?;
            let t = target.masked_fill(&few, 1.0)?;
            let stirling = t
                .mul(&t.log()?)?
                .sub(&t)?
                .add(&t.mul_scalar(TAU)?.log()?.mul_scalar(0.5)?)?;
            losses = losses.add(&stirling.masked_fill(&few, 0.0)?)?;
        }
        finish(self, &losses, reduction)
    }

    /// Binary cross-entropy of logits times (1 − p)^`gamma`, where p is the probability of the target, and times `alpha` for
    /// positive and 1 − `alpha` for negative targets, unless it is `None` (Lin et al. 2017; `torchvision.ops.sigmoid_focal_loss`,
    /// by default with 0.25 and 2, without reduction).
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[1], DType::F32)?, Tensor::ones(&cpu, &[1], DType::F32)?);
    /// let loss = x.sigmoid_focal_loss(&t, None, 2.0, Reduction::Mean)?;
    /// assert!((loss.item()? - 0.25 * 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn sigmoid_focal_loss(
        &self,
        target: &Tensor<B>,
        alpha: Option<f64>,
        gamma: f64,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        let [x, target] = operands("sigmoid_focal_loss", self, target)?;
        let p = x.sigmoid()?;
        // 1 − p of the target: p + t − 2pt.
        let miss = p.add(&target)?.sub(&p.mul(&target)?.mul_scalar(2.0)?)?;
        let mut losses = x
            .bce_with_logits(&target, None, Reduction::None)?
            .mul(&miss.powf(gamma)?)?;
        if let Some(alpha) = alpha {
            losses = losses.mul(&target.affine(2.0 * alpha - 1.0, 1.0 - alpha)?)?;
        }
        finish(self, &losses, reduction)
    }

    /// 1 − (2·Σxt + `smooth`)/(Σx + Σt + `smooth`) for probabilities x `[N, …]`, with the sums over each sample (Milletari et al. 2016):
    /// how far two regions are from covering each other.
    ///
    /// ```
    /// # use kiln_nn::{Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 0.0], &[1, 2])?;
    /// assert_eq!(x.dice_loss(&x, 1.0, Reduction::Mean)?.item()?, 0.0);
    /// assert_eq!(x.dice_loss(&x.rsub_scalar(1.0)?, 0.0, Reduction::Mean)?.item()?, 1.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype, a scalar.
    pub fn dice_loss(&self, target: &Tensor<B>, smooth: f64, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("dice_loss", self, target)?;
        let Some(&samples) = self.shape().first() else {
            return Err(Error::Rank {
                op: "dice_loss",
                expected: "1 or more",
                rank: 0,
            });
        };
        let size = self.size().checked_div(samples).unwrap_or(0);
        let sum = |x: &Tensor<B>| x.reshape(&[samples, size])?.sum(&[1], false);
        let both = sum(&x.mul(&target)?)?.affine(2.0, smooth)?;
        let all = sum(&x)?.add(&sum(&target)?)?.add_scalar(smooth)?;
        finish(self, &both.div(&all)?.rsub_scalar(1.0)?, reduction)
    }
}
