//! A convolution followed by max pooling, a few images at a time: the result of the convolution stays in cache, where it is
//! pooled, or in registers.

mod forward;
mod grad;
mod halves;
pub(crate) mod plan;
mod separate;
mod split;
#[cfg(test)]
mod tests;

use crate::{Cpu, CpuBuffer};
use half::{bf16, f16};
use kiln_core::ops::{ConvPoolGrads, ConvPoolOps, ConvPoolParams, PooledGrad};
use kiln_core::{Buffer, DType, Result, checks};
use plan::Forward;
use split::{BatchSplit, has_relu_or_none};

impl ConvPoolOps for Cpu {
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
        index: &mut CpuBuffer,
    ) -> Result<()> {
        checks::conv_max_pool(self, p, x, w, bias, y, index)?;
        let parts = BatchSplit::new(p);
        match y.dtype() {
            DType::F32 => parts.forward::<f32>(self, p, (x, w, bias), (y, index)),
            DType::F64 => parts.forward::<f64>(self, p, (x, w, bias), (y, index)),
            DType::BF16 => halves::forward::<bf16>(self, p, (x, w, bias), (y, index)),
            _ => halves::forward::<f16>(self, p, (x, w, bias), (y, index)),
        }
    }

    fn conv_pool_algorithm(&self, p: &ConvPoolParams, dtype: DType) -> Option<&'static str> {
        let parts = BatchSplit::new(p);
        Some(match dtype {
            DType::F32 => Forward::<f32>::choose(self, p, &parts).name(),
            DType::F64 => Forward::<f64>::choose(self, p, &parts).name(),
            DType::BF16 => halves::algorithm::<bf16>(self, p, &parts),
            _ => halves::algorithm::<f16>(self, p, &parts),
        })
    }

    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, CpuBuffer>,
        x: &CpuBuffer,
        w: &CpuBuffer,
        to: ConvPoolGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::conv_max_pool_grad(self, p, of, x, w, &to)?;
        let together = has_relu_or_none(p) && plan::preferred(self) != Some(plan::SEPARATE);
        match of.g.dtype() {
            DType::F32 if together => grad::gradients::<f32>(self, p, of, (x, w), to),
            DType::F64 if together => grad::gradients::<f64>(self, p, of, (x, w), to),
            DType::BF16 if together => halves::gradients::<bf16>(self, p, of, (x, w), to),
            DType::F16 if together => halves::gradients::<f16>(self, p, of, (x, w), to),
            _ => separate::gradients(self, p, of, (x, w), to),
        }
    }
}
