//! Checks of losses.

use super::{Operands, accumulator};
use crate::ops::{CrossEntropyParams, CtcParams};
use crate::{DType, Result, Runtime};

/// Checks the operands that both ops read against the parameters; returns the dtype and the number of the logits.
fn read<R: Runtime>(
    of: &Operands<'_, R>,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
) -> Result<(DType, usize)> {
    of.require(p.classes > 0, "classes", p.classes, "at least 1")?;
    let smooth = (0.0..=1.0).contains(&p.smoothing);
    of.require(smooth, "smoothing", p.smoothing, "a number from 0 to 1")?;
    of.require(p.stride >= p.classes, "stride", p.stride, "at least the classes")?;
    let (dtype, all) = (of.float(logits)?, of.size(&[p.rows, p.stride])?);
    of.holds("logits", logits, dtype, all)?;
    of.holds("labels", labels, DType::I32, p.rows as usize)?;
    of.may_hold("class_weights", class_weights, dtype, p.classes as usize)?;
    Ok((dtype, all))
}

/// Checks [`LossOps::cross_entropy`](crate::ops::LossOps::cross_entropy).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cross_entropy<R: Runtime>(
    on: &R,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
    loss: &R::Buffer,
    weight: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "cross_entropy");
    let (dtype, _) = read(&of, p, logits, labels, class_weights)?;
    of.holds("loss", loss, accumulator(dtype), p.rows as usize)?;
    of.holds("weight", weight, accumulator(dtype), p.rows as usize)
}

/// Checks [`LossOps::cross_entropy_mean`](crate::ops::LossOps::cross_entropy_mean).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cross_entropy_mean<R: Runtime>(
    on: &R,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
    loss: &R::Buffer,
    total: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "cross_entropy_mean");
    let (dtype, _) = read(&of, p, logits, labels, class_weights)?;
    of.holds("loss", loss, accumulator(dtype), 1)?;
    of.holds("total", total, accumulator(dtype), 1)
}

/// Checks the gradient of the losses, or of their mean.
fn upstream<R: Runtime>(
    of: &Operands<'_, R>,
    p: &CrossEntropyParams,
    dtype: DType,
    g: &R::Buffer,
    total: Option<&R::Buffer>,
) -> Result<()> {
    let rows = if total.is_some() { 1 } else { p.rows as usize };
    of.holds("g", g, accumulator(dtype), rows)?;
    of.may_hold("total", total, accumulator(dtype), 1)
}

/// Checks [`LossOps::cross_entropy_grad`](crate::ops::LossOps::cross_entropy_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cross_entropy_grad<R: Runtime>(
    on: &R,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
    g: &R::Buffer,
    total: Option<&R::Buffer>,
    dlogits: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "cross_entropy_grad");
    let (dtype, all) = read(&of, p, logits, labels, class_weights)?;
    upstream(&of, p, dtype, g, total)?;
    of.holds("dlogits", dlogits, dtype, all)
}

/// Checks [`LossOps::cross_entropy_grad_in_place`](crate::ops::LossOps::cross_entropy_grad_in_place).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cross_entropy_grad_in_place<R: Runtime>(
    on: &R,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
    g: &R::Buffer,
    total: Option<&R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "cross_entropy_grad_in_place");
    let (dtype, _) = read(&of, p, logits, labels, class_weights)?;
    upstream(&of, p, dtype, g, total)
}

/// Checks [`LossOps::cross_entropy_with_grad`](crate::ops::LossOps::cross_entropy_with_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cross_entropy_with_grad<R: Runtime>(
    on: &R,
    p: &CrossEntropyParams,
    logits: &R::Buffer,
    labels: &R::Buffer,
    class_weights: Option<&R::Buffer>,
    loss: &R::Buffer,
    weight: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "cross_entropy_with_grad");
    let (dtype, _) = read(&of, p, logits, labels, class_weights)?;
    of.holds("loss", loss, accumulator(dtype), p.rows as usize)?;
    of.holds("weight", weight, accumulator(dtype), p.rows as usize)
}

/// Checks the operands that both ops of CTC read; returns the dtype and the number of the log-probabilities.
fn read_ctc<R: Runtime>(
    of: &Operands<'_, R>,
    p: &CtcParams,
    log_probs: &R::Buffer,
    targets: &R::Buffer,
    input_lengths: &R::Buffer,
    target_lengths: &R::Buffer,
    alpha: &R::Buffer,
) -> Result<(DType, usize)> {
    of.require(p.blank < p.classes, "blank", p.blank, "one of the classes")?;
    of.flag("zero_infinity", p.zero_infinity)?;
    let (dtype, all) = (of.float(log_probs)?, of.size(&[p.time, p.batch, p.classes])?);
    of.holds("log_probs", log_probs, dtype, all)?;
    of.holds("targets", targets, DType::I32, of.size(&[p.batch, p.labels])?)?;
    of.holds("input_lengths", input_lengths, DType::I32, of.size(&[p.batch])?)?;
    of.holds("target_lengths", target_lengths, DType::I32, of.size(&[p.batch])?)?;
    of.holds(
        "alpha",
        alpha,
        accumulator(dtype),
        of.size(&[p.batch, p.time, p.states()])?,
    )?;
    Ok((dtype, all))
}

/// Checks [`LossOps::ctc_loss`](crate::ops::LossOps::ctc_loss).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn ctc_loss<R: Runtime>(
    on: &R,
    p: &CtcParams,
    log_probs: &R::Buffer,
    targets: &R::Buffer,
    input_lengths: &R::Buffer,
    target_lengths: &R::Buffer,
    loss: &R::Buffer,
    alpha: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "ctc_loss");
    let (dtype, _) = read_ctc(&of, p, log_probs, targets, input_lengths, target_lengths, alpha)?;
    of.holds("loss", loss, accumulator(dtype), p.batch as usize)
}

/// Checks [`LossOps::ctc_loss_grad`](crate::ops::LossOps::ctc_loss_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn ctc_loss_grad<R: Runtime>(
    on: &R,
    p: &CtcParams,
    log_probs: &R::Buffer,
    targets: &R::Buffer,
    input_lengths: &R::Buffer,
    target_lengths: &R::Buffer,
    alpha: &R::Buffer,
    g: &R::Buffer,
    dlog_probs: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "ctc_loss_grad");
    let (dtype, all) = read_ctc(&of, p, log_probs, targets, input_lengths, target_lengths, alpha)?;
    of.holds("g", g, accumulator(dtype), p.batch as usize)?;
    of.holds("dlog_probs", dlog_probs, dtype, all)
}
