//! Cross-entropy from logits, from probabilities and from log-probabilities.

use super::{Reduction, agree, narrowed, widened};
use crate::autograd::{Rule, RuleContext, is_grad_enabled, vjp};
use crate::ops::reduce::acc_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{CrossEntropyParams, Op};
use std::sync::{Arc, Mutex};

/// The options of `torch.nn.CrossEntropyLoss`.
///
/// ```
/// # use kiln_nn::{CrossEntropyOptions, DType, Indices, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let (logits, labels) = (Tensor::zeros(&cpu, &[1, 2], DType::F32)?, Indices::from_slice(&cpu, &[1], &[1])?);
/// let options = CrossEntropyOptions { label_smoothing: 0.1, ..Default::default() };
/// assert!((logits.cross_entropy_with(&labels, &options)?.item()? - 2f64.ln()).abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropyOptions<'a, B: Backend> {
    /// The share of each target that is spread evenly over the classes, in `0..=1`.
    pub label_smoothing: f64,
    /// A weight for each class: an untracked tensor `[C]` of the dtype of the logits.
    pub weight: Option<&'a Tensor<B>>,
    /// Rows with this label have loss 0 and are left out of the mean.
    pub ignore_index: i64,
    /// The reduction of the losses of the rows. The mean over integer labels divides by the sum of the labels' weights.
    pub reduction: Reduction,
}

impl<B: Backend> Default for CrossEntropyOptions<'_, B> {
    /// No smoothing, no weights, ignore index −100, mean.
    fn default() -> Self {
        CrossEntropyOptions {
            label_smoothing: 0.0,
            weight: None,
            ignore_index: -100,
            reduction: Reduction::Mean,
        }
    }
}

/// The rule of the fused loss, whose output is the loss of each row, or their mean, in the accumulation dtype: so a loss scale is part of
/// the incoming gradient before the gradient of half-precision logits is rounded.
struct CrossEntropy<B: Backend> {
    /// Taken by the last backward pass, which writes the gradient over them where nobody else has them.
    logits: Mutex<Option<Tensor<B>>>,
    labels: Indices<B>,
    weight: Option<Tensor<B>>,
    /// The sum of weights that the mean was divided by.
    total: Option<Tensor<B>>,
    p: CrossEntropyParams,
}

impl<B: Backend> Rule<B> for CrossEntropy<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        // The lock is held only during the exchange, so a panic cannot have left the value half-changed.
        let mut held = self.logits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let last = cx.is_last() && !is_grad_enabled();
        let logits = if last { held.take() } else { held.clone() };
        drop(held);
        let Some(x) = logits else {
            return Err(Error::GraphFreed { op: "cross_entropy" });
        };
        if is_grad_enabled() {
            return vjp(&[&x], cx.grad, |t| {
                let (loss, weight) = composed(&t[0], &self.labels, self.weight.as_ref(), &self.p)?;
                match self.total {
                    Some(_) => Reduction::Mean.weighted(&loss, &weight),
                    None => Ok(loss),
                }
            });
        }
        let tracked = x;
        let mut x = tracked.detach();
        drop(tracked);
        let backend = x.backend().clone();
        let (labels, weight, g) = (
            self.labels.buffer(),
            self.weight.as_ref().map(Tensor::buffer),
            cx.grad.buffer(),
        );
        let total = self.total.as_ref().map(Tensor::buffer);
        if last && Arc::strong_count(x.memory()) == 1 {
            backend.cross_entropy_grad_in_place(&self.p, x.buffer_mut()?, labels, weight, g, total)?;
            return Ok(vec![Some(x)]);
        }
        let mut dx = x.alloc_like(*x.shape())?;
        backend.cross_entropy_grad(&self.p, x.buffer(), labels, weight, g, total, &mut dx)?;
        Ok(vec![Some(Tensor::from_buffer(&backend, dx, *x.shape()))])
    }
}

/// The definition of the fused loss in primitive ops: the losses of the rows, and their weights.
fn composed<B: Backend>(
    logits: &Tensor<B>,
    labels: &Indices<B>,
    weight: Option<&Tensor<B>>,
    p: &CrossEntropyParams,
) -> Result<(Tensor<B>, Tensor<B>)> {
    let log_p = widened(logits)?.log_softmax(-1)?;
    let weight = weight.map(widened).transpose()?;
    let weight = weight.as_ref();
    let labels = Labels::new(labels, p.ignore_index)?;
    let (hard, weights) = labels.nll(&log_p, weight)?;
    if p.smoothing == 0.0 {
        return Ok((hard, weights));
    }
    let all = match weight {
        Some(w) => log_p.mul(w)?,
        None => log_p,
    };
    let soft = labels.drop_ignored(&all.sum(&[-1], false)?)?;
    let loss = hard
        .mul_scalar(1.0 - p.smoothing)?
        .sub(&soft.mul_scalar(p.smoothing / p.classes as f64)?)?;
    Ok((loss, weights))
}

