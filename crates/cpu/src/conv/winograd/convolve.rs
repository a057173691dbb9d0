//! The convolution itself: blocks of tiles are transformed, multiplied and transformed back while they are in cache.

use super::apart;
use super::tiles::Tiles;
use crate::Cpu;
use crate::epilogue::finish_rows;
use crate::gemm::{Channels, Epilogue, Panels, Pointers, Source, Target, Transforms, Unit, by_rows, matrix};
use crate::parallel::{GRAIN, try_chunks_mut};
use crate::scalar::Scalar;
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
}

/// The transformed weights of each point, ready to be multiplied with.
pub(super) fn panels<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    w: &[A],
    channels: usize,
    direction: Direction,
) -> Result<Vec<Panels<'static, A>>> {
    let size = w.len() / 9;
    let mut all = cpu.scratch(A::DTYPE, POINTS * size)?;
    let all = all.as_mut_slice::<A>();
    let zeros = vec![A::default(); channels];
    let back = direction == Direction::Backward;
    let lines = (GRAIN / channels).max(1);
    // [outputs, points, channels]
    try_chunks_mut(all, lines * POINTS * channels, true, |at, to| {
        let mut c = Channels::new(channels, &zeros, &mut []);
        for (i, to) in to.chunks_exact_mut(POINTS * channels).enumerate() {
            let w = &w[(at / (POINTS * channels) + i) * 9 * channels..];
            let from = std::array::from_fn(|i| if back { 8 - i } else { i } * channels);
            transforms.weight.to_points(&mut c, w, &from, to, 0, channels);
        }
        Ok(())
    })?;
    let outputs = size / channels;
    let of_point = |i: usize| {
        let source = Source {
            data: &all[i * channels..],
            taps: &[0],
            steps: if back { outputs } else { channels },
            columns: if back { channels } else { outputs },
            k_step: if back { POINTS * channels } else { 1 },
            n_step: if back { 1 } else { POINTS * channels },
        };
        Panels::packed(cpu, A::kernels(), source)
    };
    (0..POINTS).map(of_point).collect()
}

/// Rows of tiles and, of the target, the part that they cover.
struct Part<'y, A> {
    rows: Range<usize>,
    y: &'y mut [A],
}

/// The convolution of `x` with transformed weights, block by block.
#[allow(clippy::too_many_arguments)]
pub(super) fn convolve<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    channels: usize,
    panels: &[Panels<'_, A>],
    outputs: usize,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<()> {
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
    try_chunks_mut(&mut parts, 1, true, |_, part| {
        let Part { rows, y } = &mut part[0];
        let count = rows.len() * tiles.count[1];
        let (image_step, product_step) = (apart(count, channels), apart(count, outputs));
        let mut images = cpu.scratch(A::DTYPE, POINTS * image_step)?;
        let images = images.as_mut_slice::<A>();
        let mut sink = vec![A::default(); outputs.max(channels)];
        let mut c = Channels::new(channels, &zeros, &mut sink);
        tiles.under(rows.clone(), channels, |t, from| {
            transforms
                .image
                .to_points(&mut c, x, from, images, t * channels, image_step);
        });
        let mut products = cpu.scratch(A::DTYPE, POINTS * product_step)?;
        let products = products.as_mut_slice::<A>();
        for (i, to) in products.chunks_exact_mut(product_step).enumerate() {
            let image = &images[i * image_step..][..count * channels];
            let mut fill = |tile: Range<usize>, unit: &Unit, to: &mut Pointers<'_, A>| {
                let at = tile.start * channels + unit.steps.start;
                to.tap(0, tile.len(), |i| Some(at + i * channels));
            };
            let none = Epilogue {
                bias: None,
                activation: Activation::None,
            };
            let to = Target::new(matrix(&mut to[..count * outputs], count, outputs));
            by_rows(A::kernels(), image, &mut fill, &panels[i], 0, count, to, &|i| i, none);
        }
        let mut c = Channels {
            bias: e.bias,
            relu: e.activation == Activation::Relu,
            ..Channels::new(outputs, &zeros, &mut sink)
        };
        tiles.over(rows.clone(), outputs, |t, to| {
            transforms
                .result
                .from_points(&mut c, products, t * outputs, product_step, y, to);
        });
        if !matches!(e.activation, Activation::None | Activation::Relu) {
            finish_rows(y, outputs, None, e.activation);
        }
        Ok(())
    })
}
