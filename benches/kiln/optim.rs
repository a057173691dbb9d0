//! One Adam update of every parameter of mnist-cnn.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{MNIST_PARAMETERS, adam};
use kiln_core::Result;
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let mut group = c.benchmark_group("adam");
    group.throughput(Throughput::Elements(MNIST_PARAMETERS.iter().sum::<usize>() as u64));
    measure(&mut group, "mnist-cnn", adam(&Cpu::new(), &MNIST_PARAMETERS)?);
    group.finish();
    Ok(())
}