/// Labels with a mask of the ignored ones.
struct Labels<B: Backend> {
    ignored: Option<Indices<B>>,
    /// The labels, 0 where ignored, with a last axis of size 1.
    index: Indices<B>,
}

impl<B: Backend> Labels<B> {
    fn new(labels: &Indices<B>, ignore_index: i64) -> Result<Self> {
        // No i32 label equals an `ignore_index` outside the range of i32.
        let ignored = i32::try_from(ignore_index).ok().map(|i| labels.eq(i)).transpose()?;
        let kept = match &ignored {
            None => labels.clone(),
            Some(ignored) => labels.masked_fill(ignored, 0)?,
        };
        Ok(Labels {
            ignored,
            index: kept.reshape(&[labels.shape().dims(), &[1]].concat())?,
        })
    }

    fn drop_ignored(&self, rows: &Tensor<B>) -> Result<Tensor<B>> {
        match &self.ignored {
            Some(ignored) => rows.masked_fill(ignored, 0.0),
            None => Ok(rows.clone()),
        }
    }

    /// `−w[t]·x[…, t]` and the weight `w[t]` for every row with label t, both 0 where ignored.
    fn nll(&self, x: &Tensor<B>, weight: Option<&Tensor<B>>) -> Result<(Tensor<B>, Tensor<B>)> {
        let picked = x.gather(-1, &self.index)?.squeeze(-1)?.neg()?;
        let weights = match weight {
            Some(w) => {
                let flat = self.index.reshape(&[self.index.size()])?;
                w.index_select(0, &flat)?.reshape(picked.shape())?
            }
            None => picked.detach().full_like(1.0)?,
        };
        let weights = self.drop_ignored(&weights)?;
        Ok((self.drop_ignored(&picked.mul(&weights)?)?, weights))
    }
}

/// Refuses class weights of another shape or dtype, or tracked ones: no gradient goes to them.
fn check_weight<B: Backend>(op: &'static str, x: &Tensor<B>, weight: Option<&Tensor<B>>) -> Result<()> {
    let Some(w) = weight else { return Ok(()) };
    agree(op, x, w)?;
    if w.is_tracked() {
        return Err(Error::NoGradient { op });
    }
    if w.rank() != 1 || Some(&w.size()) != x.shape().last() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *x.shape(),
            rhs: *w.shape(),
        });
    }
    Ok(())
}

