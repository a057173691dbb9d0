//! Sums along the columns of row-major `[rows, columns]` memory, in vector lanes.

use crate::simd::real::Real;
use std::ops::{Deref, DerefMut, Range};

/// The number of accumulators of a tile: rows are long enough for the hardware prefetcher, and five of them stay in the L1
/// cache.
pub(crate) const TILE: usize = 512;

/// The lanes of one tile, aligned to a cache line: vectors that cross a line cost twice.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Lanes<A>([A; TILE]);

impl<A: Copy> Lanes<A> {
    /// Sets every lane to the same value.
    #[inline(always)]
    pub(crate) fn filled(value: A) -> Self {
        Lanes([value; TILE])
    }
}

impl<A> Deref for Lanes<A> {
    type Target = [A; TILE];
    #[inline(always)]
    fn deref(&self) -> &[A; TILE] {
        &self.0
    }
}

impl<A> DerefMut for Lanes<A> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [A; TILE] {
        &mut self.0
    }
}

/// Up to [`TILE`] adjacent columns of a `[rows, columns]` matrix. If the matrix has few columns, several rows are treated
/// as one long row, so that three channels fill the lanes as well as three hundred.
pub(crate) struct Tile {
    /// The number of columns of the matrix.
    stride: usize,
    /// The columns of this tile.
    pub(crate) columns: Range<usize>,
    /// The number of rows that are treated as one long row.
    together: usize,
}

impl Tile {
    /// The tiles that cover `columns` of a matrix that is `stride` wide.
    pub(crate) fn cover(stride: usize, columns: Range<usize>, rows: usize) -> impl Iterator<Item = Tile> {
        let whole = columns.len() == stride && stride <= TILE / 2;
        let together = if whole {
            (TILE / stride.max(1)).min(rows).max(1)
        } else {
            1
        };
        let end = columns.end;
        columns.step_by(TILE).map(move |start| Tile {
            stride,
            columns: start..(start + TILE).min(end),
            together,
        })
    }

    /// The number of lanes in use.
    pub(crate) fn width(&self) -> usize {
        self.together * self.columns.len()
    }

    /// The value of each column, repeated for the rows of a long row.
    pub(crate) fn spread<A: Real>(&self, values: &[A]) -> Lanes<A> {
        let mut lanes = Lanes::filled(A::default());
        lanes[..self.columns.len()].copy_from_slice(&values[self.columns.clone()]);
        self.repeat(lanes)
    }

    /// As [`Tile::spread`], with a function of the column.
    pub(crate) fn spread_with<A: Real>(&self, value: impl Fn(usize) -> A) -> Lanes<A> {
        let mut lanes = Lanes::filled(A::default());
        for (lane, column) in lanes.iter_mut().zip(self.columns.clone()) {
            *lane = value(column);
        }
        self.repeat(lanes)
    }

    /// Repeats the lanes of the first row for the others.
    fn repeat<A: Real>(&self, mut lanes: Lanes<A>) -> Lanes<A> {
        let (mut done, width) = (self.columns.len(), self.width());
        while done < width {
            let more = done.min(width - done);
            lanes.copy_within(..more, done);
            done += more;
        }
        lanes
    }

    /// Calls `f(range)` with the elements of each long row, for `rows` rows that begin at `start`.
    #[inline(always)]
    pub(crate) fn rows(&self, start: usize, rows: usize, mut f: impl FnMut(Range<usize>)) {
        let (long, rest) = (rows / self.together, rows % self.together);
        let mut at = start + self.columns.start;
        for _ in 0..long {
            f(at..at + self.width());
            at += self.together * self.stride;
        }
        if rest > 0 {
            f(at..at + rest * self.columns.len());
        }
    }

    /// Joins the rows of a long row into one value per column, which is left in the first lanes.
    #[inline(always)]
    pub(crate) fn join<'a, A: Real>(&self, lanes: &'a mut Lanes<A>, join: impl Fn(A, A) -> A) -> &'a [A] {
        let columns = self.columns.len();
        let mut groups = self.together;
        while groups > 1 {
            let upper = groups.div_ceil(2);
            let (low, high) = lanes.split_at_mut(upper * columns);
            for (a, &b) in low.iter_mut().zip(&high[..(groups - upper) * columns]) {
                *a = join(*a, b);
            }
            groups = upper;
        }
        &lanes[..columns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_visited_once() {
        for stride in [1, 2, 3, 63, 64, 65, 255, 256, 257, 512, 513, 1100] {
            for rows in [1, 2, 5, 127, 131] {
                let x: Vec<f64> = (0..rows * stride).map(|i| i as f64).collect();
                let mut sums = vec![0.0; stride];
                for tile in Tile::cover(stride, 0..stride, rows) {
                    let mut lanes = Lanes::filled(0.0);
                    tile.rows(0, rows, |at| {
                        lanes.iter_mut().zip(&x[at]).for_each(|(a, x)| *a += x);
                    });
                    let spread = tile.spread(&(0..stride).map(|c| c as f64).collect::<Vec<_>>());
                    let with = tile.spread_with(|c| c as f64);
                    for (lane, (a, b)) in spread[..tile.width()].iter().zip(&with[..]).enumerate() {
                        let column = tile.columns.start + lane % tile.columns.len();
                        assert_eq!((*a, *b), (column as f64, column as f64));
                    }
                    sums[tile.columns.clone()].copy_from_slice(tile.join(&mut lanes, |a, b| a + b));
                }
                for (c, &s) in sums.iter().enumerate() {
                    let want: usize = (0..rows).map(|r| r * stride + c).sum();
                    assert_eq!(s, want as f64, "{rows} rows of {stride}, column {c}");
                }
            }
        }
    }
}
