//! The forward pass, by the algorithm that the plan chooses.

use super::plan::Forward;
use super::separate;
use super::split::BatchSplit;
use crate::conv::Operands;
use crate::conv::planar::Planes;
use crate::gemm::Epilogue;
use crate::ops::conv::forward;
use crate::ops::pool::max_pool_wide;
use crate::scalar::Stored;
use crate::simd::upcast::Upcast;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::ConvPoolParams;
use kiln_core::{Element, Result};

impl BatchSplit {
    /// Computes the largest results and their indices, in the accumulation type.
    pub(super) fn forward<T: Stored>(
        &self,
        cpu: &Cpu,
        p: &ConvPoolParams,
        (x, w, bias): (&CpuBuffer, &CpuBuffer, Option<&CpuBuffer>),
        (y, index): (&mut CpuBuffer, &mut CpuBuffer),
    ) -> Result<()> {
        let algorithm = Forward::<T::Acc>::choose(cpu, p, self);
        if let Forward::Separate = algorithm {
            return separate::forward(cpu, p, (x, w, bias), (y, index));
        }
        let (x, w) = (x.as_slice::<T>(), Upcast::new::<T>(cpu, w)?);
        let bias = bias.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
        let (w, bias) = (w.slice(), bias.as_ref().map(Upcast::slice));
        let [_, result, of_image] = self.sizes();
        let activation = p.conv.activation();
        let outputs = (y.as_mut_slice::<T>(), index.as_mut_slice::<i32>());
        match algorithm {
            Forward::Registers(pooled) => {
                let w = pooled.pack(cpu, w)?;
                return self.by_work().each(cpu, x, outputs, |x, outputs| {
                    pooled.forward(cpu, x, &w, Epilogue { bias, activation }, outputs)
                });
            }
            Forward::Planar => {
                let planes = Planes::new(cpu, &self.conv, w)?;
                return self.by_work().each(cpu, x, outputs, |x, outputs| {
                    planes.largest(cpu, &self.pool, x, Epilogue { bias, activation }, outputs)
                });
            }
            Forward::Cache | Forward::Separate => (),
        }
        self.each(cpu, x, outputs, |x, (y, index)| {
            let images = y.len() / of_image;
            let (conv, pool) = self.sized(images);
            let mut pre_pool = cpu.scratch(<T::Acc as Element>::DTYPE, images * result)?;
            let pre_pool = pre_pool.as_mut_slice::<T::Acc>();
            let epilogue = Epilogue { bias, activation };
            forward(cpu, &conv, Operands { x, w, epilogue }, pre_pool)?;
            max_pool_wide(&pool, pre_pool, y, index);
            Ok(())
        })
    }
}
