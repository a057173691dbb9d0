//! Operands of products as they lie in memory.

use std::ops::Range;

/// The dimension along which neighbouring elements of an operand lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A line is a row of A or a column of B: its elements follow one another along k.
    AlongK,
    /// A line is a step of k: its elements are those of the rows of A, or of the columns of B.
    AcrossK,
}

/// An operand that is read line by line.
pub(crate) trait Source<T>: Sync {
    fn order(&self) -> Order;

    /// Copies the elements `range` of each of `lines` to rows of `to`, `step` apart. Elements that are not there, as where a
    /// window reaches over the border of an image, are zeros.
    fn copy(&self, lines: Range<usize>, range: Range<usize>, to: &mut [T], step: usize);
}

/// A matrix whose lines lie `step` apart.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) step: usize,
    pub(crate) order: Order,
}

impl<T: Copy + Sync> Source<T> for Matrix<'_, T> {
    fn order(&self) -> Order {
        self.order
    }

    fn copy(&self, lines: Range<usize>, range: Range<usize>, to: &mut [T], step: usize) {
        let len = range.len();
        if len == 0 {
            return;
        }
        for (line, to) in lines.zip(to.chunks_mut(step)) {
            copy_short(&self.data[line * self.step + range.start..][..len], &mut to[..len]);
        }
    }
}

/// Copies a slice. A copy of a constant length compiles to a few moves instead of a call.
#[inline(always)]
pub(crate) fn copy_short<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        64 => to[..64].copy_from_slice(&from[..64]),
        32 => to[..32].copy_from_slice(&from[..32]),
        16 => to[..16].copy_from_slice(&from[..16]),
        8 => to[..8].copy_from_slice(&from[..8]),
        _ => to.copy_from_slice(from),
    }
}
