//! Where a shape can be wrong: its size, its axes, and whether it broadcasts to another.

use super::{MAX_RANK, Shape};
use crate::{Error, Result};

impl Shape {
    /// Checks the rank and the size of `dims`.
    ///
    /// # Errors
    /// [`Error::Rank`] past [`MAX_RANK`] dimensions, [`Error::TooLarge`] when the product overflows.
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::Rank {
                op: "shape",
                expected: "at most 8",
                rank: dims.len(),
            });
        }
        // Zero-sized dimensions do not excuse an overflow of the others: a later reshape or stride would meet it.
        let mut size = 1usize;
        for &d in dims {
            size = size
                .checked_mul(d.max(1))
                .filter(|&s| s <= isize::MAX as usize / 8)
                .ok_or_else(|| Error::TooLarge {
                    op: "shape",
                    dims: dims.to_vec(),
                })?;
        }
        let mut shape = Shape {
            rank: dims.len(),
            dims: [0; MAX_RANK],
        };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// Resolves an axis that may count from the end (−1 is the last).
    ///
    /// # Errors
    /// [`Error::Axis`] when it is outside `-rank..rank`.
    pub fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        let rank = self.rank as isize;
        let index = if axis < 0 { axis.checked_add(rank) } else { Some(axis) };
        match index {
            Some(i) if (0..rank).contains(&i) => Ok(i as usize),
            _ => Err(Error::Axis { op, axis, shape: *self }),
        }
    }

    /// Resolves a list of axes, each once.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range, [`Error::InvalidArgument`] for one named twice.
    pub fn axes(&self, op: &'static str, axes: &[isize]) -> Result<[bool; MAX_RANK]> {
        let mut marked = [false; MAX_RANK];
        for &a in axes {
            let i = self.axis(op, a)?;
            if std::mem::replace(&mut marked[i], true) {
                return Err(Error::invalid(op, "axes", format!("{axes:?}"), "each axis once"));
            }
        }
        Ok(marked)
    }

    /// The shape of `self` and `other` combined by NumPy's broadcasting rule.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] when two dimensions differ and neither is 1.
    pub fn broadcast(&self, op: &'static str, other: &Shape) -> Result<Shape> {
        let rank = self.rank.max(other.rank);
        let mut dims = [0; MAX_RANK];
        for (i, out) in dims[..rank].iter_mut().enumerate() {
            let at = |s: &Shape| (i + s.rank).checked_sub(rank).map_or(1, |j| s.dims[j]);
            *out = match (at(self), at(other)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => {
                    return Err(Error::ShapeMismatch {
                        op,
                        lhs: *self,
                        rhs: *other,
                    });
                }
            };
        }
        Shape::new(&dims[..rank])
    }

    /// Strides that read `self` as if it had shape `to`: 0 along broadcast dimensions.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] when `self` does not broadcast to `to`.
    pub fn broadcast_strides(&self, op: &'static str, to: &Shape) -> Result<[i64; MAX_RANK]> {
        if self.broadcast(op, to)? != *to {
            let (lhs, rhs) = (*self, *to);
            return Err(Error::ShapeMismatch { op, lhs, rhs });
        }
        let own = self.strides();
        let mut strides = [0; MAX_RANK];
        let lead = to.rank - self.rank;
        for i in 0..self.rank {
            if self.dims[i] != 1 {
                strides[lead + i] = own[i] as i64;
            }
        }
        Ok(strides)
    }

    /// The same shape with dimension `axis` replaced by `size`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the new size overflows, [`Error::Axis`] for an axis that there is not.
    pub fn with(&self, axis: usize, size: usize) -> Result<Shape> {
        let mut dims = self.dims;
        match dims[..self.rank].get_mut(axis) {
            Some(dim) => *dim = size,
            None => {
                let (op, axis) = ("shape", isize::try_from(axis).unwrap_or(isize::MAX));
                return Err(Error::Axis { op, axis, shape: *self });
            }
        }
        Shape::new(&dims[..self.rank])
    }

    /// The sizes before, at and after an axis that may count from the end: how one-axis kernels see a tensor.
    ///
    /// # Errors
    /// [`Error::Axis`] when it is out of range.
    pub fn around(&self, op: &'static str, axis: isize) -> Result<(usize, usize, usize)> {
        let (d, axis) = (self.dims(), self.axis(op, axis)?);
        Ok((d[..axis].iter().product(), d[axis], d[axis + 1..].iter().product()))
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = Error;
    fn try_from(dims: &[usize]) -> Result<Self> {
        Shape::new(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(d: &[usize]) -> Shape {
        Shape::new(d).unwrap()
    }

    #[test]
    fn sizes_are_checked() {
        assert!(matches!(Shape::new(&[usize::MAX, 2]), Err(Error::TooLarge { .. })));
        assert!(matches!(Shape::new(&[0, usize::MAX, 2]), Err(Error::TooLarge { .. })));
        assert!(matches!(Shape::new(&[1; 9]), Err(Error::Rank { .. })));
        assert_eq!(Shape::scalar().size(), 1);
        assert_eq!(shape(&[2, 0, 3]).size(), 0);
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let b = |a: &[usize], c: &[usize]| shape(a).broadcast("t", &shape(c)).map(|s| s.to_vec());
        assert_eq!(b(&[2, 1, 3], &[4, 1]).unwrap(), [2, 4, 3]);
        assert_eq!(b(&[], &[5]).unwrap(), [5]);
        assert_eq!(b(&[1], &[0]).unwrap(), [0]);
        assert!(b(&[2], &[3]).is_err());
        let strides = |a: &[usize], to: &[usize]| shape(a).broadcast_strides("t", &shape(to));
        assert_eq!(strides(&[3, 1], &[2, 3, 4]).unwrap()[..3], [0, 1, 0]);
        for (a, to) in [(&[2, 3][..], &[3][..]), (&[3], &[2]), (&[2], &[1]), (&[1; 8], &[])] {
            assert!(
                matches!(strides(a, to), Err(Error::ShapeMismatch { .. })),
                "{a:?} to {to:?}"
            );
        }
    }

    #[test]
    fn axes_count_from_either_end() {
        let s = shape(&[2, 3, 4]);
        assert_eq!(s.axis("t", -1).unwrap(), 2);
        assert!(s.axis("t", 3).is_err());
        assert!(s.axis("t", isize::MIN).is_err());
        assert!(s.axes("t", &[0, -3]).is_err());
        assert_eq!(s.around("t", 1).unwrap(), (2, 3, 4));
        assert_eq!(s.around("t", -1).unwrap(), (6, 4, 1));
        assert!(s.around("t", 3).is_err() && Shape::scalar().around("t", 0).is_err());
        assert!(matches!(s.with(3, 1), Err(Error::Axis { axis: 3, .. })) && s.with(usize::MAX, 1).is_err());
    }
}
