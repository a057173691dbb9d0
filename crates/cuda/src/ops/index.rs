//! The index family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{IndexOps, IndexParams, ViewParams};

impl IndexOps for Cuda {
    fn view_read(&self, _p: &ViewParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("view_read")
    }

    fn view_write(&self, _p: &ViewParams, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("view_write")
    }

    fn gather(&self, _p: &IndexParams, _x: &CudaBuffer, _index: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("gather")
    }

    fn scatter_add(&self, _p: &IndexParams, _x: &CudaBuffer, _index: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("scatter_add")
    }

    fn index_select(&self, _p: &IndexParams, _x: &CudaBuffer, _index: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("index_select")
    }

    fn index_add(&self, _p: &IndexParams, _x: &CudaBuffer, _index: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("index_add")
    }

    fn one_hot(&self, _p: &IndexParams, _index: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("one_hot")
    }
}
