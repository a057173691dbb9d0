//! The optim family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{AdagradParams, AdamParams, OptimOps, OptimSlot, RmspropParams, SgdParams};

impl OptimOps for Cuda {
    fn sgd(&self, _p: &SgdParams, _scalars: &CudaBuffer, _slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        pending("sgd")
    }

    fn adam(&self, _p: &AdamParams, _scalars: &CudaBuffer, _slots: &mut [OptimSlot<'_, CudaBuffer>]) -> Result<()> {
        pending("adam")
    }

    fn rmsprop(
        &self,
        _p: &RmspropParams,
        _scalars: &CudaBuffer,
        _slots: &mut [OptimSlot<'_, CudaBuffer>],
    ) -> Result<()> {
        pending("rmsprop")
    }

    fn adagrad(
        &self,
        _p: &AdagradParams,
        _scalars: &CudaBuffer,
        _slots: &mut [OptimSlot<'_, CudaBuffer>],
    ) -> Result<()> {
        pending("adagrad")
    }
}
