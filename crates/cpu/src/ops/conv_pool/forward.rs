//! The forward pass, by the algorithm that the plan chooses.

use super::plan::Forward;
use super::separate;
use super::split::BatchSplit;
use crate::conv::Operands;
use crate::conv::planar::Planes;
use crate::gemm::Epilogue;
use crate::ops::conv::forward;
use crate::ops::pool::max_pool_wide;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::ConvPoolParams;

impl BatchSplit {
    /// Computes the largest results and their indices.
    pub(super) fn forward<A: Scalar>(
        &self,
        cpu: &Cpu,
        p: &ConvPoolParams,
        (x, w, bias): (&CpuBuffer, &CpuBuffer, Option<&CpuBuffer>),
        (y, index): (&mut CpuBuffer, &mut CpuBuffer),
    ) -> Result<()> {
        let algorithm = Forward::<A>::choose(cpu, p, self);
        if let Forward::Separate = algorithm {
            return separate::forward(cpu, p, (x, w, bias), (y, index));
        }
        let (x, w, bias) = (x.as_slice::<A>(), w.as_slice::<A>(), bias.map(CpuBuffer::as_slice::<A>));
        let [_, result, of_image] = self.sizes();
        let activation = p.conv.activation();
        let outputs = (y.as_mut_slice::<A>(), index.as_mut_slice::<i32>());
        match algorithm {
            Forward::Registers(pooled) => {
                let w = pooled.pack(cpu, w)?;
                return self.by_work().each(x, outputs, |x, outputs| {
                    pooled.forward(cpu, x, &w, Epilogue { bias, activation }, outputs)
                });
            }
            Forward::Planar => {
                let planes = Planes::new(cpu, &self.conv, w)?;
                return self.by_work().each(x, outputs, |x, outputs| {
                    planes.largest(cpu, &self.pool, x, Epilogue { bias, activation }, outputs)
                });
            }
            Forward::Cache | Forward::Separate => (),
        }
        self.each(x, outputs, |x, (y, index)| {
            let images = y.len() / of_image;
            let (conv, pool) = self.sized(images);
            let mut pre_pool = cpu.scratch(A::DTYPE, images * result)?;
            let pre_pool = pre_pool.as_mut_slice::<A>();
            let epilogue = Epilogue { bias, activation };
            forward(cpu, &conv, Operands { x, w, epilogue }, pre_pool)?;
            max_pool_wide(&pool, pre_pool, y, index);
            Ok(())
        })
    }
}
