//! Convolutions with the pooling of their result, profiled.

use super::{optional, size};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{Activation, ConvPoolGrads, ConvPoolOps, ConvPoolParams, PooledGrad};
use kiln_core::{Backend, Buffer, Cost, DType, Result, checks};

/// The bytes of the convolution's result do not count, because a fused op need not store it.
impl<B: Backend> ConvPoolOps for Profiled<B> {
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &B::Buffer,
        w: &B::Buffer,
        bias: Option<&B::Buffer>,
        y: &mut B::Buffer,
        index: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, conv_max_pool(p, x, w, bias, y, index));
        checks::conv_max_pool(self, p, x, w, bias, y, index)?;
        let cost = Cost {
            flops: p.conv.flops(),
            bytes: p.conv.seen() * size(x) + bytes(w) + optional(bias) + bytes(y) + bytes(index),
        };
        let algorithm = self.inner().conv_pool_algorithm(p, y.dtype());
        self.op("conv_max_pool", cost, Detail::Conv(p.conv, algorithm), |b| {
            b.conv_max_pool(p, x, w, bias, y, index)
        })
    }

    fn conv_pool_algorithm(&self, p: &ConvPoolParams, dtype: DType) -> Option<&'static str> {
        self.inner().conv_pool_algorithm(p, dtype)
    }

    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, B::Buffer>,
        x: &B::Buffer,
        w: &B::Buffer,
        to: ConvPoolGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, conv_max_pool_grad(p, of, x, w, to));
        checks::conv_max_pool_grad(self, p, of, x, w, &to)?;
        let of_image = to.dx.as_deref().map(|dx| bytes(w) + bytes(dx));
        let of_weight = to.dw.as_deref().map(|dw| p.conv.seen() * size(x) + bytes(dw));
        let cost = Cost {
            flops: p.conv.flops() * (u64::from(of_image.is_some()) + u64::from(of_weight.is_some())),
            bytes: given(p, of) + of_image.unwrap_or(0) + of_weight.unwrap_or(0) + optional(to.db.as_deref()),
        };
        self.op("conv_max_pool_grad", cost, Detail::Conv(p.conv, None), |b| {
            b.conv_max_pool_grad(p, of, x, w, to)
        })
    }
}

/// Bytes of the operands that gradients are computed from.
fn given<B: Buffer>(p: &ConvPoolParams, of: &PooledGrad<'_, B>) -> u64 {
    let y = match p.conv.activation() {
        Activation::None => 0,
        _ => bytes(of.y),
    };
    bytes(of.g) + y + bytes(of.index)
}
