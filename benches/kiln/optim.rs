//! One Adam update of every parameter of mnist-cnn.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{MNIST_PARAMETERS, random};
use kiln_core::ops::{AdamParams, ElementwiseOps, OptimOps, OptimSlot};
use kiln_core::{Result, Runtime};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let p = AdamParams {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: 0,
        amsgrad: 0,
    };
    let scalars = cpu.upload(&[1e-3f32, 0.1, 0.0316, 1.0])?;
    let mut tensors = Vec::new();
    for (i, len) in MNIST_PARAMETERS.into_iter().enumerate() {
        let (param, grad) = (random(&cpu, i as u32, len)?, random(&cpu, 100 + i as u32, len)?);
        let (mut m, mut v) = (random(&cpu, 0, len)?, random(&cpu, 0, len)?);
        // A negative second moment has no root: start both at zero, as the optimizer does.
        cpu.fill(0.0, &mut m)?;
        cpu.fill(0.0, &mut v)?;
        tensors.push((param, grad, m, v));
    }
    let mut group = c.benchmark_group("adam");
    group.throughput(Throughput::Elements(MNIST_PARAMETERS.iter().sum::<usize>() as u64));
    measure(&mut group, "mnist-cnn", || {
        let mut slots: Vec<_> = tensors
            .iter_mut()
            .map(|(param, grad, m, v)| OptimSlot {
                param,
                grad,
                state: vec![m, v],
            })
            .collect();
        cpu.adam(&p, &scalars, &mut slots)
    });
    group.finish();
    Ok(())
}
