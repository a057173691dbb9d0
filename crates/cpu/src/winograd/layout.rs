//! How the matrices of a transformed convolution lie, and how long their sums are.

/// Channels, or tiles, whose products are summed by themselves.
pub(crate) const CHANNELS: usize = 64;

/// Elements from one point's matrix to the next: a line more than the matrix, so that the points of a tile do not meet in
/// one set of a cache.
pub(crate) fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
}
