//! The conv family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{ConvOps, ConvParams};

impl ConvOps for Cuda {
    fn conv(
        &self,
        _p: &ConvParams,
        _x: &CudaBuffer,
        _w: &CudaBuffer,
        _bias: Option<&CudaBuffer>,
        _y: &mut CudaBuffer,
    ) -> Result<()> {
        pending("conv")
    }

    fn conv_data_grad(&self, _p: &ConvParams, _g: &CudaBuffer, _w: &CudaBuffer, _dx: &mut CudaBuffer) -> Result<()> {
        pending("conv_data_grad")
    }

    fn conv_weight_grad(&self, _p: &ConvParams, _g: &CudaBuffer, _x: &CudaBuffer, _dw: &mut CudaBuffer) -> Result<()> {
        pending("conv_weight_grad")
    }
}
