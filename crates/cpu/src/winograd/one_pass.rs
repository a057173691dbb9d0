//! Convolutions with many weights and few tiles: all tiles are transformed at once, and the weights in pieces, each of which
//! is multiplied while it is in cache.

use crate::epilogue::finish_rows;
use crate::gemm::{CTile, Epilogue, Panels, gemm_nn, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::winograd::filter::Filter;
use crate::winograd::forward::parts;
use crate::winograd::layout::{CHANNELS, apart};
use crate::winograd::tiles::Tiles;
use crate::winograd::transform::{Channels, Transforms};
use crate::winograd::weight_grad::add_products;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of channels whose weights are transformed at once; with those of a panel they are a part of an L2 cache.
const STEPS: usize = 128;
/// The number of outputs and of channels in a piece of the weight gradient.
const PIECE: [usize; 2] = [24, 64];

/// The transforms of all tiles, in slabs of a few channels: `[slabs, points, tiles, channels of a slab]`.
struct Slabs {
    data: CpuBuffer,
    channels: usize,
    /// The number of channels of all slabs but the last.
    width: usize,
    /// The distance from one point to the next, and from one slab to the next.
    of_point: usize,
    of_slab: usize,
}

impl Slabs {
    fn new<A: Scalar>(cpu: &Cpu, points: usize, tiles: usize, channels: usize, width: usize) -> Result<Self> {
        let of_point = apart(tiles, width.min(channels));
        let of_slab = points * of_point;
        Ok(Slabs {
            data: cpu.scratch(A::DTYPE, channels.div_ceil(width) * of_slab)?,
            channels,
            width,
            of_point,
            of_slab,
        })
    }

    /// The channels of slab `i`.
    fn channels(&self, i: usize) -> Range<usize> {
        i * self.width..((i + 1) * self.width).min(self.channels)
    }

    /// Fills every slab by `f`, given its channels.
    fn fill<A: Scalar>(&mut self, f: impl Fn(Range<usize>, &mut [A]) -> Result<()> + Sync) -> Result<()> {
        let (width, channels, of_slab) = (self.width, self.channels, self.of_slab);
        try_chunks_mut(self.data.as_mut_slice::<A>(), of_slab, true, |at, to| {
            let from = at / of_slab * width;
            f(from..(from + width).min(channels), to)
        })
    }

    /// Iterates over the slabs, each with its channels.
    fn iter<A: Scalar>(&self) -> impl Iterator<Item = (Range<usize>, &[A])> {
        let slabs = self.data.as_slice::<A>().chunks_exact(self.of_slab);
        slabs.enumerate().map(|(i, slab)| (self.channels(i), slab))
    }
}

/// Computes the transformed tiles of `x`.
fn images<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    channels: usize,
    width: usize,
) -> Result<Slabs> {
    let mut slabs = Slabs::new::<A>(cpu, POINTS, tiles.all(), channels, width)?;
    let of_point = slabs.of_point;
    slabs.fill(|of_slab, to| {
        let zeros = vec![A::default(); of_slab.len()];
        let mut c = Channels::new(of_slab.len(), &zeros, &mut []);
        let x = &x[of_slab.start..];
        tiles.under(0..tiles.rows(), channels, |t, from| {
            transforms
                .image
                .spread(&mut c, x, from, to, t * of_slab.len(), of_point);
        });
        Ok(())
    })?;
    Ok(slabs)
}

