//! Softmax cross-entropy: loss, weight and gradient in one launch.
//!
//! | classes   | kernel                 | where a row is            |
//! |-----------|------------------------|---------------------------|
//! | up to 32  | `cross_entropy_rows1`  | a register for each lane  |
//! | up to 128 | `cross_entropy_rows4`  | 4 registers               |
//! | up to 512 | `cross_entropy_rows16` | 16 registers              |
//! | more      | `cross_entropy_blocks` | read by a block           |

use super::instance;
use crate::buffer::maybe;
use crate::launch::blocks;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{Buffer, Result};
use kiln_device::Arg;
use kiln_kernels::loss as kernels;

impl LossOps for Cuda {
    fn cross_entropy(
        &self,
        p: &CrossEntropyParams,
        logits: &CudaBuffer,
        labels: &CudaBuffer,
        class_weights: Option<&CudaBuffer>,
        loss: &mut CudaBuffer,
        weight: &mut CudaBuffer,
        dlogits: &mut CudaBuffer,
    ) -> Result<()> {
        let (kernel, rows) = match p.classes {
            0..=32 => (&kernels::CROSS_ENTROPY_ROWS1, 8),
            33..=128 => (&kernels::CROSS_ENTROPY_ROWS4, 8),
            129..=512 => (&kernels::CROSS_ENTROPY_ROWS16, 8),
            _ => (&kernels::CROSS_ENTROPY_BLOCKS, 1),
        };
        let hard = (1.0 - p.smoothing) as f32;
        let soft = (p.smoothing / p.classes as f64) as f32;
        let args = [
            Arg::value(p),
            logits.arg(),
            labels.arg(),
            maybe(class_weights),
            loss.out(),
            weight.out(),
            dlogits.out(),
            Arg::value(&hard),
            Arg::value(&soft),
            self.fault(),
        ];
        let geometry = blocks("cross_entropy", p.rows.div_ceil(rows))?;
        self.launch(instance(kernel, logits.dtype()), geometry, &args)
    }
}
