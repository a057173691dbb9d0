//! The forward pass: blocks of tiles are transformed, multiplied and transformed back while they are in cache.

use crate::epilogue::finish_rows;
use crate::gemm::{CTile, Epilogue, gemm_nn, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::winograd::filter::Weights;
use crate::winograd::layout::apart;
use crate::winograd::tiles::Tiles;
use crate::winograd::transform::{Channels, Transforms};
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Computes the products of `count` transformed tiles with the transformed weights, point by point. With `threads`, the
/// points are computed in parallel.
fn products<A: Scalar>(
    cpu: &Cpu,
    weights: &Weights,
    tiles: &[A],
    count: usize,
    points: usize,
    threads: bool,
) -> Result<CpuBuffer> {
    let [steps, columns] = weights.shape;
    let (tile_step, step) = (apart(count, steps), apart(count, columns));
    let mut products = cpu.scratch(A::DTYPE, points * step)?;
    try_chunks_mut(products.as_mut_slice::<A>(), step, threads, |at, to| {
        let i = at / step;
        let tiles = &tiles[i * tile_step..][..count * steps];
        let to = CTile::new(matrix(&mut to[..count * columns], count, columns));
        gemm_nn(
            A::kernels(),
            (tiles, steps),
            &weights.panels(i),
            0,
            to,
            Epilogue::NONE,
            false,
        );
        Ok(())
    })?;
    Ok(products)
}

/// Rows of tiles, and the part of the target that they cover.
pub(crate) struct Part<'y, A> {
    pub(crate) rows: Range<usize>,
    pub(crate) y: &'y mut [A],
}

/// Splits `y`, which has `outputs` channels, into parts of `size` rows of tiles.
pub(crate) fn parts<'y, A>(tiles: &Tiles, size: usize, outputs: usize, y: &'y mut [A]) -> Vec<Part<'y, A>> {
    let mut parts = Vec::new();
    let (mut rest, mut first) = (y, 0);
    for row in (0..tiles.rows()).step_by(size) {
        let rows = row..(row + size).min(tiles.rows());
        let end = tiles.before(rows.end, outputs);
        let (y, after) = rest.split_at_mut(end - first);
        parts.push(Part { rows, y });
        (rest, first) = (after, end);
    }
    parts
}

/// The number of blocks below which some threads would have none, so the points of each block are computed in parallel.
const FEW: usize = 8;

/// Computes the convolution of `x` with transformed weights, block by block.
#[allow(clippy::too_many_arguments)]
pub(crate) fn convolve<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    weights: &Weights,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<bool> {
    let [channels, outputs] = weights.shape;
    let finite = AtomicBool::new(true);
    let mut parts = parts(tiles, tiles.per_block(), outputs, y);
    let zeros = vec![A::default(); channels];
    let few = parts.len() < FEW;
    try_chunks_mut(&mut parts, 1, true, |_, part| {
        let Part { rows, y } = &mut part[0];
        let count = rows.len() * tiles.count[1];
        let step = apart(count, channels);
        let mut images = cpu.scratch(A::DTYPE, POINTS * step)?;
        let images = images.as_mut_slice::<A>();
        let mut sink = vec![A::default(); outputs.max(channels)];
        let mut c = Channels::new(channels, &zeros, &mut sink);
        tiles.under(rows.clone(), channels, |t, from| {
            transforms.image.spread(&mut c, x, from, images, t * channels, step);
        });
        let products = products(cpu, weights, images, count, POINTS, few)?;
        let products = products.as_slice::<A>();
        let mut c = Channels::new(outputs, &zeros, &mut sink);
        (c.bias, c.relu) = (e.bias, e.activation == Activation::Relu);
        let step = apart(count, outputs);
        tiles.over(rows.clone(), outputs, |t, to| {
            transforms.result.gather(&mut c, products, t * outputs, step, y, to);
        });
        finite.fetch_and(c.finite(), Ordering::Relaxed);
        if !matches!(e.activation, Activation::None | Activation::Relu) {
            finish_rows(y, outputs, None, e.activation);
        }
        Ok(())
    })?;
    Ok(finite.into_inner())
}

/// Computes the gradient of the image that `tiles` cover, from the gradient `g` of their results: the transpose of every
/// step of [`convolve`], in reverse order. Tiles overlap in the image, where they are added; a block has whole images.
pub(crate) fn transposed<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    g: &[A],
    weights: &Weights,
    dx: &mut [A],
) -> Result<bool> {
    let [outputs, channels] = weights.shape;
    let finite = AtomicBool::new(true);
    let zeros = vec![A::default(); outputs];
    let (image, of_image) = (tiles.source_size() * channels, tiles.count[0]);
    let size = tiles.images_per_block() * image;
    let few = dx.len().div_ceil(size) < FEW;
    try_chunks_mut(dx, size, true, |at, dx| {
        let first = at / image * of_image;
        let rows = first..first + dx.len() / image * of_image;
        let count = rows.len() * tiles.count[1];
        let step = apart(count, outputs);
        let mut grads = cpu.scratch(A::DTYPE, POINTS * step)?;
        let grads = grads.as_mut_slice::<A>();
        let mut sink = vec![A::default(); outputs.max(channels)];
        let mut c = Channels::new(outputs, &zeros, &mut sink);
        let g = &g[tiles.before(first, outputs)..];
        tiles.over(rows.clone(), outputs, |t, from| {
            transforms.result_grad.spread(&mut c, g, from, grads, t * outputs, step);
        });
        let products = products(cpu, weights, grads, count, POINTS, few)?;
        let products = products.as_slice::<A>();
        let mut c = Channels::new(channels, &zeros, &mut sink);
        c.add = true;
        let step = apart(count, channels);
        dx.fill(A::default());
        tiles.under(0..rows.len(), channels, |t, to| {
            transforms
                .image_grad
                .gather(&mut c, products, t * channels, step, dx, to);
        });
        finite.fetch_and(c.finite(), Ordering::Relaxed);
        Ok(())
    })?;
    Ok(finite.into_inner())
}
