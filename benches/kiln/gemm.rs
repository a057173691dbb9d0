//! Matrix products `C[m, n] = A[m, k]·B[k, n]` in f32, and in bf16 as `gemm-bf16`.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{GEMMS, random_in};
use kiln_core::ops::{MatmulOps, MatmulParams};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cpu::Cpu;

/// The dtypes, each with what its groups are called beside those of f32.
const DTYPES: [(DType, &str); 2] = [(DType::F32, ""), (DType::BF16, "-bf16")];

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    for (dtype, suffix) in DTYPES {
        let mut group = c.benchmark_group(format!("gemm{suffix}"));
        for (m, k, n) in GEMMS {
            let (p, _) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&[k, n])?, false, false)?;
            let (a, b) = (random_in(&cpu, dtype, 0, m * k)?, random_in(&cpu, dtype, 1, k * n)?);
            let mut y = cpu.alloc(dtype, m * n)?;
            group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
            measure(&mut group, format!("{m}x{k}x{n}"), || cpu.matmul(&p, &a, &b, &mut y));
        }
        group.finish();
        algorithms(c, dtype, suffix)?;
    }
    Ok(())
}

/// Each product by every algorithm that supports it.
fn algorithms(c: &mut Criterion, dtype: DType, suffix: &str) -> Result<()> {
    let mut group = c.benchmark_group(format!("algorithms/gemm{suffix}"));
    for (m, k, n) in GEMMS {
        for trans_b in [false, true] {
            let stored = if trans_b { [n, k] } else { [k, n] };
            let (p, _) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&stored)?, false, trans_b)?;
            group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
            for name in Cpu::algorithms() {
                let cpu = Cpu::builder().algorithm(name)?.build();
                if cpu.matmul_algorithm(&p, dtype) != Some(name) {
                    continue;
                }
                let (a, b) = (random_in(&cpu, dtype, 0, m * k)?, random_in(&cpu, dtype, 1, k * n)?);
                let mut y = cpu.alloc(dtype, m * n)?;
                let transposed = if trans_b { "^T" } else { "" };
                let id = format!("{m}x{k}x{n}{transposed}/{name}");
                measure(&mut group, id, || cpu.matmul(&p, &a, &b, &mut y));
            }
        }
    }
    group.finish();
    Ok(())
}
