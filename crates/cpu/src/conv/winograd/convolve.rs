//! The convolution itself: blocks of tiles are transformed, multiplied and transformed back while they are in cache.

use super::apart;
use super::tiles::Tiles;
use crate::epilogue::finish_rows;
use crate::gemm::{Channels, Epilogue, Panels, Target, Transforms, by_matrix, matrix, turn};
use crate::parallel::{GRAIN, try_chunks_mut};
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;
use std::ops::Range;

/// How the weights `[outputs, 3, 3, channels]` are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// From channels to outputs.
    Forward,
    /// From outputs to channels, turned around.
    Backward,
    /// From outputs to channels, as the forward pass's transform transposed.
    Transposed,
}

/// Transformed weights in panels: `[panels, points, steps, width]`.
pub(super) struct Weights {
    data: CpuBuffer,
    /// Steps and columns of the products.
    shape: [usize; 2],
    /// Elements from a point to the next, and from a panel.
    apart: [usize; 2],
}

impl Weights {
    /// Of `w`, `[outputs, 3, 3, channels]`.
    pub(super) fn new<A: Scalar, const POINTS: usize, const RESULTS: usize>(
        cpu: &Cpu,
        transforms: &Transforms<A, POINTS, RESULTS>,
        w: &[A],
        channels: usize,
        direction: Direction,
    ) -> Result<Self> {
        let (outputs, panel) = (w.len() / (9 * channels), A::kernels().panel());
        let copy;
        // Element k, n of tap t of the weights lies at t·tap + k·step + n.
        let (w, tap, step, shape) = match direction {
            Direction::Backward | Direction::Transposed => (w, channels, 9 * channels, [outputs, channels]),
            Direction::Forward => {
                copy = turned(cpu, w, [outputs, channels])?;
                (copy.as_slice::<A>(), channels * outputs, outputs, [channels, outputs])
            }
        };
        let of_point = apart(shape[0], panel);
        let mut data = cpu.scratch(A::DTYPE, shape[1].div_ceil(panel) * POINTS * of_point)?;
        let zeros = vec![A::default(); panel];
        let to = data.as_mut_slice::<A>();
        try_chunks_mut(to, POINTS * of_point, true, |at, to| {
            let from = at / (POINTS * of_point) * panel;
            let columns = panel.min(shape[1] - from);
            let width = columns.next_multiple_of(A::kernels().lanes);
            let mut c = Channels::new(columns, &zeros, &mut []);
            for k in 0..shape[0] {
                let place = |t: usize| t * tap + k * step + from;
                let places = match direction {
                    Direction::Forward | Direction::Transposed => std::array::from_fn(place),
                    Direction::Backward => std::array::from_fn(|t| place(8 - t)),
                };
                transforms.weight.spread(&mut c, w, &places, to, k * width, of_point);
            }
            Ok(())
        })?;
        Ok(Weights {
            data,
            shape,
            apart: [of_point, POINTS * of_point],
        })
    }

    fn panels<A: Scalar>(&self, point: usize) -> Panels<'_, A> {
        let data = &self.data.as_slice::<A>()[point * self.apart[0]..];
        Panels::lent(A::kernels(), data, self.apart[1], self.shape)
    }
}

/// `[outputs, 9, channels]` as `[9, channels, outputs]`.
fn turned<A: Scalar>(cpu: &Cpu, w: &[A], [outputs, channels]: [usize; 2]) -> Result<CpuBuffer> {
    let mut turned = cpu.scratch(A::DTYPE, w.len())?;
    let size = channels * outputs;
    try_chunks_mut(turned.as_mut_slice::<A>(), size, w.len() > GRAIN, |at, to| {
        turn(&w[at / size * channels..], 9 * channels, channels, outputs, to, outputs);
        Ok(())
    })?;
    Ok(turned)
}

/// The products of `count` transformed tiles with the transformed weights, point by point. With `threads`, threads share
/// the points.
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
        let to = Target::new(matrix(&mut to[..count * columns], count, columns));
        by_matrix(A::kernels(), (tiles, steps), &weights.panels(i), 0, to, Epilogue::NONE);
        Ok(())
    })?;
    Ok(products)
}

/// Rows of tiles and, of the target, the part that they cover.
struct Part<'y, A> {
    rows: Range<usize>,
    y: &'y mut [A],
}

/// Blocks of which there are fewer leave threads without one: they share the points of each.
const FEW: usize = 8;

/// The convolution of `x` with transformed weights, block by block.
#[allow(clippy::too_many_arguments)]
pub(super) fn convolve<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    weights: &Weights,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<()> {
    let [channels, outputs] = weights.shape;
    let mut parts = Vec::new();
    let (mut rest, mut first) = (y, 0);
    for row in (0..tiles.rows()).step_by(tiles.per_block()) {
        let rows = row..(row + tiles.per_block()).min(tiles.rows());
        let end = tiles.before(rows.end, outputs);
        let (y, after) = rest.split_at_mut(end - first);
        parts.push(Part { rows, y });
        (rest, first) = (after, end);
    }
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
        let mut c = Channels {
            bias: e.bias,
            relu: e.activation == Activation::Relu,
            ..Channels::new(outputs, &zeros, &mut sink)
        };
        let step = apart(count, outputs);
        tiles.over(rows.clone(), outputs, |t, to| {
            transforms.result.gather(&mut c, products, t * outputs, step, y, to);
        });
        if !matches!(e.activation, Activation::None | Activation::Relu) {
            finish_rows(y, outputs, None, e.activation);
        }
        Ok(())
    })
}

/// The gradient of the image that `tiles` lie on, for the gradient `g` of their results: every step of [`convolve`]
/// transposed, the last first. Tiles overlap in the image, where they are added up; a block has whole images.
pub(super) fn transposed<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    g: &[A],
    weights: &Weights,
    dx: &mut [A],
) -> Result<()> {
    let [outputs, channels] = weights.shape;
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
        let mut c = Channels {
            add: true,
            ..Channels::new(channels, &zeros, &mut sink)
        };
        let step = apart(count, channels);
        dx.fill(A::default());
        tiles.under(0..rows.len(), channels, |t, to| {
            transforms
                .image_grad
                .gather(&mut c, products, t * channels, step, dx, to);
        });
        Ok(())
    })
}
