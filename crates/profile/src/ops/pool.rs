//! Poolings, profiled.

use super::{elements, moved, optional, size};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{AdaptivePoolParams, PoolOps, PoolParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> PoolOps for Profiled<B> {
    fn max_pool(&self, p: &PoolParams, x: &B::Buffer, y: &mut B::Buffer, index: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, max_pool(p, x, y, index));
        checks::max_pool(self, p, x, y, index)?;
        let cost = moved(p.seen() * size(x) + bytes(y) + bytes(index));
        self.op("max_pool", cost, Detail::Pool(*p), |b| b.max_pool(p, x, y, index))
    }

    fn max_pool_grad(
        &self,
        p: &PoolParams,
        g: &B::Buffer,
        relu: Option<&B::Buffer>,
        index: &B::Buffer,
        dx: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, max_pool_grad(p, g, relu, index, dx));
        checks::max_pool_grad(self, p, g, relu, index, dx)?;
        let cost = moved(bytes(g) + optional(relu) + bytes(index) + bytes(dx));
        self.op("max_pool_grad", cost, Detail::Pool(*p), |b| {
            b.max_pool_grad(p, g, relu, index, dx)
        })
    }

    fn max_pool_gather(&self, p: &PoolParams, x: &B::Buffer, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, max_pool_gather(p, x, index, y));
        checks::max_pool_gather(self, p, x, index, y)?;
        // One element of each window is read.
        let cost = moved(bytes(index) + 2 * bytes(y));
        self.op("max_pool_gather", cost, Detail::Pool(*p), |b| {
            b.max_pool_gather(p, x, index, y)
        })
    }

    fn avg_pool(&self, p: &PoolParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, avg_pool(p, x, y));
        checks::avg_pool(self, p, x, y)?;
        let cost = moved(p.seen() * size(x) + bytes(y));
        self.op("avg_pool", cost, Detail::Pool(*p), |b| b.avg_pool(p, x, y))
    }

    fn avg_pool_grad(&self, p: &PoolParams, g: &B::Buffer, dx: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, avg_pool_grad(p, g, dx));
        checks::avg_pool_grad(self, p, g, dx)?;
        let cost = moved(bytes(g) + bytes(dx));
        self.op("avg_pool_grad", cost, Detail::Pool(*p), |b| b.avg_pool_grad(p, g, dx))
    }

    fn adaptive_avg_pool(&self, p: &AdaptivePoolParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, adaptive_avg_pool(p, x, y));
        checks::adaptive_avg_pool(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("adaptive_avg_pool", cost, elements(x), |b| b.adaptive_avg_pool(p, x, y))
    }

    fn adaptive_avg_pool_grad(&self, p: &AdaptivePoolParams, g: &B::Buffer, dx: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, adaptive_avg_pool_grad(p, g, dx));
        checks::adaptive_avg_pool_grad(self, p, g, dx)?;
        let cost = moved(bytes(g) + bytes(dx));
        self.op("adaptive_avg_pool_grad", cost, elements(dx), |b| {
            b.adaptive_avg_pool_grad(p, g, dx)
        })
    }
}
