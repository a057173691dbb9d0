//! The elementwise family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{BroadcastParams, ElementwiseOps, UnaryParams};

impl ElementwiseOps for Cuda {
    fn unary(&self, _p: &UnaryParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("unary")
    }

    fn unary_grad(
        &self,
        _p: &UnaryParams,
        _x: &CudaBuffer,
        _y: &CudaBuffer,
        _g: &CudaBuffer,
        _dx: &mut CudaBuffer,
    ) -> Result<()> {
        pending("unary_grad")
    }

    fn binary(&self, _p: &BroadcastParams, _a: &CudaBuffer, _b: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("binary")
    }

    fn compare(&self, _p: &BroadcastParams, _a: &CudaBuffer, _b: &CudaBuffer, _mask: &mut CudaBuffer) -> Result<()> {
        pending("compare")
    }

    fn select(
        &self,
        _p: &BroadcastParams,
        _mask: &CudaBuffer,
        _a: &CudaBuffer,
        _b: &CudaBuffer,
        _y: &mut CudaBuffer,
    ) -> Result<()> {
        pending("select")
    }

    fn cast(&self, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("cast")
    }

    fn fill(&self, _value: f64, _y: &mut CudaBuffer) -> Result<()> {
        pending("fill")
    }

    fn accumulate(&self, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("accumulate")
    }
}