/// Computes the same as [`crate::winograd::forward::convolve`].
pub(crate) fn convolve<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    filter: Filter<'_, A>,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<bool> {
    let kernels = A::kernels();
    let ([steps, columns], panel, count) = (filter.shape(), kernels.panel(), tiles.all());
    let images = images(cpu, transforms, tiles, x, steps, STEPS)?;
    let mut products = Slabs::new::<A>(cpu, POINTS, count, columns, panel)?;
    let of_product = products.of_point;
    products.fill(|columns, to| {
        let of_weight = apart(STEPS.min(steps), panel);
        let mut weights = cpu.scratch(A::DTYPE, POINTS * of_weight)?;
        let weights = weights.as_mut_slice::<A>();
        for (of_slab, images_of_slab) in images.iter::<A>() {
            let (k, n) = (of_slab.len(), columns.len());
            let add = of_slab.start > 0;
            filter.transform(transforms, of_slab, columns.clone(), weights, of_weight);
            for point in 0..POINTS {
                let a = &images_of_slab[point * images.of_point..][..count * k];
                let b = Panels::lent(kernels, &weights[point * of_weight..], 0, [k, n], CHANNELS);
                let c = CTile::new(matrix(&mut to[point * of_product..][..count * n], count, n));
                gemm_nn(kernels, (a, k), &b, 0, c, Epilogue::NONE, add);
            }
        }
        Ok(())
    })?;
    let (zeros, finite) = (vec![A::default(); panel], AtomicBool::new(true));
    let mut parts = parts(tiles, 1, columns, y);
    try_chunks_mut(&mut parts, 1, true, |_, part| {
        let part = &mut part[0];
        let mut sink = vec![A::default(); panel];
        let first = part.rows.start * tiles.count[1];
        for (columns, products) in products.iter::<A>() {
            let n = columns.len();
            let mut c = Channels::new(n, &zeros, &mut sink);
            c.bias = e.bias.map(|bias| &bias[columns.clone()]);
            c.relu = e.activation == Activation::Relu;
            let y = &mut part.y[columns.start..];
            tiles.over(part.rows.clone(), filter.shape()[1], |t, to| {
                transforms
                    .result
                    .gather(&mut c, products, (first + t) * n, of_product, y, to);
            });
            finite.fetch_and(c.finite(), Ordering::Relaxed);
        }
        if !matches!(e.activation, Activation::None | Activation::Relu) {
            finish_rows(part.y, columns, None, e.activation);
        }
        Ok(())
    })?;
    Ok(finite.into_inner())
}

/// Computes the same as [`crate::winograd::weight_grad::weight_grad`].
pub(crate) fn weight_grad<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    g: &[A],
    x: &[A],
    [channels, outputs]: [usize; 2],
    dw: &mut [A],
) -> Result<bool> {
    let (count, finite) = (tiles.all(), AtomicBool::new(true));
    let images = images(cpu, transforms, tiles, x, channels, PIECE[1])?;
    let mut grads = Slabs::new::<A>(cpu, POINTS, count, outputs, PIECE[0])?;
    let of_grad = grads.of_point;
    grads.fill(|of_slab, to| {
        let zeros = vec![A::default(); of_slab.len()];
        let mut c = Channels::new(of_slab.len(), &zeros, &mut []);
        let g = &g[of_slab.start..];
        tiles.over(0..tiles.rows(), outputs, |t, from| {
            transforms
                .result_grad
                .spread(&mut c, g, from, to, t * of_slab.len(), of_grad);
        });
        Ok(())
    })?;
    let size = PIECE[0] * 9 * channels;
    try_chunks_mut(dw, size, true, |at, dw| {
        let (m, grads) = (
            dw.len() / (9 * channels),
            &grads.data.as_slice::<A>()[at / size * grads.of_slab..],
        );
        let of_sum = apart(m, PIECE[1].min(channels));
        let mut sums = cpu.scratch(A::DTYPE, POINTS * of_sum)?;
        let sums = sums.as_mut_slice::<A>();
        let mut sink = [A::default(); PIECE[1]];
        for (of_slab, images_of_slab) in images.iter::<A>() {
            let n = of_slab.len();
            for point in 0..POINTS {
                let a = (&grads[point * of_grad..][..count * m], m);
                let b = (&images_of_slab[point * images.of_point..][..count * n], n);
                add_products(a, b, count, &mut sums[point * of_sum..][..m * n], false);
            }
            let mut c = Channels::new(n, &[], &mut sink);
            for i in 0..m {
                let to = std::array::from_fn(|tap| (i * 9 + tap) * channels + of_slab.start);
                transforms.weight_grad.gather(&mut c, sums, i * n, of_sum, dw, &to);
            }
            finite.fetch_and(c.finite(), Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(finite.into_inner())
}
