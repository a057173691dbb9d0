//! The loss family.

use super::pending;
use crate::{Cuda, CudaBuffer};
use kiln_core::Result;
use kiln_core::ops::{CrossEntropyParams, LossOps};

impl LossOps for Cuda {
    fn cross_entropy(
        &self,
        _p: &CrossEntropyParams,
        _logits: &CudaBuffer,
        _labels: &CudaBuffer,
        _class_weights: Option<&CudaBuffer>,
        _loss: &mut CudaBuffer,
        _weight: &mut CudaBuffer,
        _dlogits: &mut CudaBuffer,
    ) -> Result<()> {
        pending("cross_entropy")
    }
}
