//! The reduce family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{AxisParams, ReduceOps, ReduceParams};

impl ReduceOps for Cuda {
    fn reduce(&self, _p: &ReduceParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("reduce")
    }

    fn arg_reduce(&self, _p: &AxisParams, _x: &CudaBuffer, _index: &mut CudaBuffer) -> Result<()> {
        pending("arg_reduce")
    }

    fn cumsum(&self, _p: &AxisParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("cumsum")
    }

    fn top_k(&self, _p: &AxisParams, _x: &CudaBuffer, _values: &mut CudaBuffer, _index: &mut CudaBuffer) -> Result<()> {
        pending("top_k")
    }
}
