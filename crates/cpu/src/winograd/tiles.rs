//! The tiles that an image is cut into: their number, positions and cost.

use crate::conv::Geometry;
use crate::winograd::transform::NOWHERE;
use std::ops::Range;

/// The approximate number of elements of the transformed tiles of one block, for each channel.
const BLOCK: usize = 1296;
/// The number of tiles that a micro-kernel processes at once: a multiple of the micro-kernels' rows.
const ROWS: usize = 12;

/// The tiles of a convolution from an image (its *source*) to another (its *target*).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    batch: usize,
    source: [usize; 2],
    target: [usize; 2],
    /// The rows and columns of zeros before the source.
    padding: [usize; 2],
    /// The rows and columns of tiles of an image.
    pub(crate) count: [usize; 2],
    /// The rows and columns of results of a tile.
    pub(crate) sides: Sides,
}

/// The rows and columns of the results of a tile.
pub(crate) type Sides = [usize; 2];

impl Tiles {
    /// The tiles of the forward pass; `None` unless the window is 3×3 in two dimensions without strides, dilation and groups.
    pub(crate) fn new(g: &Geometry, sides: Sides) -> Option<Self> {
        let flat = g.kernel == [1, 3, 3] && g.input[0] == 1 && g.output[0] == 1 && g.padding[0] == 0;
        let plain = g.stride == [1; 3] && g.dilation == [1; 3] && g.groups == 1;
        (flat && plain).then(|| Tiles {
            batch: g.batch,
            source: [g.input[1], g.input[2]],
            target: [g.output[1], g.output[2]],
            padding: [g.padding[1], g.padding[2]],
            count: [g.output[1].div_ceil(sides[0]), g.output[2].div_ceil(sides[1])],
            sides,
        })
    }

    /// The tiles of the data gradient, from the output to the input.
    pub(crate) fn backward(g: &Geometry, sides: Sides) -> Option<Self> {
        let tiles = Tiles::new(g, sides).filter(|t| t.padding.iter().all(|&p| p <= 2))?;
        Some(Tiles {
            source: tiles.target,
            target: tiles.source,
            padding: tiles.padding.map(|p| 2 - p),
            count: [0, 1].map(|i| tiles.source[i].div_ceil(sides[i])),
            ..tiles
        })
    }

    /// The number of rows of tiles of all images.
    pub(crate) fn rows(&self) -> usize {
        self.batch * self.count[0]
    }

    /// The number of tiles of all images.
    pub(crate) fn all(&self) -> usize {
        self.rows() * self.count[1]
    }

    /// The number of rows of tiles in one block.
    pub(crate) fn per_block(&self) -> usize {
        self.fitting(self.count[1])
    }

    /// The number of images whose tiles make up one block.
    pub(crate) fn images_per_block(&self) -> usize {
        self.fitting(self.count[0] * self.count[1])
    }

    /// True if the tiles of an image fit in one block.
    pub(crate) fn image_fits(&self) -> bool {
        self.count[0] * self.count[1] * self.points() <= BLOCK
    }

    /// The number of groups of `size` tiles to process at once: about a block, with as little padding to whole micro-kernel
    /// tiles as possible.
    fn fitting(&self, size: usize) -> usize {
        let most = (BLOCK / self.points() / size).max(1);
        let covered = |n: usize| (n * size).next_multiple_of(ROWS) * 1000 / n / size;
        (most.div_ceil(2)..=most)
            .rev()
            .min_by_key(|&n| covered(n))
            .unwrap_or(most)
    }

    /// The number of elements of a channel of a source image.
    pub(crate) fn source_size(&self) -> usize {
        self.source[0] * self.source[1]
    }

    /// The line of the target, counted over all images, where row `row` of tiles starts.
    fn line(&self, row: usize) -> usize {
        row / self.count[0] * self.target[0] + row % self.count[0] * self.sides[0]
    }

    /// The number of elements of a transformed tile.
    pub(crate) fn points(&self) -> usize {
        (self.sides[0] + 2) * (self.sides[1] + 2)
    }

    /// The estimated time of the whole convolution, in multiply-adds.
    pub(crate) fn cost(&self, channels: usize, outputs: usize) -> usize {
        // Measured: the cost of the transforms per element.
        let share = if self.points() == 16 { 130 } else { 190 };
        let products = self.points() * channels * outputs;
        self.all() * (products + share * (channels + outputs)) + 8 * products
    }

    /// Calls `f(number, places)` for the tiles of `rows`, with the positions of the source elements under each tile; the source
    /// has `channels` channels.
    #[inline(always)]
    pub(crate) fn under<const POINTS: usize>(
        &self,
        rows: Range<usize>,
        channels: usize,
        mut f: impl FnMut(usize, &[usize; POINTS]),
    ) {
        let inside = |i: usize, tile: usize, step: usize| {
            let at = (self.sides[i] * tile + step).checked_sub(self.padding[i])?;
            (at < self.source[i]).then_some(at)
        };
        let mut number = 0;
        for row in rows {
            let (image, row) = (row / self.count[0], row % self.count[0]);
            let line = |step: usize| Some((image * self.source[0] + inside(0, row, step)?) * self.source[1] * channels);
            for column in 0..self.count[1] {
                let column = |step: usize| Some(inside(1, column, step)? * channels);
                f(number, &places(self.sides[1] + 2, line, column));
                number += 1;
            }
        }
    }

    /// As [`Tiles::under`], for the results of the tiles in the target, from the first of `rows` on.
    #[inline(always)]
    pub(crate) fn over<const RESULTS: usize>(
        &self,
        rows: Range<usize>,
        channels: usize,
        mut f: impl FnMut(usize, &[usize; RESULTS]),
    ) {
        let start = self.line(rows.start);
        let mut number = 0;
        for row in rows {
            let from = self.line(row) - start;
            let left = self.target[0] - row % self.count[0] * self.sides[0];
            let line = |step: usize| (step < left).then(|| (from + step) * self.target[1] * channels);
            for column in 0..self.count[1] {
                let column = |step: usize| {
                    let at = self.sides[1] * column + step;
                    (at < self.target[1]).then(|| at * channels)
                };
                f(number, &places(self.sides[1], line, column));
                number += 1;
            }
        }
    }

    /// The number of elements of the target before row `row` of tiles.
    pub(crate) fn before(&self, row: usize, channels: usize) -> usize {
        self.line(row) * self.target[1] * channels
    }
}

/// The positions of the elements of a tile with `width` columns, row by row, from those of its lines and columns.
#[inline(always)]
fn places<const ALL: usize>(
    width: usize,
    line: impl Fn(usize) -> Option<usize>,
    column: impl Fn(usize) -> Option<usize>,
) -> [usize; ALL] {
    let mut columns = [NOWHERE; 4];
    for (j, to) in columns[..width].iter_mut().enumerate() {
        *to = column(j).unwrap_or(NOWHERE);
    }
    let mut out = [NOWHERE; ALL];
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        if let Some(line) = line(i) {
            for (to, &column) in out.iter_mut().zip(&columns) {
                if column != NOWHERE {
                    *to = line + column;
                }
            }
        }
    }
    out
}
