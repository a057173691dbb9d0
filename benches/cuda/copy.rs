//! The rate at which the device copies its own memory, with which memory-bound kernels are compared.

use crate::measure::{Bench, Cost};
use kiln_core::{DType, Result, Runtime};
use kiln_cuda::Cuda;

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for mib in [64usize, 1024] {
        let id = format!("copy/{mib}MiB");
        let bytes = (2 * mib as u64) << 20;
        let cost = Cost {
            bytes,
            ..Cost::default()
        };
        if !bench.wants(&id, cost) {
            continue;
        }
        let x = cuda.alloc(DType::U8, mib << 20)?;
        let mut y = cuda.alloc(DType::U8, mib << 20)?;
        bench.measure(cuda, &id, "memcpy", cost, || cuda.copy(&x, &mut y))?;
    }
    Ok(())
}
