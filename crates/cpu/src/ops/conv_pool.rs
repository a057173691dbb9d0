//! A convolution and the max pooling of its result, a few images at a time: the result stays in cache, where the pooling
//! reads it.

use super::conv::{forward, weight_grad};
use super::pool::{max_pool_grad_wide, max_pool_wide};
use crate::conv::{Geometry, winograd};
use crate::gemm::sum_parts;
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{
    ConvPoolOps, ConvPoolParams, composed_conv_max_pool as composed,
    composed_conv_max_pool_weight_grad as composed_weight_grad,
};
use kiln_core::{Buffer, DType, Result};

impl ConvPoolOps for Cpu {
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
        index: &mut CpuBuffer,
    ) -> Result<()> {
        match (Parts::new(p), y.dtype()) {
            (Some(parts), DType::F32) => parts.forward::<f32>(self, p, (x, w, bias), (y, index)),
            (Some(parts), DType::F64) => parts.forward::<f64>(self, p, (x, w, bias), (y, index)),
            // Halves are rounded before they are compared.
            _ => composed(self, p, (x, w, bias), (y, index)),
        }
    }

    fn conv_max_pool_weight_grad(
        &self,
        p: &ConvPoolParams,
        g: &CpuBuffer,
        index: &CpuBuffer,
        x: &CpuBuffer,
        dw: &mut CpuBuffer,
    ) -> Result<()> {
        match (Parts::new(p), dw.dtype()) {
            (Some(parts), DType::F32) => parts.weight_grad::<f32>(self, (g, index), x, dw),
            (Some(parts), DType::F64) => parts.weight_grad::<f64>(self, (g, index), x, dw),
            _ => composed_weight_grad(self, p, (g, index), x, dw),
        }
    }
}

/// Elements of a part of the convolution's result: half of a second-level cache.
const PART: usize = 1 << 17;
/// Elements of the partial gradients of a weight, together, at most.
const SUMS: usize = 1 << 20;

/// The images of a batch, some at a time.
struct Parts {
    conv: Geometry,
    pool: Geometry,
    /// Images of a part.
    images: usize,
}

impl Parts {
    /// `None` where an image's result is more than a part, or the convolution needs many images at once.
    fn new(p: &ConvPoolParams) -> Option<Self> {
        let (conv, pool) = (Geometry::new(&p.conv), Geometry::pooling(&p.pool));
        let images = PART / (conv.out_positions() * conv.outputs).max(1);
        let weights = conv.outputs * conv.depth();
        let parts = conv.batch.div_ceil(images.max(1));
        let fits = images > 0 && conv.batch > 0 && 4 * weights <= PART && parts * weights <= SUMS;
        (fits && !winograd::suits(&conv)).then_some(Parts { conv, pool, images })
    }

    /// Of `batch` images.
    fn sized(&self, batch: usize) -> (Geometry, Geometry) {
        let of = |g: &Geometry| Geometry { batch, ..*g };
        (of(&self.conv), of(&self.pool))
    }

    /// Elements of an image, of its result, and of what is pooled of it.
    fn sizes(&self) -> [usize; 3] {
        let (conv, pool) = (&self.conv, &self.pool);
        [
            conv.in_positions() * conv.channels,
            conv.out_positions() * conv.outputs,
            pool.out_positions() * pool.channels,
        ]
    }

    fn forward<A: Scalar>(
        &self,
        cpu: &Cpu,
        p: &ConvPoolParams,
        (x, w, bias): (&CpuBuffer, &CpuBuffer, Option<&CpuBuffer>),
        (y, index): (&mut CpuBuffer, &mut CpuBuffer),
    ) -> Result<()> {
        let (x, w, bias) = (x.as_slice::<A>(), w.as_slice::<A>(), bias.map(CpuBuffer::as_slice::<A>));
        let [image, result, pooled] = self.sizes();
        let (y, index) = (y.as_mut_slice::<A>(), index.as_mut_slice::<i32>());
        let size = (self.images * pooled).max(1);
        let mut parts: Vec<_> = y.chunks_mut(size).zip(index.chunks_mut(size)).collect();
        try_chunks_mut(&mut parts, 1, true, |i, part| {
            let (y, index) = &mut part[0];
            let images = y.len() / pooled;
            let (conv, pool) = self.sized(images);
            let x = &x[i * self.images * image..][..images * image];
            let mut between = cpu.scratch(A::DTYPE, images * result)?;
            let between = between.as_mut_slice::<A>();
            forward(cpu, &conv, x, w, bias, p.conv.activation(), between)?;
            max_pool_wide(&pool, between, y, index);
            Ok(())
        })
    }

