//! Attention, profiled.

use super::elements;
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{AttentionMasks, AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams};
use kiln_core::{Backend, Buffer, Cost, Result, checks};

/// The bytes of the scores do not count, because a fused op need not store them.
impl<B: Backend> AttentionOps for Profiled<B> {
    fn attention(
        &self,
        p: &AttentionParams,
        qkv: &B::Buffer,
        masks: AttentionMasks<'_, B::Buffer>,
        y: &mut B::Buffer,
        lse: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, attention(p, qkv, masks, y, lse));
        checks::attention(self, p, qkv, masks, y, lse)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(qkv) + of(&masks) + bytes(y) + bytes(lse),
        };
        self.op("attention", cost, Detail::Attention(*p), |b| {
            b.attention(p, qkv, masks, y, lse)
        })
    }

    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &B::Buffer,
        masks: AttentionMasks<'_, B::Buffer>,
        y: &B::Buffer,
        lse: &B::Buffer,
        g: &B::Buffer,
        dqkv: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, attention_grad(p, qkv, masks, y, lse, g, dqkv));
        checks::attention_grad(self, p, qkv, masks, y, lse, g, dqkv)?;
        let cost = Cost {
            flops: 2 * p.flops(),
            bytes: bytes(qkv) + of(&masks) + bytes(y) + bytes(lse) + bytes(g) + bytes(dqkv),
        };
        self.op("attention_grad", cost, Detail::Attention(*p), |b| {
            b.attention_grad(p, qkv, masks, y, lse, g, dqkv)
        })
    }

    fn dot_product_attention(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, B::Buffer>,
        y: &mut B::Buffer,
        lse: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, dot_product_attention(p, x, y, lse));
        checks::dot_product_attention(self, p, x, y, lse)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: read(&x) + bytes(y) + bytes(lse),
        };
        self.op("dot_product_attention", cost, elements(y), |b| {
            b.dot_product_attention(p, x, y, lse)
        })
    }

    fn dot_product_attention_grad(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, B::Buffer>,
        y: &B::Buffer,
        lse: &B::Buffer,
        g: &B::Buffer,
        dq: &mut B::Buffer,
        dk: &mut B::Buffer,
        dv: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, dot_product_attention_grad(p, x, y, lse, g, dq, dk, dv));
        checks::dot_product_attention_grad(self, p, x, y, lse, g, dq, dk, dv)?;
        let written = bytes(dq) + bytes(dk) + bytes(dv);
        let cost = Cost {
            flops: 2 * p.flops(),
            bytes: read(&x) + bytes(y) + bytes(lse) + bytes(g) + written,
        };
        self.op("dot_product_attention_grad", cost, elements(dq), |b| {
            b.dot_product_attention_grad(p, x, y, lse, g, dq, dk, dv)
        })
    }
}

/// The bytes of the operands.
fn read<B: Buffer>(x: &AttentionOperands<'_, B>) -> u64 {
    bytes(x.q) + bytes(x.k) + bytes(x.v) + of(&x.masks)
}

/// The bytes of masks.
fn of<B: Buffer>(x: &AttentionMasks<'_, B>) -> u64 {
    [x.mask, x.bias, x.step].into_iter().flatten().map(bytes).sum()
}
