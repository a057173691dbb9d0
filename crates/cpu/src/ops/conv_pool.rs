//! A convolution and the max pooling of its result, a few images at a time: the result stays in cache, where the pooling
//! reads it, or does not leave the registers at all.

use super::conv::{forward, weight_grad};
use super::pool::{max_pool_grad_wide, max_pool_wide, paired};
use crate::blocks::lanes;
use crate::conv::pooled::Pooled;
use crate::conv::{Geometry, winograd};
use crate::gemm::{Epilogue, sum_parts};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{
    Activation, ConvPoolOps, ConvPoolParams, PooledGrad, composed_conv_max_pool as composed,
    composed_conv_max_pool_grad as composed_grad, composed_conv_max_pool_weight_grad as composed_weight_grad,
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
        match (Parts::fitting(p), y.dtype()) {
            (Some(parts), DType::F32) => parts.forward::<f32>(self, p, (x, w, bias), (y, index)),
            (Some(parts), DType::F64) => parts.forward::<f64>(self, p, (x, w, bias), (y, index)),
            // Halves are rounded before they are compared.
            _ => composed(self, p, (x, w, bias), (y, index)),
        }
    }

    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CpuBuffer>,
        between: &mut CpuBuffer,
        db: Option<&mut CpuBuffer>,
    ) -> Result<()> {
        match (Parts::new(p), between.dtype()) {
            (parts, DType::F32) if simple(p) => parts.grad::<f32>(self, of, between, db),
            (parts, DType::F64) if simple(p) => parts.grad::<f64>(self, of, between, db),
            _ => composed_grad(self, p, of, between, db),
        }
    }

    fn conv_max_pool_weight_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CpuBuffer>,
        x: &CpuBuffer,
        dw: &mut CpuBuffer,
        db: Option<&mut CpuBuffer>,
    ) -> Result<()> {
        match (Parts::fitting(p).filter(|_| simple(p)), dw.dtype()) {
            (Some(parts), DType::F32) => parts.weight_grad::<f32>(self, p, of, x, dw, db),
            (Some(parts), DType::F64) => parts.weight_grad::<f64>(self, p, of, x, dw, db),
            _ => composed_weight_grad(self, p, of, x, dw, db),
        }
    }
}

/// Whether the activation's gradient is a choice between a value and zero, or nothing.
fn simple(p: &ConvPoolParams) -> bool {
    matches!(p.conv.activation(), Activation::None | Activation::Relu)
}

/// Elements of a part of the convolution's result: half of a second-level cache.
const PART: usize = 1 << 17;
/// Elements of the partial gradients of a weight, together, at most.
const SUMS: usize = 1 << 20;

/// The images of a batch, some at a time.
#[derive(Clone, Copy)]
struct Parts {
    conv: Geometry,
    pool: Geometry,
    /// Images of a part.
    images: usize,
    rectified: bool,
}

impl Parts {
    fn new(p: &ConvPoolParams) -> Self {
        let (conv, pool) = (Geometry::new(&p.conv), Geometry::pooling(&p.pool));
        Parts {
            images: (PART / (conv.out_positions() * conv.outputs).max(1)).max(1),
            rectified: p.conv.activation() == Activation::Relu,
            conv,
            pool,
        }
    }

    /// `None` where an image's result is more than a part, or the convolution needs many images at once.
    fn fitting(p: &ConvPoolParams) -> Option<Self> {
        let parts = Parts::new(p);
        let conv = &parts.conv;
        let weights = conv.outputs * conv.depth();
        let fits = conv.out_positions() * conv.outputs <= PART && 4 * weights <= PART;
        let few = conv.batch > 0 && parts.count() * weights <= SUMS;
        (fits && few && !winograd::suits(conv)).then_some(parts)
    }

    fn count(&self) -> usize {
        self.conv.batch.div_ceil(self.images)
    }

