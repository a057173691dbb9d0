//! The layout of the matrices of a transformed convolution, and the length of their partial sums.

/// The number of channels, or tiles, in a partial sum.
pub(crate) const CHANNELS: usize = 64;

/// The distance from one point's matrix to the next, in elements: the matrix and one more cache line, so that the points of
/// a tile do not share a set of a cache.
pub(crate) fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
}
