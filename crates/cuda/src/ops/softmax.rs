//! Softmax and log-softmax.

use super::{instance, pending};
use crate::launch::linear;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Buffer, Result};
use kiln_device::Arg;
use kiln_kernels::softmax as kernels;

impl SoftmaxOps for Cuda {
    fn softmax(&self, p: &SoftmaxParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        let kernel = instance(&kernels::SOFTMAX_ROWS, x.dtype());
        self.launch(
            kernel,
            linear(p.outer * 32, 256, u32::MAX),
            &[Arg::value(p), x.arg(), y.out()],
        )
    }

    fn softmax_grad(&self, _: &SoftmaxParams, _: &CudaBuffer, _: &CudaBuffer, _: &mut CudaBuffer) -> Result<()> {
        pending("softmax_grad")
    }
}
