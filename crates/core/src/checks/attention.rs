//! Checks of attention.

use super::{Operands, accumulator};
use crate::ops::AttentionParams;
use crate::{DType, Result, Runtime};

/// The dtype of the buffers of attention, and the numbers of elements of the input, the result and the log-sum-exps.
fn sizes<R: Runtime>(of: &Operands<'_, R>, p: &AttentionParams, qkv: &R::Buffer) -> Result<(DType, [usize; 3])> {
    of.flag("causal", p.causal)?;
    of.require(p.heads > 0, "heads", p.heads, "at least 1")?;
    of.require(
        p.scale > 0.0 && p.scale.is_finite(),
        "scale",
        p.scale,
        "a finite number above 0",
    )?;
    // Some backends keep all scores in memory, so their number must not overflow.
    of.size(&[p.batch, p.heads, p.positions, p.positions])?;
    let vectors = [p.batch, p.positions, p.heads, p.width];
    let input = of.size(&[3, p.batch, p.positions, p.heads, p.width])?;
    let sizes = [input, of.size(&vectors)?, of.size(&vectors[..3])?];
    let dtype = of.float(qkv)?;
    of.holds("qkv", qkv, dtype, input)?;
    Ok((dtype, sizes))
}

/// Checks [`AttentionOps::attention`](crate::ops::AttentionOps::attention).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn attention<R: Runtime>(
    on: &R,
    p: &AttentionParams,
    qkv: &R::Buffer,
    y: &R::Buffer,
    lse: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "attention");
    let (dtype, [_, result, sums]) = sizes(&of, p, qkv)?;
    of.holds("y", y, dtype, result)?;
    of.holds("lse", lse, accumulator(dtype), sums)
}

/// Checks [`AttentionOps::attention_grad`](crate::ops::AttentionOps::attention_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn attention_grad<R: Runtime>(
    on: &R,
    p: &AttentionParams,
    qkv: &R::Buffer,
    y: &R::Buffer,
    lse: &R::Buffer,
    g: &R::Buffer,
    dqkv: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "attention_grad");
    let (dtype, [input, result, sums]) = sizes(&of, p, qkv)?;
    of.holds("y", y, dtype, result)?;
    of.holds("lse", lse, accumulator(dtype), sums)?;
    of.holds("g", g, dtype, result)?;
    of.holds("dqkv", dqkv, dtype, input)
}
