//! Attention, head by head: blocks of scores are computed and used while they are in cache, and never stored (Dao et
//! al., "FlashAttention", 2022). A block of the forward pass has whole rows of scores, so that a softmax takes one pass, and as
//! few as fit; the gradient takes one block of keys after the other, whose packed operands and gradients stay in cache.
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
use kiln_core::ops::{AttentionMasks, AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams};
use kiln_core::{Buffer, Float, Result, checks};

/// True if neither masks nor dropout change the weights, which the loops of packed operands know nothing of.
fn plain(p: &AttentionParams, masks: &AttentionMasks<'_, CpuBuffer>) -> bool {
    masks.mask.is_none() && masks.bias.is_none() && p.drop == 0.0
}

impl AttentionOps for Cpu {
    fn attention(
        &self,
        p: &AttentionParams,
        qkv: &CpuBuffer,
        masks: AttentionMasks<'_, CpuBuffer>,
        y: &mut CpuBuffer,
        lse: &mut CpuBuffer,
    ) -> Result<()> {
        checks::attention(self, p, qkv, masks, y, lse)?;
        if !plain(p, &masks) {
            return float!(qkv.dtype(), T => {
                let qkv = Upcast::new::<T>(self, qkv)?;
                let given = dot_product::Given::packed(p, qkv.slice(), masks);
                let lse = lse.as_mut_slice::<<T as Float>::Acc>();
                write_upcast::<T>(self, y, |y| dot_product::forward(self, Gemm::kernels(), &p.apart(), given, y, lse))
            });
        }
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
        masks: AttentionMasks<'_, CpuBuffer>,
        y: &CpuBuffer,
        lse: &CpuBuffer,
        g: &CpuBuffer,
        dqkv: &mut CpuBuffer,
    ) -> Result<()> {
        checks::attention_grad(self, p, qkv, masks, y, lse, g, dqkv)?;
        if !plain(p, &masks) {
            return float!(qkv.dtype(), T => {
                let (qkv, g) = (Upcast::new::<T>(self, qkv)?, Upcast::new::<T>(self, g)?);
                let given = dot_product::Given::packed(p, qkv.slice(), masks);
                let slopes = dot_product::Slopes {
                    lse: lse.as_slice(),
                    g: g.slice(),
                };
                write_upcast::<T>(self, dqkv, |dqkv| {
                    dot_product::packed_backward(self, Gemm::kernels(), &p.apart(), given, &slopes, dqkv)
                })
            });
        }
        if halves::is_supported(qkv.dtype(), p) {
            let given = halves::Given {
                qkv: qkv.as_slice(),
                lse: lse.as_slice(),
                g: g.as_slice(),
            };
            return halves::backward(self, p, &given, dqkv.as_mut_slice());
        }
        float!(qkv.dtype(), T => {
            let [qkv, y, g] = [qkv, y, g].map(|x| Upcast::new::<T>(self, x));
            let (qkv, y, g) = (qkv?, y?, g?);
            let given = backward::Given {
                qkv: qkv.slice(),
                y: y.slice(),
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
                masks: dot_product::Masks::new(x.masks),
                packed: false,
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
                masks: dot_product::Masks::new(x.masks),
                packed: false,
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
