//! Reductions over any axes, arg-reductions, cumulative sum and top-k along one axis.

use super::{Dims, Op, coded, dim32};
use crate::{Error, MAX_RANK, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

coded! {
    /// A reduction.
    Reduce {
        /// Σx
        Sum,
        /// Σx / n
        Mean,
        /// The largest element; NaN if any is. An empty reduction is an error.
        Max,
        /// The smallest element; NaN if any is. An empty reduction is an error.
        Min,
        /// Σx²
        SumSquares,
    }
}

/// Parameters of a [`Reduce`] op; the dimensions alternate between kept and reduced.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct ReduceParams {
    /// The input dimensions, with adjacent ones of the same kind merged and those of size 1 dropped.
    pub shape: Dims,
    /// Bit i is set when dimension i is reduced.
    pub reduced: u32,
    /// Number of dimensions in use.
    pub rank: u32,
    /// Code of the [`Reduce`] function.
    pub op: u32,
    /// Zero.
    pub pad: u32,
    /// The number of elements of the output.
    pub outputs: u64,
    /// The number of elements reduced into each output.
    pub count: u64,
}
const _: () = assert!(size_of::<ReduceParams>() == 96);

impl ReduceParams {
    /// Parameters for reducing `axes` of `shape` (all axes if the list is empty); returns them with the shape of the result.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; an error for an axis named twice and for an empty maximum or minimum.
    pub fn new(op: &'static str, f: Reduce, shape: &Shape, axes: &[isize], keep_dim: bool) -> Result<(Self, Shape)> {
        let mut marked = shape.axes(op, axes)?;
        if axes.is_empty() {
            marked = [true; MAX_RANK];
        }
        let mut p = ReduceParams::zeroed();
        (p.outputs, p.count, p.op) = (1, 1, f as u32);
        let (mut kept, mut n) = ([0; MAX_RANK], 0);
        for (i, &d) in shape.dims().iter().enumerate() {
            if marked[i] {
                p.count *= d as u64;
            } else {
                p.outputs *= d as u64;
            }
            if !marked[i] || keep_dim {
                kept[n] = if marked[i] { 1 } else { d };
                n += 1;
            }
            if d == 1 {
                continue;
            }
            let rank = p.rank as usize;
            if rank > 0 && (p.reduced >> (rank - 1)) & 1 == u32::from(marked[i]) {
                p.shape[rank - 1] *= d as u64;
            } else {
                p.shape[rank] = d as u64;
                p.reduced |= u32::from(marked[i]) << rank;
                p.rank += 1;
            }
        }
        p.shape[p.rank as usize..].fill(1);
        if p.count == 0 && p.outputs > 0 && matches!(f, Reduce::Max | Reduce::Min) {
            return Err(Error::invalid(op, "shape", shape, "a non-empty reduction"));
        }
        Ok((p, Shape::new(&kept[..n])?))
    }

    /// The function.
    ///
    /// # Panics
    /// If the code is not that of a variant, which the [`checks`](crate::checks) of an op exclude.
    pub fn op(&self) -> Reduce {
        Reduce::ALL[self.op as usize]
    }
}

/// Parameters of an op along one axis of a tensor as `[outer, n, inner]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AxisParams {
    /// Product of the dimensions before the axis.
    pub outer: u64,
    /// Size of the axis.
    pub n: u64,
    /// Product of the dimensions after the axis.
    pub inner: u64,
    /// The size of the axis in the output, where it differs (`k` of top-k).
    pub k: u64,
    /// 1 to take the smallest rather than the largest (arg-reduction, top-k), or to sum from the end (cumsum).
    pub reverse: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<AxisParams>() == 40);

impl AxisParams {
    /// Parameters for `axis` of `shape`.
    ///
    /// # Errors
    /// [`Error::Axis`](crate::Error::Axis) when the axis is out of range.
    pub fn new(op: &'static str, shape: &Shape, axis: isize, k: usize, reverse: bool) -> Result<Self> {
        let (outer, n, inner) = shape.around(op, axis)?;
        Ok(AxisParams {
            outer: outer as u64,
            n: n as u64,
            inner: inner as u64,
            k: k as u64,
            reverse: u32::from(reverse),
            pad: 0,
        })
    }

    /// Parameters of an arg-reduction along `axis`.
    ///
    /// # Errors
    /// An axis out of range; one that is empty, or too long for i32, in a tensor that has outputs.
    pub fn arg(op: &'static str, shape: &Shape, axis: isize, reverse: bool) -> Result<Self> {
        let p = Self::new(op, shape, axis, 0, reverse)?;
        dim32(op, "axis size", p.n as usize)?;
        if p.n == 0 && p.outer * p.inner > 0 {
            return Err(Error::invalid(op, "shape", shape, "a non-empty reduction"));
        }
        Ok(p)
    }

    /// Parameters of a top-k of `k` elements along `axis`.
    ///
    /// # Errors
    /// An axis out of range or too long for i32, a `k` larger than the axis.
    pub fn top_k(op: &'static str, shape: &Shape, axis: isize, k: usize, reverse: bool) -> Result<Self> {
        let p = Self::new(op, shape, axis, k, reverse)?;
        dim32(op, "axis size", p.n as usize)?;
        if p.k > p.n {
            return Err(Error::invalid(
                op,
                "k",
                k,
                format!("at most {}, the size of the axis", p.n),
            ));
        }
        Ok(p)
    }
}

/// Reductions of a backend.
pub trait ReduceOps: Runtime {
    /// Reduces `x` into `y`, accumulating in `Acc` in an order that does not depend on the number of threads.
    fn reduce(&self, p: &ReduceParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// `index[o, i] = argmax_j x[o, j, i]` (argmin with `reverse`) in i32; the first of equal elements, or the first NaN.
    fn arg_reduce(&self, p: &AxisParams, x: &Self::Buffer, index: &mut Self::Buffer) -> Result<()>;

    /// Adds `weight` times the number of rows whose [`arg_reduce`](ReduceOps::arg_reduce) is their label to `sum`, f32 `[1]`:
    /// `sum += weight · #{o : argmax_j x[o, j] = labels[o]}`. The axis is the last one of `x`; labels are i32, and one that is no index
    /// counts as wrong. The number is exact, and is rounded to f32 once.
    fn add_correct(
        &self,
        p: &AxisParams,
        x: &Self::Buffer,
        labels: &Self::Buffer,
        weight: f64,
        sum: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, labels, weight, sum);
        self.unsupported(Op::AddCorrect)
    }

    /// `y[o, j, i] = Σ_{l ≤ j} x[o, l, i]`; with `reverse`, over `l ≥ j`.
    fn cumsum(&self, p: &AxisParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// Finds the `k` largest (smallest with `reverse`) along the axis, sorted, ties by lower index first; NaN counts as
    /// the largest. `values` has the dtype of `x`, `index` is i32; both are `[outer, k, inner]`.
    fn top_k(
        &self,
        p: &AxisParams,
        x: &Self::Buffer,
        values: &mut Self::Buffer,
        index: &mut Self::Buffer,
    ) -> Result<()>;
}
