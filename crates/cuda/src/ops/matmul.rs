//! The matmul family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{MatmulOps, MatmulParams};

impl MatmulOps for Cuda {
    fn matmul(&self, _p: &MatmulParams, _a: &CudaBuffer, _b: &CudaBuffer, _c: &mut CudaBuffer) -> Result<()> {
        pending("matmul")
    }

    fn linear(
        &self,
        _p: &MatmulParams,
        _x: &CudaBuffer,
        _w: &CudaBuffer,
        _bias: Option<&CudaBuffer>,
        _y: &mut CudaBuffer,
    ) -> Result<()> {
        pending("linear")
    }
}
