//! The pool family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{AdaptivePoolParams, PoolOps, PoolParams};

impl PoolOps for Cuda {
    fn max_pool(&self, _p: &PoolParams, _x: &CudaBuffer, _y: &mut CudaBuffer, _index: &mut CudaBuffer) -> Result<()> {
        pending("max_pool")
    }

    fn max_pool_grad(&self, _p: &PoolParams, _g: &CudaBuffer, _index: &CudaBuffer, _dx: &mut CudaBuffer) -> Result<()> {
        pending("max_pool_grad")
    }

    fn max_pool_gather(
        &self,
        _p: &PoolParams,
        _x: &CudaBuffer,
        _index: &CudaBuffer,
        _y: &mut CudaBuffer,
    ) -> Result<()> {
        pending("max_pool_gather")
    }

    fn avg_pool(&self, _p: &PoolParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("avg_pool")
    }

    fn avg_pool_grad(&self, _p: &PoolParams, _g: &CudaBuffer, _dx: &mut CudaBuffer) -> Result<()> {
        pending("avg_pool_grad")
    }

    fn adaptive_avg_pool(&self, _p: &AdaptivePoolParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("adaptive_avg_pool")
    }

    fn adaptive_avg_pool_grad(&self, _p: &AdaptivePoolParams, _g: &CudaBuffer, _dx: &mut CudaBuffer) -> Result<()> {
        pending("adaptive_avg_pool_grad")
    }
}
