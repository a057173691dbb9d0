//! Softmax and log-softmax along one axis.

use super::Op;
use crate::{Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of softmax over a tensor as `[outer, n, inner]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SoftmaxParams {
    /// Product of the dimensions before the axis.
    pub outer: u64,
    /// Size of the axis.
    pub n: u64,
    /// Product of the dimensions after the axis.
    pub inner: u64,
    /// 1 for log-softmax.
    pub log: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<SoftmaxParams>() == 32);

impl SoftmaxParams {
    /// Parameters for `axis` of `shape`.
    ///
    /// # Errors
    /// [`Error::Axis`](crate::Error::Axis) when the axis is out of range.
    pub fn new(op: &'static str, shape: &Shape, axis: isize, log: bool) -> Result<Self> {
        let (outer, n, inner) = shape.around(op, axis)?;
        Ok(SoftmaxParams {
            outer: outer as u64,
            n: n as u64,
            inner: inner as u64,
            log: u32::from(log),
            pad: 0,
        })
    }
}

/// Softmax of a backend.
pub trait SoftmaxOps: Runtime {
    /// `y = e^(x − m) / Σ e^(x − m)` with `m = max x`; with `log`, `y = x − m − ln Σ e^(x − m)`.
    fn softmax(&self, p: &SoftmaxParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, x, y);
        self.unsupported(Op::Softmax)
    }

    /// Computes the gradient from the output `y` and its gradient `g`: `dx = y·(g − Σ g·y)`; with `log`, `dx = g − e^y·Σ g`.
    fn softmax_grad(&self, p: &SoftmaxParams, y: &Self::Buffer, g: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()> {
        let _ = (p, y, g, dx);
        self.unsupported(Op::Softmax)
    }
}
