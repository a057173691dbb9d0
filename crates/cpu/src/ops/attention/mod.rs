//! Attention, head by head: blocks of scores are computed and used while they are in cache, and never stored (Dao et
//! al., "FlashAttention", 2022). A block has whole rows of scores, so that a softmax takes one pass, and as few as fit.
//!
//! Queries, keys and values are read in place, a position apart; an operand that is needed transposed is packed. Blocks of
//! causal scores that are all masked are skipped.

mod backward;
mod call;
mod dot_product;
mod forward;
mod halves;
#[cfg(test)]
mod tests;

use crate::dispatch::float;
use crate::gemm::Gemm;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams};
use kiln_core::{Buffer, Float, Result, checks};

impl AttentionOps for Cpu {
    fn attention(&self, p: &AttentionParams, qkv: &CpuBuffer, y: &mut CpuBuffer, lse: &mut CpuBuffer) -> Result<()> {
        checks::attention(self, p, qkv, y, lse)?;
        if halves::is_supported(qkv.dtype(), p) {
            return halves::forward(self, p, qkv.as_slice(), y.as_mut_slice(), lse.as_mut_slice());
        }
        float!(qkv.dtype(), T => {
            let qkv = Upcast::new::<T>(self, qkv)?;
            let lse = lse.as_mut_slice::<<T as Float>::Acc>();
            write_upcast::<T>(self, y, |y| forward::run(self, Gemm::kernels(), p, qkv.slice(), y, lse))
        })
    }

    fn attention_grad(
        &self,
        p: &AttentionParams,
        qkv: &CpuBuffer,
        y: &CpuBuffer,
        lse: &CpuBuffer,
        g: &CpuBuffer,
        dqkv: &mut CpuBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, y, lse, g, dqkv)?;
        if halves::is_supported(qkv.dtype(), p) {
            let given = halves::Given {
                qkv: qkv.as_slice(),
                lse: lse.as_slice(),
                g: g.as_slice(),
            };
            return halves::backward(self, p, &given, dqkv.as_mut_slice());
        }
        float!(qkv.dtype(), T => {
            let (qkv, g) = (Upcast::new::<T>(self, qkv)?, Upcast::new::<T>(self, g)?);
            let given = backward::Given {
                qkv: qkv.slice(),
                lse: lse.as_slice(),
                g: g.slice(),
            };
            write_upcast::<T>(self, dqkv, |dqkv| backward::run(self, Gemm::kernels(), p, &given, dqkv))
        })
    }

    fn dot_product_attention(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CpuBuffer>,
        y: &mut CpuBuffer,
        lse: &mut CpuBuffer,
    ) -> Result<()> {
        checks::dot_product_attention(self, p, x, y, lse)?;
        float!(x.q.dtype(), T => {
            let [q, k, v] = [x.q, x.k, x.v].map(|x| Upcast::new::<T>(self, x));
            let (q, k, v) = (q?, k?, v?);
            let given = dot_product::Given {
                q: q.slice(),
                k: k.slice(),
                v: v.slice(),
                mask: x.mask.map(CpuBuffer::as_slice),
                bias: x.bias.map(CpuBuffer::as_slice),
            };
            let lse = lse.as_mut_slice::<<T as Float>::Acc>();
            write_upcast::<T>(self, y, |y| dot_product::forward(self, Gemm::kernels(), p, given, y, lse))
        })
    }

    fn dot_product_attention_grad(
        &self,
        p: &DotProductAttentionParams,
        x: AttentionOperands<'_, CpuBuffer>,
        y: &CpuBuffer,
        lse: &CpuBuffer,
        g: &CpuBuffer,
        dq: &mut CpuBuffer,
        dk: &mut CpuBuffer,
        dv: &mut CpuBuffer,
    ) -> Result<()> {
        checks::dot_product_attention_grad(self, p, x, y, lse, g, dq, dk, dv)?;
        float!(x.q.dtype(), T => {
            let [q, k, v, g] = [x.q, x.k, x.v, g].map(|x| Upcast::new::<T>(self, x));
            let (q, k, v, g) = (q?, k?, v?, g?);
            let given = dot_product::Given {
                q: q.slice(),
                k: k.slice(),
                v: v.slice(),
                mask: x.mask.map(CpuBuffer::as_slice),
                bias: x.bias.map(CpuBuffer::as_slice),
            };
            let slopes = dot_product::Slopes {
                lse: lse.as_slice(),
                g: g.slice(),
            };
            write_upcast::<T>(self, dq, |dq| write_upcast::<T>(self, dk, |dk| write_upcast::<T>(self, dv, |dv| {
                dot_product::backward(self, Gemm::kernels(), p, given, &slopes, [dq, dk, dv])
            })))
        })
    }
}
