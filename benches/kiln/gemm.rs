//! Matrix products `C[m, n] = A[m, k]·B[k, n]` in f32.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{GEMMS, output, random};
use kiln_core::ops::{MatmulOps, MatmulParams};
use kiln_core::{DType, Result, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let mut group = c.benchmark_group("gemm");
    for (m, k, n) in GEMMS {
        let (p, _) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&[k, n])?, false, false)?;
        let (a, b, mut y) = (random(&cpu, 0, m * k)?, random(&cpu, 1, k * n)?, output(&cpu, m * n)?);
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
        measure(&mut group, format!("{m}x{k}x{n}"), || cpu.matmul(&p, &a, &b, &mut y));
    }
    group.finish();
    algorithms(c)
}

/// Each product by every algorithm that supports it.
fn algorithms(c: &mut Criterion) -> Result<()> {
    let mut group = c.benchmark_group("algorithms/gemm");
    for (m, k, n) in GEMMS {
        for trans_b in [false, true] {
            let stored = if trans_b { [n, k] } else { [k, n] };
            let (p, _) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&stored)?, false, trans_b)?;
            group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
            for name in Cpu::algorithms() {
                let cpu = Cpu::builder().algorithm(name)?.build();
                if cpu.matmul_algorithm(&p, DType::F32) != Some(name) {
                    continue;
                }
                let (a, b, mut y) = (random(&cpu, 0, m * k)?, random(&cpu, 1, k * n)?, output(&cpu, m * n)?);
                let transposed = if trans_b { "^T" } else { "" };
                let id = format!("{m}x{k}x{n}{transposed}/{name}");
                measure(&mut group, id, || cpu.matmul(&p, &a, &b, &mut y));
            }
        }
    }
    group.finish();
    Ok(())
}
