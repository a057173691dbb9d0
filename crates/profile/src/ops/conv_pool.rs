//! Convolutions with the pooling of their result, watched.

use super::{moved, optional, size};
use crate::backend::{Profiled, bytes};
use crate::record::Detail;
use kiln_core::ops::{Activation, ConvPoolOps, ConvPoolParams, PooledGrad};
use kiln_core::{Backend, Buffer, Cost, Result};

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

    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, B::Buffer>,
        between: &mut B::Buffer,
        db: Option<&mut B::Buffer>,
    ) -> Result<()> {
        let cost = moved(given(p, of) + bytes(between) + optional(db.as_deref()));
        self.op("conv_max_pool_grad", cost, Detail::Pool(p.pool), |b| {
            b.conv_max_pool_grad(p, of, between, db)
        })
    }

    fn conv_max_pool_weight_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, B::Buffer>,
        x: &B::Buffer,
        dw: &mut B::Buffer,
        db: Option<&mut B::Buffer>,
    ) -> Result<()> {
        let cost = Cost {
            flops: p.conv.flops(),
            bytes: given(p, of) + p.conv.seen() * size(x) + bytes(dw) + optional(db.as_deref()),
        };
        self.op("conv_max_pool_weight_grad", cost, Detail::Conv(p.conv), |b| {
            b.conv_max_pool_weight_grad(p, of, x, dw, db)
        })
    }
}

/// Bytes of what gradients are computed from.
fn given<B: Buffer>(p: &ConvPoolParams, of: &PooledGrad<'_, B>) -> u64 {
    let y = match p.conv.activation() {
        Activation::None => 0,
        _ => bytes(of.y),
    };
    bytes(of.g) + y + bytes(of.index)
}
