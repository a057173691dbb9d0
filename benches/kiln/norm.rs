//! Batch norm in training, with its statistics: `[32, 14, 14, 64]`.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{output, random};
use kiln_core::ops::{GroupNormParams, NormOps};
use kiln_core::{Result, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let shape = Shape::new(&[32, 14, 14, 64])?;
    let p = GroupNormParams::batch("batch_norm", &shape, 1e-5)?;
    let (x, g) = (random(&cpu, 0, shape.size())?, random(&cpu, 1, shape.size())?);
    let (scale, shift) = (random(&cpu, 2, 64)?, random(&cpu, 3, 64)?);
    let (mut y, mut dx) = (output(&cpu, shape.size())?, output(&cpu, shape.size())?);
    let (mut mean, mut rstd) = (output(&cpu, 64)?, output(&cpu, 64)?);
    let (mut dscale, mut dshift) = (output(&cpu, 64)?, output(&cpu, 64)?);
    cpu.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)?;

    let mut group = c.benchmark_group("batch-norm");
    group.throughput(Throughput::Elements(shape.size() as u64));
    measure(&mut group, "forward-b32", || {
        cpu.group_norm(&p, &x, Some(&scale), Some(&shift), &mut y, &mut mean, &mut rstd)
    });
    measure(&mut group, "grad-b32", || {
        cpu.group_norm_grad(
            &p,
            &x,
            Some(&scale),
            &mean,
            &rstd,
            &g,
            &mut dx,
            &mut dscale,
            &mut dshift,
        )
    });
    group.finish();
    Ok(())
}
