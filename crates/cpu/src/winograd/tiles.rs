//! The tiles that an image is cut into: how many, where they lie, what they cost.

use crate::conv::Geometry;
use crate::winograd::transform::NOWHERE;
use std::ops::Range;

/// Elements of the transformed tiles of one block for each channel, about.
const BLOCK: usize = 1296;
/// Tiles that a product takes at once: a multiple of the micro-kernels' rows.
const ROWS: usize = 12;

/// The tiles of a convolution from an image (its *source*) to another (its *target*).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles {
    batch: usize,
    source: [usize; 2],
    target: [usize; 2],
    /// Rows and columns of zeros before the source.
    padding: [usize; 2],
    /// Rows and columns of tiles of an image.
    pub(crate) count: [usize; 2],
    /// Rows and columns of results that a tile gives.
    pub(crate) sides: Sides,
}

/// Rows and columns of the results of a tile.
pub(crate) type Sides = [usize; 2];

impl Tiles {
    /// Those of the forward pass, when the window is 3×3 in two dimensions without strides, dilation and groups.
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

    /// Those of the data gradient: from the output to the input.
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

    /// Rows of tiles of all images.
    pub(crate) fn rows(&self) -> usize {
        self.batch * self.count[0]
    }

    /// Tiles of all images.
    pub(crate) fn all(&self) -> usize {
        self.rows() * self.count[1]
    }

    /// Rows of tiles in one block.
    pub(crate) fn per_block(&self) -> usize {
        self.fitting(self.count[1])
    }

    /// Images whose tiles make up one block.
    pub(crate) fn images_per_block(&self) -> usize {
        self.fitting(self.count[0] * self.count[1])
    }

    /// Whether the tiles of an image are not too many for a block.
    pub(crate) fn image_fits(&self) -> bool {
        self.count[0] * self.count[1] * self.points() <= BLOCK
    }

    /// How many groups of `size` tiles to take at once: about a block, in as full tiles of the products as can be.
    fn fitting(&self, size: usize) -> usize {
        let most = (BLOCK / self.points() / size).max(1);
        let covered = |n: usize| (n * size).next_multiple_of(ROWS) * 1000 / n / size;
        (most.div_ceil(2)..=most)
            .rev()
            .min_by_key(|&n| covered(n))
            .unwrap_or(most)
    }

    /// Elements of a channel of an image of the source.
    pub(crate) fn source_size(&self) -> usize {
        self.source[0] * self.source[1]
    }

    /// The line of the target, counted over all images, where row `row` of tiles starts.
    fn line(&self, row: usize) -> usize {
        row / self.count[0] * self.target[0] + row % self.count[0] * self.sides[0]
    }

    /// Elements of a transformed tile.
    pub(crate) fn points(&self) -> usize {
        (self.sides[0] + 2) * (self.sides[1] + 2)
    }

    /// Multiply-adds that take as long as all of the convolution does.
    pub(crate) fn cost(&self, channels: usize, outputs: usize) -> usize {
        // As measured: an element's share of the transforms.
        let share = if self.points() == 16 { 130 } else { 190 };
        let products = self.points() * channels * outputs;
        self.all() * (products + share * (channels + outputs)) + 8 * products
    }

    /// Calls `f(number, places)` for the tiles of `rows`: where the elements of the source under them start, whose elements
    /// have `channels` channels.
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

    /// As [`Tiles::under`], of the results of the tiles in the target, from the first of `rows` on.
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

    /// The elements before row `row` of tiles of the target.
    pub(crate) fn before(&self, row: usize, channels: usize) -> usize {
        self.line(row) * self.target[1] * channels
    }
}

/// Where the elements of a tile with `width` columns start, row by row, given where its lines and columns do.
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
