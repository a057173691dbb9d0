//! Winograd's convolution F(2×2, 3×3): windows of 3×3 and stride 1 with 16 multiplications for each 2×2 results, not 36.
//!
//! The image is cut into tiles of 4×4 that overlap by two. Tiles and weights are transformed, each of the 16 elements of a
//! transformed tile gives a product of matrices over the channels (tiles × channels · channels × outputs), and the results
//! of the 16 products are transformed back. Blocks of tiles go through all of this while they are in cache.
//!
//! The data gradient is the same convolution of the output's gradient with the weights turned around. The weight gradient
//! sums products of transformed tiles of the image and of the output's gradient over all tiles.
//!
//! The transforms only add and halve, so that rounding stays that of a sum of a few more terms: the largest error against f64 is
//! within twice that of the direct sums in the tests here.

use super::Geometry;
use crate::epilogue::finish_rows;
use crate::gemm::{
    Channels, Epilogue, Left, NOWHERE, Panels, Pointers, Segment, Source, Target, Unit, by_columns, by_rows, matrix,
    sum_parts,
};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;
use std::ops::Range;

/// Elements of a transformed tile.
const POINTS: usize = 16;
/// Tiles of one block, about.
const BLOCK: usize = 96;

/// The tiles of a convolution from an image (its *source*) to another (its *target*).
#[derive(Clone, Copy)]
struct Tiles {
    batch: usize,
    source: [usize; 2],
    target: [usize; 2],
    /// Rows and columns of zeros before the source.
    padding: [usize; 2],
    /// Rows and columns of tiles of an image.
    count: [usize; 2],
}

impl Tiles {
    /// Those of the forward pass, when the window is 3×3 in two dimensions without strides, dilation and groups.
    fn new(g: &Geometry) -> Option<Self> {
        let flat = g.kernel == [1, 3, 3] && g.input[0] == 1 && g.output[0] == 1 && g.padding[0] == 0;
        let plain = g.stride == [1; 3] && g.dilation == [1; 3] && g.groups == 1;
        (flat && plain).then(|| Tiles {
            batch: g.batch,
            source: [g.input[1], g.input[2]],
            target: [g.output[1], g.output[2]],
            padding: [g.padding[1], g.padding[2]],
            count: [g.output[1].div_ceil(2), g.output[2].div_ceil(2)],
        })
    }

    /// Those of the data gradient: from the output to the input.
    fn backward(g: &Geometry) -> Option<Self> {
        let tiles = Tiles::new(g).filter(|t| t.padding.iter().all(|&p| p <= 2))?;
        Some(Tiles {
            source: tiles.target,
            target: tiles.source,
            padding: tiles.padding.map(|p| 2 - p),
            count: tiles.source.map(|n| n.div_ceil(2)),
            ..tiles
        })
    }

    /// Rows of tiles of all images.
    fn rows(&self) -> usize {
        self.batch * self.count[0]
    }

    /// Rows of tiles in one block.
    fn per_block(&self) -> usize {
        (BLOCK / self.count[1]).max(1)
    }

    /// The line of the target, counted over all images, where row `row` of tiles starts.
    fn line(&self, row: usize) -> usize {
        row / self.count[0] * self.target[0] + row % self.count[0] * 2
    }

    /// Products of one element of the window with one of the image that lie inside the source.
    fn direct(&self) -> usize {
        let inside = |i: usize| {
            let taps =
                |o: usize| (o..o + 3).filter(|&at| at >= self.padding[i] && at - self.padding[i] < self.source[i]);
            (0..self.target[i]).map(|o| taps(o).count()).sum::<usize>()
        };
        self.batch * inside(0) * inside(1)
    }

    /// Whether transforms cost less than the multiplications that they save.
    fn pays(&self, channels: usize, outputs: usize) -> bool {
        let products = POINTS * channels * outputs;
        // As measured, in multiply-adds: an element's share of the transforms of tiles, and of weights.
        let tiles = self.rows() * self.count[1];
        let cost = tiles * (products + 80 * (channels + outputs)) + 4 * products;
        channels >= 16 && outputs >= 16 && cost * 10 < self.direct() * channels * outputs * 9
    }

    /// Calls `f(number, places)` for the tiles of `rows`: where the 4×4 elements of the source under them start, whose elements
    /// have `channels` channels.
    #[inline(always)]
    fn under(&self, rows: Range<usize>, channels: usize, mut f: impl FnMut(usize, &[usize; POINTS])) {
        let mut number = 0;
        for row in rows {
            let (image, row) = (row / self.count[0], row % self.count[0]);
            let lines = [0, 1, 2, 3].map(|i| match (2 * row + i).checked_sub(self.padding[0]) {
                Some(h) if h < self.source[0] => (image * self.source[0] + h) * self.source[1] * channels,
                _ => NOWHERE,
            });
            for column in 0..self.count[1] {
                let columns = [0, 1, 2, 3].map(|j| match (2 * column + j).checked_sub(self.padding[1]) {
                    Some(w) if w < self.source[1] => w * channels,
                    _ => NOWHERE,
                });
                f(number, &places(lines, columns));
                number += 1;
            }
        }
    }

