//! Checks of attention.

use super::{Operands, accumulator};
use crate::ops::{AttentionMasks, AttentionOperands, AttentionParams, DotProductAttentionParams};
use crate::{DType, Error, Result, Runtime};

/// Checks masks of scores `[batch, heads, queries, keys]`, and dropout, for operands of `dtype`.
fn weights<R: Runtime>(
    of: &Operands<'_, R>,
    p: &DotProductAttentionParams,
    masks: &AttentionMasks<'_, R::Buffer>,
    dtype: DType,
) -> Result<()> {
    let scores = [p.batch, p.heads, p.queries, p.keys];
    // Some backends keep all scores in memory, so their number must not overflow.
    of.size(&scores)?;
    for (name, buffer, strides, dtype) in [
        ("mask", masks.mask, &p.mask, DType::U8),
        ("bias", masks.bias, &p.bias, accumulator(dtype)),
    ] {
        let Some(buffer) = buffer else { continue };
        let last = scores.iter().zip(strides).try_fold(0u64, |at, (&d, &stride)| {
            at.checked_add(stride.checked_mul(d.saturating_sub(1))?)
        });
        let len = last.and_then(|last| usize::try_from(last).ok()?.checked_add(1));
        let len = len.ok_or_else(|| Error::invalid(of.op, name, format!("{strides:?}"), "strides within memory"))?;
        // Where there are no scores, nothing is read.
        if !scores.contains(&0) {
            of.holds(name, buffer, dtype, len)?;
        }
    }
    of.require(
        (0.0..=1.0).contains(&p.drop),
        "drop",
        p.drop,
        "a probability from 0 to 1",
    )?;
    let given = masks.step.is_some() || p.drop == 0.0;
    of.require(given, "step", "none", "a step for dropout")?;
    of.may_hold("step", masks.step, DType::I32, 1)
}

/// The dtype of the buffers of attention, and the numbers of elements of the input, the result and the log-sum-exps.
fn sizes<R: Runtime>(
    of: &Operands<'_, R>,
    p: &AttentionParams,
    qkv: &R::Buffer,
    masks: &AttentionMasks<'_, R::Buffer>,
) -> Result<(DType, [usize; 3])> {
    of.flag("causal", p.causal)?;
    of.require(p.heads > 0, "heads", p.heads, "at least 1")?;
    of.require(
        p.scale > 0.0 && p.scale.is_finite(),
        "scale",
        p.scale,
        "a finite number above 0",
    )?;
    let vectors = [p.batch, p.positions, p.heads, p.width];
    let input = of.size(&[3, p.batch, p.positions, p.heads, p.width])?;
    let sizes = [input, of.size(&vectors)?, of.size(&vectors[..3])?];
    let dtype = of.float(qkv)?;
    of.holds("qkv", qkv, dtype, input)?;
    weights(of, &p.apart(), masks, dtype)?;
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
    masks: AttentionMasks<'_, R::Buffer>,
    y: &R::Buffer,
    lse: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "attention");
    let (dtype, [_, result, sums]) = sizes(&of, p, qkv, &masks)?;
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
    masks: AttentionMasks<'_, R::Buffer>,
    y: &R::Buffer,
    lse: &R::Buffer,
    g: &R::Buffer,
    dqkv: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "attention_grad");
    let (dtype, [input, result, sums]) = sizes(&of, p, qkv, &masks)?;
    of.holds("y", y, dtype, result)?;
    of.holds("lse", lse, accumulator(dtype), sums)?;
    of.holds("g", g, dtype, result)?;
    of.holds("dqkv", dqkv, dtype, input)
}

/// The dtype of the buffers, and the numbers of elements of the queries (and the result), the keys (and the values), and the
/// log-sum-exps.
fn apart<R: Runtime>(
    of: &Operands<'_, R>,
    p: &DotProductAttentionParams,
    x: &AttentionOperands<'_, R::Buffer>,
) -> Result<(DType, [usize; 3])> {
    of.flag("causal", p.causal)?;
    of.flag("heads_first", p.heads_first)?;
    of.require(p.heads > 0, "heads", p.heads, "at least 1")?;
    let shared = p.kv_heads > 0 && p.heads.is_multiple_of(p.kv_heads);
    of.require(shared, "kv_heads", p.kv_heads, "a divisor of the heads")?;
    of.require(
        p.scale > 0.0 && p.scale.is_finite(),
        "scale",
        p.scale,
        "a finite number above 0",
    )?;
    of.require(p.keys <= p.room, "keys", p.keys, "at most as many as there is room for")?;
    let queries = [p.batch, p.heads, p.queries, p.width];
    let sizes = [
        of.size(&queries)?,
        of.size(&[p.batch, p.kv_heads, p.room, p.width])?,
        of.size(&queries[..3])?,
    ];
    let dtype = of.float(x.q)?;
    of.holds("q", x.q, dtype, sizes[0])?;
    of.holds("k", x.k, dtype, sizes[1])?;
    of.holds("v", x.v, dtype, sizes[1])?;
    weights(of, p, &x.masks, dtype)?;
    Ok((dtype, sizes))
}

/// Checks [`AttentionOps::dot_product_attention`](crate::ops::AttentionOps::dot_product_attention).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn dot_product_attention<R: Runtime>(
    on: &R,
    p: &DotProductAttentionParams,
    x: AttentionOperands<'_, R::Buffer>,
    y: &R::Buffer,
    lse: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "dot_product_attention");
    let (dtype, [queries, _, rows]) = apart(&of, p, &x)?;
    of.holds("y", y, dtype, queries)?;
    of.holds("lse", lse, accumulator(dtype), rows)
}

/// Checks [`AttentionOps::dot_product_attention_grad`](crate::ops::AttentionOps::dot_product_attention_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn dot_product_attention_grad<R: Runtime>(
    on: &R,
    p: &DotProductAttentionParams,
    x: AttentionOperands<'_, R::Buffer>,
    y: &R::Buffer,
    lse: &R::Buffer,
    g: &R::Buffer,
    dq: &R::Buffer,
    dk: &R::Buffer,
    dv: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "dot_product_attention_grad");
    of.require(p.room == p.keys, "room", p.room, "the number of keys")?;
    let (dtype, [queries, keys, rows]) = apart(&of, p, &x)?;
    of.holds("y", y, dtype, queries)?;
    of.holds("lse", lse, accumulator(dtype), rows)?;
    of.holds("g", g, dtype, queries)?;
    of.holds("dq", dq, dtype, queries)?;
    of.holds("dk", dk, dtype, keys)?;
    of.holds("dv", dv, dtype, keys)
}
