//! The norm family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{BatchNormParams, GroupNormParams, NormOps};

impl NormOps for Cuda {
    fn batch_norm(
        &self,
        _p: &BatchNormParams,
        _x: &CudaBuffer,
        _scale: Option<&CudaBuffer>,
        _shift: Option<&CudaBuffer>,
        _y: &mut CudaBuffer,
        _mean: &mut CudaBuffer,
        _rstd: &mut CudaBuffer,
    ) -> Result<()> {
        pending("batch_norm")
    }

    fn batch_norm_eval(
        &self,
        _p: &BatchNormParams,
        _x: &CudaBuffer,
        _scale: Option<&CudaBuffer>,
        _shift: Option<&CudaBuffer>,
        _mean: &CudaBuffer,
        _var: &CudaBuffer,
        _y: &mut CudaBuffer,
    ) -> Result<()> {
        pending("batch_norm_eval")
    }

    fn batch_norm_grad(
        &self,
        _p: &BatchNormParams,
        _x: &CudaBuffer,
        _scale: Option<&CudaBuffer>,
        _mean: &CudaBuffer,
        _rstd: &CudaBuffer,
        _g: &CudaBuffer,
        _dx: &mut CudaBuffer,
        _dscale: &mut CudaBuffer,
        _dshift: &mut CudaBuffer,
    ) -> Result<()> {
        pending("batch_norm_grad")
    }

    fn group_norm(
        &self,
        _p: &GroupNormParams,
        _x: &CudaBuffer,
        _scale: Option<&CudaBuffer>,
        _shift: Option<&CudaBuffer>,
        _y: &mut CudaBuffer,
        _mean: &mut CudaBuffer,
        _rstd: &mut CudaBuffer,
    ) -> Result<()> {
        pending("group_norm")
    }

    fn group_norm_grad(
        &self,
        _p: &GroupNormParams,
        _x: &CudaBuffer,
        _scale: Option<&CudaBuffer>,
        _mean: &CudaBuffer,
        _rstd: &CudaBuffer,
        _g: &CudaBuffer,
        _dx: &mut CudaBuffer,
        _dscale: &mut CudaBuffer,
        _dshift: &mut CudaBuffer,
    ) -> Result<()> {
        pending("group_norm_grad")
    }
}
