//! Convolutions with the pooling of their result, watched.

use super::{optional, size};
use crate::backend::{Profiled, bytes};
use crate::record::Detail;
use kiln_core::ops::{ConvPoolOps, ConvPoolParams};
use kiln_core::{Backend, Cost, Result};

/// The result of the convolution stays inside of the op: it counts no bytes, whether it is kept in memory or not.
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
        let cost = Cost {
            flops: p.conv.flops(),
            bytes: p.conv.seen() * size(x) + bytes(w) + optional(bias) + bytes(y) + bytes(index),
        };
        self.op("conv_max_pool", cost, Detail::Conv(p.conv), |b| {
            b.conv_max_pool(p, x, w, bias, y, index)
        })
    }

    fn conv_max_pool_weight_grad(
        &self,
        p: &ConvPoolParams,
        g: &B::Buffer,
        index: &B::Buffer,
        x: &B::Buffer,
        dw: &mut B::Buffer,
    ) -> Result<()> {
        let cost = Cost {
            flops: p.conv.flops(),
            bytes: bytes(g) + bytes(index) + p.conv.seen() * size(x) + bytes(dw),
        };
        self.op("conv_max_pool_weight_grad", cost, Detail::Conv(p.conv), |b| {
            b.conv_max_pool_weight_grad(p, g, index, x, dw)
        })
    }
}
