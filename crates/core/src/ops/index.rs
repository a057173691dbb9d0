//! Ops that move elements: strided views (permute, slice, flip, expand and their inverses), gather, scatter, one-hot.

use super::{Dims, Op, Strides};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// A strided view of a contiguous tensor: element `i` of the view is at `offset + Σ i[d]·strides[d]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ViewParams {
    /// Dimensions of the view.
    pub shape: Dims,
    /// Strides into the viewed tensor in elements; negative when flipped, 0 when expanded.
    pub strides: Strides,
    /// The position of the view's first element.
    pub offset: u64,
    /// The number of elements of the view.
    pub n: u64,
    /// Number of dimensions in use.
    pub rank: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<ViewParams>() == 152);

impl ViewParams {
    /// Creates a view of `shape` with the given strides and offset, which the caller has checked to stay inside the tensor.
    /// Dimensions of size 1 are dropped, and adjacent ones that step as one are merged.
    pub fn new(shape: &Shape, strides: &[i64], offset: usize) -> Self {
        let mut p = ViewParams::zeroed();
        let mut rank = 0usize;
        for (&d, &s) in shape.dims().iter().zip(strides) {
            if d == 1 {
                continue;
            }
            if rank > 0 && Some(p.strides[rank - 1]) == s.checked_mul(d as i64) {
                p.shape[rank - 1] *= d as u64;
                p.strides[rank - 1] = s;
            } else {
                p.shape[rank] = d as u64;
                p.strides[rank] = s;
                rank += 1;
            }
        }
        p.shape[rank..].fill(1);
        p.rank = rank as u32;
        p.offset = offset as u64;
        p.n = shape.size() as u64;
        p
    }
}

/// Buffers of one dtype, or some of them, that together are another: the parts of a list one after another.
#[derive(Debug)]
pub struct Join<'a, Buf> {
    /// The parts.
    pub parts: Vec<&'a Buf>,
    /// The whole, as long as all parts together.
    pub whole: &'a mut Buf,
}

/// A buffer that is taken apart into others of its dtype.
#[derive(Debug)]
pub struct Split<'a, Buf> {
    /// The whole.
    pub whole: &'a Buf,
    /// The parts with the position of their first element in the whole.
    pub parts: Vec<(usize, &'a mut Buf)>,
}

/// Parameters of indexing along one axis: the source is `[outer, size, inner]`, the result `[outer, count, inner]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct IndexParams {
    /// Product of the dimensions before the axis.
    pub outer: u64,
    /// The size of the axis in the source; indices are in `0..size`.
    pub size: u64,
    /// Product of the dimensions after the axis.
    pub inner: u64,
    /// The size of the axis in the result.
    pub count: u64,
}
const _: () = assert!(size_of::<IndexParams>() == 32);

impl IndexParams {
    /// Parameters for picking `count` entries along `axis` of `shape`.
    ///
    /// # Errors
    /// [`Error::Axis`] when the axis is out of range.
    pub fn new(op: &'static str, shape: &Shape, axis: isize, count: usize) -> Result<Self> {
        let (outer, size, inner) = shape.around(op, axis)?;
        Ok(IndexParams {
            outer: outer as u64,
            size: size as u64,
            inner: inner as u64,
            count: count as u64,
        })
    }

    /// Parameters of gather and scatter-add along `axis`, where `index` has the rank of `shape` and equals it in
    /// every dimension but `axis`.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range, [`Error::ShapeMismatch`] for an index of another shape.
    pub fn gather(op: &'static str, shape: &Shape, index: &Shape, axis: isize) -> Result<Self> {
        let a = shape.axis(op, axis)?;
        let fits = index.rank() == shape.rank() && (0..shape.rank()).all(|i| i == a || index[i] == shape[i]);
        if !fits {
            return Err(Error::ShapeMismatch {
                op,
                lhs: *shape,
                rhs: *index,
            });
        }
        Self::new(op, shape, axis, index[a])
    }
}

/// The ops of a backend that move elements. Indices are i32; one outside its range is an [`Error::IndexOutOfRange`].
pub trait IndexOps: Runtime {
    /// Reads a view of `x` into the contiguous `y`. Any dtype.
    fn view_read(&self, p: &ViewParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// Writes the contiguous `x` through a view of `y`; the other elements of `y` stay. The view does not overlap itself.
    /// Any dtype.
    fn view_write(&self, p: &ViewParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// Copies the parts of each list into their whole, one after another (`torch.cat` of flat tensors). Any dtype.
    fn join(&self, joins: &mut [Join<'_, Self::Buffer>]) -> Result<()> {
        let _ = joins;
        self.unsupported(Op::Join)
    }

    /// Copies stretches of each whole into their parts (`torch.split` of flat tensors). Any dtype.
    fn split(&self, splits: &mut [Split<'_, Self::Buffer>]) -> Result<()> {
        let _ = splits;
        self.unsupported(Op::Split)
    }

    /// `y[o, j, i] = x[o, index[o, j, i], i]` (`torch.gather`).
    fn gather(&self, p: &IndexParams, x: &Self::Buffer, index: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `y[o, index[o, j, i], i] += x[o, j, i]` in the order of `j`, so that the result does not depend on threads
    /// (`torch.scatter_add`).
    fn scatter_add(&self, p: &IndexParams, x: &Self::Buffer, index: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `y[o, j, i] = x[o, index[j], i]`, for any dtype of `x` (`torch.index_select`).
    fn index_select(
        &self,
        p: &IndexParams,
        x: &Self::Buffer,
        index: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, index, y);
        self.unsupported(Op::IndexSelect)
    }

    /// `y[o, index[j], i] += x[o, j, i]` in the order of `j`, so that the result does not depend on threads
    /// (`torch.index_add`).
    fn index_add(&self, p: &IndexParams, x: &Self::Buffer, index: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, x, index, y);
        self.unsupported(Op::IndexSelect)
    }

    /// `y[r, c] = 1` where `c = index[r]`, else 0; `outer` rows of `size` classes.
    fn one_hot(&self, p: &IndexParams, index: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, index, y);
        self.unsupported(Op::OneHot)
    }
}