    /// As [`Tiles::under`], of the 2×2 elements of the target.
    #[inline(always)]
    fn over(&self, rows: Range<usize>, channels: usize, mut f: impl FnMut(usize, &[usize; 4])) {
        let start = self.line(rows.start);
        let mut number = 0;
        for row in rows {
            let line = self.line(row) - start;
            let left = self.target[0] - row % self.count[0] * 2;
            let lines = [0, 1].map(|i| {
                if i < left {
                    (line + i) * self.target[1] * channels
                } else {
                    NOWHERE
                }
            });
            for column in 0..self.count[1] {
                let columns = [2 * column, 2 * column + 1];
                let columns = columns.map(|w| if w < self.target[1] { w * channels } else { NOWHERE });
                f(number, &places(lines, columns));
                number += 1;
            }
        }
    }

    /// The elements before row `row` of tiles of the target.
    fn before(&self, row: usize, channels: usize) -> usize {
        self.line(row) * self.target[1] * channels
    }
}

/// Where the elements of a tile start, row by row, given its lines and columns.
#[inline(always)]
fn places<const N: usize, const ALL: usize>(lines: [usize; N], columns: [usize; N]) -> [usize; ALL] {
    let mut out = [NOWHERE; ALL];
    for i in 0..N {
        for j in 0..N {
            if lines[i] != NOWHERE && columns[j] != NOWHERE {
                out[i * N + j] = lines[i] + columns[j];
            }
        }
    }
    out
}

/// Elements from one point's matrix to the next: a line more than the matrix, so that the points of a tile do not meet in one set
/// of a cache.
fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
}

/// The transformed weights, `[16, outputs, channels]`.
fn transformed<A: Scalar>(cpu: &Cpu, w: &[A], channels: usize) -> Result<CpuBuffer> {
    let outputs = w.len() / (9 * channels);
    let mut all = cpu.scratch(A::DTYPE, POINTS * outputs * channels)?;
    let to = all.as_mut_slice::<A>();
    let (zeros, mut sink) = (vec![A::default(); channels], Vec::new());
    let mut c = Channels::new(channels, &zeros, &mut sink);
    for n in 0..outputs {
        let from = std::array::from_fn(|i| (n * 9 + i) * channels);
        let weight = A::kernels().winograd.weight;
        weight.to_points(&mut c, w, &from, to, n * channels, outputs * channels);
    }
    Ok(all)
}

/// `y = f(x ⋆ w + bias)`; `None` when direct sums are as good.
pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<Option<()>> {
    let Some(tiles) = Tiles::new(g).filter(|t| t.pays(g.channels, g.outputs)) else {
        return Ok(None);
    };
    let (channels, outputs) = (g.channels, g.outputs);
    let weights = transformed(cpu, w, channels)?;
    let mut panels = Vec::with_capacity(POINTS);
    for w in weights.as_slice::<A>().chunks_exact(outputs * channels) {
        let source = Source {
            data: w,
            taps: &[0],
            steps: channels,
            columns: outputs,
            k_step: 1,
            n_step: channels,
        };
        panels.push(Panels::packed(cpu, A::kernels(), source)?);
    }
    drop(weights);
    let e = Epilogue { bias, activation: f };
    convolve(cpu, &tiles, x, channels, &panels, outputs, e, y).map(Some)
}

/// The gradient with respect to the input; `None` when direct sums are as good.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<Option<()>> {
    let Some(tiles) = Tiles::backward(p).filter(|t| t.pays(p.outputs, p.channels)) else {
        return Ok(None);
    };
    let (channels, outputs) = (p.channels, p.outputs);
    let weights = transformed(cpu, w, channels)?;
    let weights = weights.as_slice::<A>();
    let mut panels = Vec::with_capacity(POINTS);
    for i in 0..POINTS {
        // Turned around, a window's transform has its outer rows and columns exchanged.
        let turned = |i: usize| [3, 1, 2, 0][i];
        let data = &weights[(4 * turned(i / 4) + turned(i % 4)) * outputs * channels..];
        let source = Source {
            data,
            taps: &[0],
            steps: outputs,
            columns: channels,
            k_step: channels,
            n_step: 1,
        };
        panels.push(Panels::packed(cpu, A::kernels(), source)?);
    }
    let none = Epilogue {
        bias: None,
        activation: Activation::None,
    };
    convolve(cpu, &tiles, g, outputs, &panels, channels, none, dx).map(Some)
}

/// Rows of tiles and, of the target, the part that they cover.
struct Part<'y, A> {
    rows: Range<usize>,
    y: &'y mut [A],
}

/// The convolution of `x` with transformed weights, block by block.
#[allow(clippy::too_many_arguments)]
fn convolve<A: Scalar>(
    cpu: &Cpu,
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
        let image = A::kernels().winograd.image;
        tiles.under(rows.clone(), channels, |t, from| {
            image.to_points(&mut c, x, from, images, t * channels, image_step);
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
        let result = A::kernels().winograd.result;
        tiles.over(rows.clone(), outputs, |t, to| {
            result.from_points(&mut c, products, t * outputs, product_step, y, to);
        });
        if !matches!(e.activation, Activation::None | Activation::Relu) {
            finish_rows(y, outputs, None, e.activation);
        }
        Ok(())
    })
}