    /// The form that keeps results in registers, where it suits, and the parts for it.
    fn pooled<A: Scalar>(&self, p: &ConvPoolParams) -> Option<(Pooled<A>, Self)> {
        if !simple(p) || !paired(&self.pool) {
            return None;
        }
        let pooled = Pooled::new(&self.conv, &self.pool)?;
        let images = pooled.images();
        Some((pooled, Parts { images, ..*self }))
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
        let [image, result, of_image] = self.sizes();
        let (y, index) = (y.as_mut_slice::<A>(), index.as_mut_slice::<i32>());
        if let Some((pooled, Parts { images, .. })) = self.pooled(p) {
            let w = pooled.pack(cpu, w)?;
            let activation = p.conv.activation();
            let size = (images * of_image).max(1);
            let mut parts: Vec<_> = y.chunks_mut(size).zip(index.chunks_mut(size)).collect();
            return try_chunks_mut(&mut parts, 1, true, |i, part| {
                let (y, index) = &mut part[0];
                let x = &x[i * images * image..][..y.len() / of_image * image];
                pooled.forward(cpu, x, &w, Epilogue { bias, activation }, (y, index))
            });
        }
        let size = (self.images * of_image).max(1);
        let mut parts: Vec<_> = y.chunks_mut(size).zip(index.chunks_mut(size)).collect();
        try_chunks_mut(&mut parts, 1, true, |i, part| {
            let (y, index) = &mut part[0];
            let images = y.len() / of_image;
            let x = &x[i * self.images * image..][..images * image];
            let (conv, pool) = self.sized(images);
            let mut between = cpu.scratch(A::DTYPE, images * result)?;
            let between = between.as_mut_slice::<A>();
            forward(cpu, &conv, x, w, bias, p.conv.activation(), between)?;
            max_pool_wide(&pool, between, y, index);
            Ok(())
        })
    }

    /// Calls `f(gradient, index)` with the gradient of the largest sums of the images from `first` on; `db` becomes that of
    /// the bias, if it is not empty.
    fn before_activation<A: Scalar>(
        &self,
        cpu: &Cpu,
        of: &PooledGrad<'_, CpuBuffer>,
        (first, images): (usize, usize),
        db: &mut [A],
        f: impl FnOnce(&[A], &[i32]) -> Result<()>,
    ) -> Result<()> {
        let [_, _, of_image] = self.sizes();
        let part = first * of_image..(first + images) * of_image;
        let (g, index) = (
            &of.g.as_slice::<A>()[part.clone()],
            &of.index.as_slice::<i32>()[part.clone()],
        );
        let mut before = cpu.scratch(A::DTYPE, if self.rectified { g.len() } else { 0 })?;
        let g = if self.rectified {
            let before = before.as_mut_slice::<A>();
            rectify(&of.y.as_slice::<A>()[part], g, before);
            before
        } else {
            g
        };
        if !db.is_empty() {
            sum_rows(g, db);
        }
        f(g, index)
    }

    /// The gradient of the sums of part `i`, and in `db` that of the bias.
    fn part_grad<A: Scalar>(
        &self,
        cpu: &Cpu,
        of: &PooledGrad<'_, CpuBuffer>,
        i: usize,
        between: &mut [A],
        db: &mut [A],
    ) -> Result<()> {
        let [_, result, _] = self.sizes();
        let images = between.len() / result.max(1);
        let (_, pool) = self.sized(images);
        self.before_activation(cpu, of, (i * self.images, images), db, |g, index| {
            max_pool_grad_wide(&pool, g, index, between)
        })
    }

    /// Runs `f(part, what it writes, its partial gradient of the bias)` for parts of `y`, `size` elements each, and adds up the
    /// latter.
    fn with_bias<A: Scalar>(
        &self,
        cpu: &Cpu,
        y: &mut [A],
        size: usize,
        db: Option<&mut CpuBuffer>,
        f: impl Fn(usize, &mut [A], &mut [A]) -> Result<()> + Sync,
    ) -> Result<()> {
        let width = if db.is_some() { self.conv.outputs } else { 0 };
        let mut sums = cpu.scratch(A::DTYPE, self.count() * width)?;
        let sums = sums.as_mut_slice::<A>();
        let mut rest = &mut *sums;
        let mut parts = Vec::with_capacity(self.count());
        for y in y.chunks_mut(size.max(1)) {
            let (db, after) = rest.split_at_mut(width);
            parts.push((y, db));
            rest = after;
        }
        try_chunks_mut(&mut parts, 1, true, |i, part| {
            let (y, db) = &mut part[0];
            f(i, y, db)
        })?;
        if let Some(db) = db {
            let db = db.as_mut_slice::<A>();
            match parts.is_empty() {
                true => db.fill(A::default()),
                false => sum_parts(sums, db),
            }
        }
        Ok(())
    }

    fn grad<A: Scalar>(
        &self,
        cpu: &Cpu,
        of: &PooledGrad<'_, CpuBuffer>,
        between: &mut CpuBuffer,
        db: Option<&mut CpuBuffer>,
    ) -> Result<()> {
        let [_, result, _] = self.sizes();
        let between = between.as_mut_slice::<A>();
        self.with_bias(cpu, between, self.images * result, db, |i, between, db| {
            self.part_grad(cpu, of, i, between, db)
        })
    }

