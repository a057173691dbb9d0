//! Max pooling 2×2 after the first convolution of mnist-cnn: `[32, 26, 26, 32]`.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{output, random};
use kiln_core::ops::{PoolOps, PoolParams, Window};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let x_shape = Shape::new(&[32, 26, 26, 32])?;
    let window = Window::new([2, 2]).stride([2, 2]);
    let (p, y_shape) = PoolParams::new("max_pool", &x_shape, &window, false, false)?;
    let x = random(&cpu, 0, x_shape.size())?;
    let g = random(&cpu, 1, y_shape.size())?;
    let (mut y, mut dx) = (output(&cpu, y_shape.size())?, output(&cpu, x_shape.size())?);
    let mut index = cpu.alloc(DType::I32, y_shape.size())?;
    // The gradient's bench needs the indices even when a filter leaves out the forward one.
    cpu.max_pool(&p, &x, &mut y, &mut index)?;

    let mut group = c.benchmark_group("max-pool");
    group.throughput(Throughput::Elements(x_shape.size() as u64));
    measure(&mut group, "forward-b32", || cpu.max_pool(&p, &x, &mut y, &mut index));
    measure(&mut group, "grad-b32", || {
        cpu.max_pool_grad(&p, &g, None, &index, &mut dx)
    });
    group.finish();
    Ok(())
}
