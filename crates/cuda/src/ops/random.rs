//! The random family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{RandomOps, RandomParams};

impl RandomOps for Cuda {
    fn random(&self, _p: &RandomParams, _step: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("random")
    }

    fn tick(&self, _counter: &mut CudaBuffer, _ticket: &mut CudaBuffer) -> Result<()> {
        pending("tick")
    }

    fn dropout(&self, _p: &RandomParams, _step: &CudaBuffer, _x: &CudaBuffer, _y: &mut CudaBuffer) -> Result<()> {
        pending("dropout")
    }
}