    fn weight_grad<A: Scalar>(
        &self,
        cpu: &Cpu,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CpuBuffer>,
        x: &CpuBuffer,
        dw: &mut CpuBuffer,
        db: Option<&mut CpuBuffer>,
    ) -> Result<()> {
        let x = x.as_slice::<A>();
        let [image, result, _] = self.sizes();
        let dw = dw.as_mut_slice::<A>();
        let pooled = self.pooled::<A>(p);
        let parts = pooled.as_ref().map_or(*self, |(_, parts)| *parts);
        let mut sums = cpu.scratch(A::DTYPE, parts.count() * dw.len())?;
        let sums = sums.as_mut_slice::<A>();
        parts.with_bias(cpu, sums, dw.len(), db, |i, dw, db| {
            let first = i * parts.images;
            let images = parts.images.min(self.conv.batch - first);
            let x = &x[first * image..][..images * image];
            if let Some((pooled, _)) = &pooled {
                return parts.before_activation(cpu, of, (first, images), db, |g, index| {
                    pooled.weight_grad(cpu, x, (g, index), dw)
                });
            }
            let mut between = cpu.scratch(A::DTYPE, images * result)?;
            let between = between.as_mut_slice::<A>();
            parts.part_grad(cpu, of, i, between, db)?;
            let (conv, _) = parts.sized(images);
            weight_grad(cpu, &conv, between, x, dw)
        })?;
        let Some((pooled, _)) = pooled else {
            sum_parts(sums, dw);
            return Ok(());
        };
        let mut total = cpu.scratch(A::DTYPE, dw.len())?;
        let total = total.as_mut_slice::<A>();
        sum_parts(sums, total);
        pooled.turn(total, dw);
        Ok(())
    }
}

/// `to[i]` is zero where `y[i]` is zero or less, `g[i]` elsewhere: where `y[i]` is no number, too.
fn rectify<A: Scalar>(y: &[A], g: &[A], to: &mut [A]) {
    lanes::<A, _>(
        #[inline(always)]
        || {
            for ((to, &y), &g) in to.iter_mut().zip(y).zip(g) {
                *to = if y <= A::ZERO { A::ZERO } else { g };
            }
        },
    );
}

