//! Max and average pooling.

use super::instance;
use crate::buffer::maybe;
use crate::launch::{THREADS, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{AdaptivePoolParams, PoolOps, PoolParams};
use kiln_core::{Buffer, DType, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, pool as max, pool_average as average};

/// The fewest elements of a box that eight warps share, when there are too few boxes for a thread each.
const LARGE_BOX: u64 = 32;
/// Blocks per multiprocessor: a few waves, and threads that stride over the rest.
const WAVES: u32 = 32;

/// Positions of a batch of images, or elements of a box. With an empty batch the sizes may be anything.
fn count(batch: u32, size: [u32; 3]) -> u64 {
    size.iter()
        .fold(u64::from(batch), |n, &v| n.saturating_mul(u64::from(v)))
}

/// Channels that a thread takes: 16 bytes of them where that many divide the channels, else one.
fn lanes(channels: u32, dtype: DType) -> u32 {
    let packed = 16 / dtype.size() as u32;
    if channels.is_multiple_of(packed) { packed } else { 1 }
}

impl Cuda {
    /// One of two kernels over `positions` of `channels`, and its grid.
    fn pooling(
        &self,
        [single, packed]: [&'static PerFloat; 2],
        positions: u64,
        channels: u32,
        dtype: DType,
        args: &[Arg<'_>],
    ) -> Result<()> {
        let lanes = lanes(channels, dtype);
        let kernel = instance(if lanes > 1 { packed } else { single }, dtype);
        let items = positions * u64::from(channels / lanes);
        self.launch(kernel, linear(items, THREADS, self.multiprocessors() * WAVES), args)
    }

    /// The mean of each of `boxes` boxes of about `elements` elements.
    fn averaging(
        &self,
        [single, packed, block]: [&'static PerFloat; 3],
        (boxes, elements): (u64, u64),
        channels: u32,
        dtype: DType,
        args: &[Arg<'_>],
    ) -> Result<()> {
        let threads = boxes * u64::from(channels / lanes(channels, dtype));
        let enough = u64::from(self.multiprocessors()) * 1024;
        if elements < LARGE_BOX || threads >= enough || channels == 0 {
            return self.pooling([single, packed], boxes, channels, dtype, args);
        }
        let geometry = Geometry {
            grid: [boxes.min(1 << 20) as u32, channels.div_ceil(32).min(65535), 1],
            block: [256, 1, 1],
            shared: 0,
        };
        self.launch(instance(block, dtype), geometry, args)
    }
}

impl PoolOps for Cuda {
    fn max_pool(&self, p: &PoolParams, x: &CudaBuffer, y: &mut CudaBuffer, index: &mut CudaBuffer) -> Result<()> {
        checks::max_pool(self, p, x, y, index)?;
        let positions = count(p.batch, p.window.output);
        let args = [Arg::value(p), x.arg(), y.out(), index.out()];
        let kernels = [&max::MAX_POOL, &max::MAX_POOL_PACKED];
        self.pooling(kernels, positions, p.channels, x.dtype(), &args)
    }

    fn max_pool_grad(
        &self,
        p: &PoolParams,
        g: &CudaBuffer,
        relu: Option<&CudaBuffer>,
        index: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        checks::max_pool_grad(self, p, g, relu, index, dx)?;
        let positions = count(p.batch, p.window.input);
        let args = [Arg::value(p), g.arg(), maybe(relu), index.arg(), dx.out()];
        let kernels = [&max::MAX_POOL_GRAD, &max::MAX_POOL_GRAD_PACKED];
        self.pooling(kernels, positions, p.channels, g.dtype(), &args)
    }

    fn max_pool_gather(&self, p: &PoolParams, x: &CudaBuffer, index: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::max_pool_gather(self, p, x, index, y)?;
        let positions = count(p.batch, p.window.output);
        let args = [Arg::value(p), x.arg(), index.arg(), y.out()];
        let kernels = [&max::MAX_POOL_GATHER, &max::MAX_POOL_GATHER_PACKED];
        self.pooling(kernels, positions, p.channels, x.dtype(), &args)
    }

    fn avg_pool(&self, p: &PoolParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::avg_pool(self, p, x, y)?;
        let boxes = count(p.batch, p.window.output);
        let elements = count(1, [0, 1, 2].map(|i| p.window.kernel[i].min(p.window.input[i])));
        let kernels = [&average::AVG_POOL, &average::AVG_POOL_PACKED, &average::AVG_POOL_BLOCK];
        let args = [Arg::value(p), x.arg(), y.out()];
        self.averaging(kernels, (boxes, elements), p.channels, x.dtype(), &args)
    }

    fn avg_pool_grad(&self, p: &PoolParams, g: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        checks::avg_pool_grad(self, p, g, dx)?;
        let positions = count(p.batch, p.window.input);
        let kernels = [&average::AVG_POOL_GRAD, &average::AVG_POOL_GRAD_PACKED];
        let args = [Arg::value(p), g.arg(), dx.out()];
        self.pooling(kernels, positions, p.channels, g.dtype(), &args)
    }

    fn adaptive_avg_pool(&self, p: &AdaptivePoolParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::adaptive_avg_pool(self, p, x, y)?;
        let boxes = count(p.batch, p.output);
        let elements = count(1, [0, 1, 2].map(|i| p.input[i].div_ceil(p.output[i])));
        let kernels = [
            &average::ADAPTIVE_AVG_POOL,
            &average::ADAPTIVE_AVG_POOL_PACKED,
            &average::ADAPTIVE_AVG_POOL_BLOCK,
        ];
        let args = [Arg::value(p), x.arg(), y.out()];
        self.averaging(kernels, (boxes, elements), p.channels, x.dtype(), &args)
    }

    fn adaptive_avg_pool_grad(&self, p: &AdaptivePoolParams, g: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        checks::adaptive_avg_pool_grad(self, p, g, dx)?;
        let positions = count(p.batch, p.input);
        let kernels = [
            &average::ADAPTIVE_AVG_POOL_GRAD,
            &average::ADAPTIVE_AVG_POOL_GRAD_PACKED,
        ];
        let args = [Arg::value(p), g.arg(), dx.out()];
        self.pooling(kernels, positions, p.channels, g.dtype(), &args)
    }
}