    fn weight_grad<A: Scalar>(
        &self,
        cpu: &Cpu,
        (g, index): (&CpuBuffer, &CpuBuffer),
        x: &CpuBuffer,
        dw: &mut CpuBuffer,
    ) -> Result<()> {
        let (g, index, x) = (g.as_slice::<A>(), index.as_slice::<i32>(), x.as_slice::<A>());
        let [image, result, pooled] = self.sizes();
        let dw = dw.as_mut_slice::<A>();
        let size = dw.len();
        let mut sums = cpu.scratch(A::DTYPE, self.conv.batch.div_ceil(self.images) * size)?;
        let sums = sums.as_mut_slice::<A>();
        try_chunks_mut(sums, size, true, |at, dw| {
            let first = at / size.max(1) * self.images;
            let images = self.images.min(self.conv.batch - first);
            let (conv, pool) = self.sized(images);
            let (g, index) = (&g[first * pooled..], &index[first * pooled..]);
            let mut between = cpu.scratch(A::DTYPE, images * result)?;
            let between = between.as_mut_slice::<A>();
            max_pool_grad_wide(&pool, g, index, between)?;
            weight_grad(cpu, &conv, between, &x[first * image..][..images * image], dw)
        })?;
        sum_parts(sums, dw);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::ops::{Activation, Window};
    use kiln_core::{Runtime, Shape};

    /// Several parts, the last of them smaller, against the whole batch at once.
    #[test]
    fn parts_agree_with_the_whole() {
        for (batch, size, channels, outputs, kernel) in [(50, 28, 1, 32, 3), (100, 20, 3, 6, 5), (3, 40, 2, 20, 3)] {
            let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
            let x = shape([batch, size, size, channels]);
            let w = shape([outputs, kernel, kernel, channels]);
            let pool = Window::new([2, 2]).stride([2, 2]);
            let (mut p, y) =
                ConvPoolParams::new("test", &x, &w, (&Window::new([kernel, kernel]), 1), (&pool, false)).unwrap();
            p.conv.activation = Activation::Relu as u32;
            let parts = Parts::new(&p).unwrap();
            let cpu = Cpu::poisoned();
            let upload = |n: usize, salt: usize| {
                let values: Vec<f32> = (0..n).map(|i| ((i * 7919 + salt) % 997) as f32 / 500.0 - 1.0).collect();
                cpu.upload(&values).unwrap()
            };
            let (x, w, bias) = (upload(x.size(), 1), upload(w.size(), 2), upload(outputs, 3));
            let g = upload(y.size(), 4);
            let run = |whole: bool| {
                let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
                let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
                let mut dw = cpu.alloc(DType::F32, outputs * kernel * kernel * channels).unwrap();
                if whole {
                    composed(&cpu, &p, (&x, &w, Some(&bias)), (&mut out, &mut index)).unwrap();
                    composed_weight_grad(&cpu, &p, (&g, &index), &x, &mut dw).unwrap();
                } else {
                    cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut out, &mut index)
                        .unwrap();
                    cpu.conv_max_pool_weight_grad(&p, &g, &index, &x, &mut dw).unwrap();
                }
                (out, index, dw)
            };
            let (got, want) = (run(false), run(true));
            assert_eq!(batch > parts.images, batch > 3, "{} images a part", parts.images);
            assert_eq!(got.0.as_slice::<f32>(), want.0.as_slice::<f32>());
            assert_eq!(got.1.as_slice::<i32>(), want.1.as_slice::<i32>());
            for (got, want) in got.2.as_slice::<f32>().iter().zip(want.2.as_slice::<f32>()) {
                let terms = (batch * size * size) as f32;
                assert!((got - want).abs() <= terms * f32::EPSILON, "{got} {want}");
            }
        }
    }
}
