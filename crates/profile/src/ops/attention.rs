//! Attention, profiled.

use crate::backend::{Profiled, bytes};
use crate::record::Detail;
use kiln_core::ops::{AttentionOps, AttentionParams};
use kiln_core::{Backend, Cost, Result, checks};

/// The bytes of the scores do not count, because a fused op need not store them.
impl<B: Backend> AttentionOps for Profiled<B> {
    fn attention(&self, p: &AttentionParams, qkv: &B::Buffer, y: &mut B::Buffer, lse: &mut B::Buffer) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(qkv) + bytes(y) + bytes(lse),
        };
        self.op("attention", cost, Detail::Attention(*p), |b| {
            b.attention(p, qkv, y, lse)
        })
    }

    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &B::Buffer,
        y: &B::Buffer,
        lse: &B::Buffer,
        g: &B::Buffer,
        dqkv: &mut B::Buffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, y, lse, g, dqkv)?;
        let cost = Cost {
            flops: 2 * p.flops(),
            bytes: bytes(qkv) + bytes(y) + bytes(lse) + bytes(g) + bytes(dqkv),
        };
        self.op("attention_grad", cost, Detail::Attention(*p), |b| {
            b.attention_grad(p, qkv, y, lse, g, dqkv)
        })
    }
}