/// The checks that every cross-entropy with integer labels shares.
fn check<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    labels: &Indices<B>,
    options: &CrossEntropyOptions<'_, B>,
) -> Result<CrossEntropyParams> {
    labels.require(op, DType::I32)?;
    check_weight(op, x, options.weight)?;
    CrossEntropyParams::new(
        op,
        x.shape(),
        labels.shape(),
        options.label_smoothing,
        options.ignore_index,
    )
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The mean cross-entropy of logits `[…, C]` and i32 labels `[…]` (`torch.nn.functional.cross_entropy`; Keras's
    /// sparse categorical cross-entropy with `from_logits=True`). NaN, with gradient 0, where no row counts.
    ///
    /// Half precision is computed in f32 and rounded once. A loss scale that the loss is multiplied by, at most 65504 in f16,
    /// is applied to the gradient of the logits before that is rounded.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let logits = Tensor::from_slice(&cpu, &[0f32, 0.0, 3.0, 3.0], &[2, 2])?;
    /// let labels = Indices::from_slice(&cpu, &[0, 1], &[2])?;
    /// assert!((logits.cross_entropy(&labels)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No classes; labels of another shape or dtype; [`Error::IndexOutOfRange`] for a label that is neither a class nor
    /// ignored.
    pub fn cross_entropy(&self, labels: &Indices<B>) -> Result<Tensor<B>> {
        self.cross_entropy_with(labels, &CrossEntropyOptions::default())
    }

    /// As [`Tensor::cross_entropy`], with PyTorch's options.
    ///
    /// ```
    /// # use kiln_nn::{CrossEntropyOptions, DType, Indices, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let logits = Tensor::zeros(&cpu, &[2, 2], DType::F32)?;
    /// let labels = Indices::from_slice(&cpu, &[0, -100], &[2])?; // the second row does not count
    /// let options = CrossEntropyOptions { reduction: Reduction::Sum, ..Default::default() };
    /// assert!((logits.cross_entropy_with(&labels, &options)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`]; a smoothing outside `0..=1`; class weights of another shape or dtype, or tracked.
    pub fn cross_entropy_with(&self, labels: &Indices<B>, options: &CrossEntropyOptions<'_, B>) -> Result<Tensor<B>> {
        const OP: &str = "cross_entropy";
        let p = check(OP, self, labels, options)?;
        let weight = options.weight.map(|w| w.to_dtype(self.dtype())).transpose()?;
        let options = &CrossEntropyOptions {
            weight: weight.as_ref(),
            ..*options
        };
        if !self.has_op(Op::CrossEntropy) {
            let (loss, weight) = composed(self, labels, options.weight, &p)?;
            return narrowed(&options.reduction.weighted(&loss, &weight)?, self);
        }
        let rule = |total: Option<Tensor<B>>| CrossEntropy {
            logits: Mutex::new(Some(self.clone())),
            labels: labels.clone(),
            weight: options.weight.cloned(),
            total,
            p,
        };
        let (backend, mean) = (self.backend(), options.reduction == Reduction::Mean);
        let shape = if mean { Shape::scalar() } else { *labels.shape() };
        let alloc = || backend.alloc(acc_dtype(self.dtype()), shape.size());
        let (mut loss, mut weight) = (alloc()?, alloc()?);
        let (x, labels) = (self.buffer(), labels.buffer());
        let class_weights = options.weight.map(Tensor::buffer);
        if mean {
            backend.cross_entropy_mean(&p, x, labels, class_weights, &mut loss, &mut weight)?;
        } else {
            backend.cross_entropy(&p, x, labels, class_weights, &mut loss, &mut weight)?;
        }
        let [loss, weight] = [loss, weight].map(|buffer| Tensor::from_buffer(backend, buffer, shape));
        let loss = loss.record(OP, &[self], || rule(mean.then(|| weight.clone())));
        match mean {
            true => narrowed(&loss, self),
            false => narrowed(&options.reduction.weighted(&loss, &weight)?, self),
        }
    }

    /// Cross-entropy of logits `[…, C]` and target distributions of the same shape (`torch.nn.functional.cross_entropy`
    /// with class probabilities): `−Σ_c w[c]·t[c]·log_softmax(x)[c]`, the targets smoothed first. The mean is over rows;
    /// `ignore_index` has no meaning here.
    ///
    /// ```
    /// # use kiln_nn::{CrossEntropyOptions, DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let logits = Tensor::zeros(&cpu, &[1, 2], DType::F32)?;
    /// let targets = Tensor::from_slice(&cpu, &[0.3f32, 0.7], &[1, 2])?;
    /// let loss = logits.cross_entropy_soft(&targets, &CrossEntropyOptions::default())?;
    /// assert!((loss.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No classes; targets of another shape or dtype; options as in [`Tensor::cross_entropy_with`].
    pub fn cross_entropy_soft(&self, targets: &Tensor<B>, options: &CrossEntropyOptions<'_, B>) -> Result<Tensor<B>> {
        const OP: &str = "cross_entropy_soft";
        agree(OP, self, targets)?;
        check_weight(OP, self, options.weight)?;
        if self.shape() != targets.shape() {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *self.shape(),
                rhs: *targets.shape(),
            });
        }
        let lead = Shape::new(&self.shape()[..self.rank().saturating_sub(1)])?;
        let p = CrossEntropyParams::new(OP, self.shape(), &lead, options.label_smoothing, options.ignore_index)?;
        let targets = widened(targets)?;
        let smoothed = match p.smoothing {
            0.0 => targets,
            s => targets.affine(1.0 - s, s / p.classes as f64)?,
        };
        let mut terms = widened(self)?.log_softmax(-1)?.mul(&smoothed)?;
        if let Some(w) = options.weight {
            terms = terms.mul(&widened(w)?)?;
        }
        let losses = terms.sum(&[-1], false)?.neg()?;
        narrowed(&options.reduction.apply(&losses)?, self)
    }

    /// Cross-entropy of probabilities `[…, C]` and i32 labels `[…]` (Keras's sparse categorical cross-entropy with
    /// `from_logits=False`): each row is divided by its sum, clipped to `1e-7..=1 − 1e-7`, and `−ln p[t]` taken.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let p = Tensor::from_slice(&cpu, &[0.25f32, 0.75], &[1, 2])?;
    /// let labels = Indices::from_slice(&cpu, &[1], &[1])?;
    /// let loss = p.cross_entropy_from_probabilities(&labels, Reduction::Mean)?;
    /// assert!((loss.item()? + 0.75f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn cross_entropy_from_probabilities(&self, labels: &Indices<B>, reduction: Reduction) -> Result<Tensor<B>> {
        const OP: &str = "cross_entropy_from_probabilities";
        const CLIP: f64 = 1e-7;
        let p = check(OP, self, labels, &CrossEntropyOptions::default())?;
        let wide = widened(self)?;
        let share = wide.div(&wide.sum(&[-1], true)?)?;
        let log_p = share.clamp(CLIP, 1.0 - CLIP)?.log()?;
        let (loss, weights) = Labels::new(labels, p.ignore_index)?.nll(&log_p, None)?;
        narrowed(&reduction.weighted(&loss, &weights)?, self)
    }

    /// The mean negative log-likelihood of log-probabilities `[…, C]` and i32 labels `[…]`
    /// (`torch.nn.functional.nll_loss`, classes last).
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let logits = Tensor::zeros(&cpu, &[1, 2], DType::F32)?;
    /// let labels = Indices::from_slice(&cpu, &[1], &[1])?;
    /// assert!((logits.log_softmax(-1)?.nll_loss(&labels)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn nll_loss(&self, labels: &Indices<B>) -> Result<Tensor<B>> {
        self.nll_loss_with(labels, &CrossEntropyOptions::default())
    }

    /// As [`Tensor::nll_loss`], with class weights, an ignore index and a reduction.
    ///
    /// ```
    /// # use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let log_p = Tensor::from_slice(&cpu, &[-1f32, -2.0, -3.0, -4.0], &[2, 2])?;
    /// let labels = Indices::from_slice(&cpu, &[0, 1], &[2])?;
    /// let options = CrossEntropyOptions { reduction: Reduction::None, ..Default::default() };
    /// assert_eq!(log_p.nll_loss_with(&labels, &options)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy_with`]; any label smoothing, which is defined on logits.
    pub fn nll_loss_with(&self, labels: &Indices<B>, options: &CrossEntropyOptions<'_, B>) -> Result<Tensor<B>> {
        const OP: &str = "nll_loss";
        let p = check(OP, self, labels, options)?;
        if p.smoothing != 0.0 {
            return Err(Error::invalid(OP, "label_smoothing", p.smoothing, "0"));
        }
        let weight = options.weight.map(widened).transpose()?;
        let labels = Labels::new(labels, p.ignore_index)?;
        let (loss, weights) = labels.nll(&widened(self)?, weight.as_ref())?;
        narrowed(&options.reduction.weighted(&loss, &weights)?, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;

    #[test]
    fn the_fused_loss_is_its_definition() -> Result<()> {
        let cpu = Cpu::poisoned();
        let values: Vec<f64> = (0..20).map(|i| (f64::from(i) * 1.7).sin() * 3.0).collect();
        let x = Tensor::from_f64(&cpu, &values, &[4, 5], DType::F64)?.requires_grad();
        let w = Tensor::from_f64(&cpu, &[0.5, 1.0, 2.0, 0.0, 1.5], &[5], DType::F64)?;
        let g = Tensor::from_f64(&cpu, &[1.0, -2.0, 0.5, 3.0], &[4], DType::F64)?;
        let labels = Indices::from_slice(&cpu, &[4, 0, 2, 1], &[4])?;
        for (smoothing, weight, ignore) in [(0.0, None, -100), (0.3, Some(&w), 2), (1.0, Some(&w), i64::MAX)] {
            let p = CrossEntropyParams::new("t", x.shape(), labels.shape(), smoothing, ignore)?;
            let options = CrossEntropyOptions {
                label_smoothing: smoothing,
                weight,
                ignore_index: ignore,
                reduction: Reduction::None,
            };
            let fused = x.cross_entropy_with(&labels, &options)?;
            let (plain, _) = composed(&x, &labels, weight, &p)?;
            let grads = (fused.backward_with(&g)?, plain.backward_with(&g)?);
            let pairs = [
                (fused.to_f64()?, plain.to_f64()?),
                (
                    grads.0.get(&x).map_or(Ok(vec![]), Tensor::to_f64)?,
                    grads.1.get(&x).map_or(Ok(vec![]), Tensor::to_f64)?,
                ),
            ];
            assert_eq!(pairs[1].0.len(), 20);
            for (a, b) in pairs.iter().flat_map(|(a, b)| a.iter().zip(b)) {
                assert!((a - b).abs() < 1e-12, "{a} and {b}");
            }
        }
        Ok(())
    }
}