/// Elements of all partial gradients together, about.
const PARTS: usize = 1 << 21;
/// Channels of the image that a task of the weight gradient takes at least, when there are as many.
const CHANNELS: usize = 64;

/// The gradient with respect to the weight; `None` when direct sums are as good.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<Option<()>> {
    let Some(tiles) = Tiles::new(p).filter(|t| t.pays(p.channels, p.outputs)) else {
        return Ok(None);
    };
    let (channels, outputs) = (p.channels, p.outputs);
    // Parts of the channels cost nothing but the gradient's transform, parts of the tiles cost memory.
    let chunk = if channels >= 2 * CHANNELS { CHANNELS } else { channels };
    let size = POINTS * channels * outputs;
    let parts = 8usize
        .div_ceil(channels.div_ceil(chunk))
        .min((PARTS / size).max(1))
        .min(tiles.rows());
    let part = tiles.rows().div_ceil(parts);
    // For every part, the gradients [16, chunk, outputs] of each chunk of channels.
    let mut sums = cpu.scratch(A::DTYPE, parts * size)?;
    let mut tasks = Vec::new();
    for (i, of_part) in sums.as_mut_slice::<A>().chunks_exact_mut(size).enumerate() {
        for (j, sum) in of_part.chunks_mut(POINTS * chunk * outputs).enumerate() {
            tasks.push((i * part..((i + 1) * part).min(tiles.rows()), j * chunk, sum));
        }
    }
    let zeros = vec![A::default(); chunk.max(outputs)];
    try_chunks_mut(&mut tasks, 1, true, |_, task| {
        let (rows, first, sum) = &mut task[0];
        let count = sum.len() / (POINTS * outputs);
        let mut from = rows.start;
        if rows.start == rows.end {
            sum.fill(A::default());
        }
        let mut sink = vec![A::default(); chunk.max(outputs)];
        while from < rows.end {
            let block = from..(from + tiles.per_block()).min(rows.end);
            let n = block.len() * tiles.count[1];
            let (image_step, grad_step) = (apart(n, count), apart(n, outputs));
            let mut images = cpu.scratch(A::DTYPE, POINTS * image_step)?;
            let images = images.as_mut_slice::<A>();
            let mut grads = cpu.scratch(A::DTYPE, POINTS * grad_step)?;
            let grads = grads.as_mut_slice::<A>();
            let mut c = Channels::new(count, &zeros, &mut sink);
            let image = A::kernels().winograd.image;
            tiles.under(block.clone(), channels, |t, from| {
                image.to_points(&mut c, &x[*first..], from, images, t * count, image_step);
            });
            c.len = outputs;
            let (g, grad) = (
                &g[tiles.before(block.start, outputs)..],
                A::kernels().winograd.result_grad,
            );
            tiles.over(block.clone(), outputs, |t, from| {
                grad.to_points(&mut c, g, from, grads, t * outputs, grad_step);
            });
            for (i, sum) in sum.chunks_exact_mut(count * outputs).enumerate() {
                by_columns(
                    A::kernels(),
                    &[Segment { a: 0, b: 0, len: n }],
                    Left {
                        data: &images[i * image_step..][..n * count],
                        step: count,
                    },
                    Left {
                        data: &grads[i * grad_step..][..n * outputs],
                        step: outputs,
                    },
                    Target::new(matrix(sum, count, outputs)),
                    from > rows.start,
                );
            }
            from = block.end;
        }
        Ok(())
    })?;
    let mut total = cpu.scratch(A::DTYPE, if parts > 1 { size } else { 0 })?;
    let sums = if parts > 1 {
        sum_parts(sums.as_slice(), total.as_mut_slice::<A>());
        total.as_slice::<A>()
    } else {
        sums.as_slice::<A>()
    };
    // Some outputs at a time, transformed back and turned from [9, outputs] to [outputs, 9] channel by channel.
    const SOME: usize = 16;
    try_chunks_mut(dw, SOME * 9 * channels, true, |at, dw| {
        let output = at / (9 * channels);
        let some = SOME.min(outputs - output);
        let to = std::array::from_fn(|i| i * SOME);
        let mut squares = [A::default(); 9 * SOME];
        let mut sink = [A::default(); SOME];
        let mut c = Channels::new(some, &[], &mut sink);
        for channel in 0..channels {
            let (j, inside) = (channel / chunk, channel % chunk);
            let count = chunk.min(channels - j * chunk);
            let from = (POINTS * chunk * j + inside) * outputs + output;
            let weight = A::kernels().winograd.weight_grad;
            weight.from_points(&mut c, sums, from, count * outputs, &mut squares, &to);
            for (i, square) in squares.chunks_exact(SOME).enumerate() {
                for (n, &value) in square[..some].iter().enumerate() {
                    dw[(n * 9 + i) * channels + channel] = value;
                }
            }
        }
        Ok(())
    })?;
    Ok(Some(()))
}