/// `db[j]` becomes the sum of column `j` of the rows of `g`.
fn sum_rows<A: Scalar>(g: &[A], db: &mut [A]) {
    lanes::<A, _>(
        #[inline(always)]
        || {
            db.fill(A::ZERO);
            for row in g.chunks_exact(db.len()) {
                for (db, &g) in db.iter_mut().zip(row) {
                    *db += g;
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::ops::{Activation, Window};
    use kiln_core::{Runtime, Shape};

    /// Several parts, the last of them smaller, against the whole batch at once; with results that stay in registers, and with
    /// some that do not.
    #[test]
    fn parts_agree_with_the_whole() {
        let side_by_side = Window::new([2, 2]).stride([2, 2]);
        let overlapping = Window::new([3, 3]).stride([2, 2]).padding([1, 1]);
        let plain = |k: usize| Window::new([k, k]);
        for (batch, size, [channels, outputs], window, pool) in [
            (50, 28, [1, 32], plain(3), side_by_side),
            (100, 20, [3, 6], plain(5), side_by_side),
            (60, 21, [1, 41], plain(5).padding([2, 2]), side_by_side),
            (
                150,
                26,
                [2, 16],
                plain(3).stride([2, 1]).padding([1, 0]).dilation([1, 2]),
                side_by_side,
            ),
            (50, 28, [1, 32], plain(3), overlapping),
            (300, 20, [1, 2], plain(5), side_by_side),
            (3, 40, [2, 20], plain(3), side_by_side),
        ] {
            let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
            let kernel = window.kernel[2];
            let x = shape([batch, size, size, channels]);
            let w = shape([outputs, kernel, kernel, channels]);
            let (mut p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&pool, false)).unwrap();
            p.conv.activation = Activation::Relu as u32;
            let parts = Parts::fitting(&p).unwrap();
            let cpu = Cpu::poisoned();
            // Few bits: sums are exact in any order.
            let upload = |n: usize, salt: usize| {
                let values: Vec<f32> = (0..n)
                    .map(|i| ((i * 7919 + salt) % 997 % 16) as f32 / 8.0 - 1.0)
                    .collect();
                cpu.upload(&values).unwrap()
            };
            let (x, w, bias) = (upload(x.size(), 1), upload(w.size(), 2), upload(outputs, 3));
            let g = upload(y.size(), 4);
            let run = |whole: bool| {
                let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
                let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
                let mut dw = cpu.alloc(DType::F32, outputs * kernel * kernel * channels).unwrap();
                let mut db = cpu.alloc(DType::F32, outputs).unwrap();
                let mut between = cpu.alloc(DType::F32, p.between()).unwrap();
                let operands = (&x, &w, Some(&bias));
                if whole {
                    composed(&cpu, &p, operands, (&mut out, &mut index)).unwrap();
                } else {
                    cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut out, &mut index)
                        .unwrap();
                }
                let of = PooledGrad {
                    g: &g,
                    y: &out,
                    index: &index,
                };
                let mut again = cpu.alloc(DType::F32, outputs).unwrap();
                if whole {
                    composed_grad(&cpu, &p, &of, &mut between, Some(&mut again)).unwrap();
                    composed_weight_grad(&cpu, &p, &of, &x, &mut dw, Some(&mut db)).unwrap();
                } else {
                    cpu.conv_max_pool_grad(&p, &of, &mut between, Some(&mut again)).unwrap();
                    cpu.conv_max_pool_weight_grad(&p, &of, &x, &mut dw, Some(&mut db))
                        .unwrap();
                }
                let floats = |b: &CpuBuffer| b.as_slice::<f32>().to_vec();
                let of_result = [floats(&out), floats(&between), floats(&dw), floats(&db), floats(&again)];
                (index.as_slice::<i32>().to_vec(), of_result)
            };
            let (got, want) = (run(false), run(true));
            assert_eq!(batch > parts.images, batch > 3, "{} images a part", parts.images);
            assert!(
                got == want,
                "{batch} images of {size}, {channels} to {outputs}, {window:?}"
            );
        }
    }

    /// Images without elements have a padding, whose results are the bias.
    #[test]
    fn padding_alone_is_pooled() {
        let window = Window::new([1, 1]).padding([1, 1]);
        let shape = |dims: &[usize]| Shape::new(dims).unwrap();
        let pool = Window::new([2, 2]).stride([2, 2]);
        let (x, w) = (shape(&[2, 0, 2, 1]), shape(&[16, 1, 1, 1]));
        let (p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&pool, false)).unwrap();
        let cpu = Cpu::poisoned();
        let [x, w, bias] = [0, 16, 16].map(|n| cpu.upload(&vec![3f32; n]).unwrap());
        let mut out = cpu.alloc(DType::F32, y.size()).unwrap();
        let mut index = cpu.alloc(DType::I32, y.size()).unwrap();
        cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut out, &mut index)
            .unwrap();
        assert_eq!(out.as_slice::<f32>(), vec![3.0; 2 * 2 * 16]);
    }

    #[test]
    fn a_derivative_that_does_not_follow_from_the_result_is_refused() {
        let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
        let window = Window::new([2, 2]);
        let (x, w) = (shape([1, 4, 4, 1]), shape([1, 2, 2, 1]));
        let (mut p, y) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&window, false)).unwrap();
        p.conv.activation = Activation::Gelu as u32;
        let cpu = Cpu::new();
        let [g, mut between] = [y.size(), p.between()].map(|n| cpu.upload(&vec![0f32; n]).unwrap());
        let index = cpu.upload(&vec![0i32; y.size()]).unwrap();
        let of = PooledGrad {
            g: &g,
            y: &g,
            index: &index,
        };
        let e = cpu.conv_max_pool_grad(&p, &of, &mut between, None).unwrap_err();
        assert!(e.to_string().contains("activation"), "{e}");
    }

    /// A result that is not a number hands its gradient on, as the rectifier's own op does; zero and less hand on none.
    #[test]
    fn what_is_not_positive_is_rectified_as_by_two_ops() {
        let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
        let window = Window::new([2, 2]);
        let (x, w) = (shape([1, 4, 4, 1]), shape([1, 2, 2, 1]));
        let (mut p, _) = ConvPoolParams::new("test", &x, &w, (&window, 1), (&window, false)).unwrap();
        p.conv.activation = Activation::Relu as u32;
        let cpu = Cpu::poisoned();
        let (g, y) = (
            cpu.upload(&[1f32, 2.0, 3.0, 4.0]).unwrap(),
            cpu.upload(&[f32::NAN, 0.0, 5.0, -1.0]).unwrap(),
        );
        let index = cpu.upload(&[0i32, 1, 3, 4]).unwrap();
        let of = PooledGrad {
            g: &g,
            y: &y,
            index: &index,
        };
        let run = |fused: bool| {
            let (mut between, mut db) = (cpu.alloc(DType::F32, 9).unwrap(), cpu.alloc(DType::F32, 1).unwrap());
            match fused {
                true => cpu.conv_max_pool_grad(&p, &of, &mut between, Some(&mut db)),
                false => composed_grad(&cpu, &p, &of, &mut between, Some(&mut db)),
            }
            .unwrap();
            (between.as_slice::<f32>().to_vec(), db.as_slice::<f32>()[0])
        };
        let want = (vec![1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4.0);
        assert_eq!((run(true), run(false)), (want.clone(), want));
    }
}
