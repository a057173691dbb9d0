//! Shapes: up to [`MAX_RANK`] dimensions by value, with checked sizes.

mod checked;

use std::fmt;
use std::ops::Deref;

/// The largest rank a tensor may have.
pub const MAX_RANK: usize = 8;

/// The dimensions of a contiguous row-major tensor, by value.
///
/// A `Shape` that exists has a size that fits: the product of its dimensions is at most `isize::MAX / 8`, so byte
/// counts of every dtype are exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    rank: usize,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// The shape of a scalar: rank 0, one element.
    pub const fn scalar() -> Self {
        Shape {
            rank: 0,
            dims: [0; MAX_RANK],
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Number of elements: the product of the dimensions, 1 for a scalar.
    pub fn size(&self) -> usize {
        self.dims().iter().product()
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut step = 1;
        for i in (0..self.rank).rev() {
            strides[i] = step;
            step *= self.dims[i].max(1);
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        self.dims()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dims(), f)
    }
}
