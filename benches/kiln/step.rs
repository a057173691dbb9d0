//! Whole training steps of both nets on a fixed batch: forward, loss, backward, update.

use crate::measure;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use kiln_benches::nets::{lenet, mnist_cnn};
use kiln_core::Result;
use kiln_cpu::Cpu;
use kiln_nn::optim::{Adam, Sgd};
use kiln_nn::{Indices, Init, Layer, Optimizer, Scheme, Sequential, Tensor};

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let mut group = c.benchmark_group("step");
    for batch in [32, 128] {
        let init = &mut Init::new(&cpu, 0).scheme(Scheme::Keras);
        let optimizer = &mut Adam::new(1e-3);
        let id = format!("mnist-cnn-b{batch}");
        step(&mut group, &id, &cpu, mnist_cnn(init)?, optimizer, &[batch, 28, 28, 1])?;
    }
    for batch in [4, 128] {
        let init = &mut Init::new(&cpu, 0);
        let optimizer = &mut Sgd::new(1e-3).momentum(0.9);
        let id = format!("lenet-b{batch}");
        step(&mut group, &id, &cpu, lenet(init)?, optimizer, &[batch, 32, 32, 3])?;
    }
    group.finish();
    Ok(())
}

fn step(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: &str,
    cpu: &Cpu,
    mut model: Sequential<Cpu>,
    optimizer: &mut dyn Optimizer<Cpu>,
    shape: &[usize; 4],
) -> Result<()> {
    let pixels: Vec<f32> = (0..shape.iter().product()).map(|i| (i % 255) as f32 / 255.0).collect();
    let labels: Vec<i32> = (0..shape[0] as i32).map(|i| 7 * i % 10).collect();
    let (x, labels) = (
        Tensor::from_slice(cpu, &pixels, shape)?,
        Indices::from_slice(cpu, &labels, &shape[..1])?,
    );
    group.throughput(Throughput::Elements(shape[0] as u64));
    measure(group, id, || {
        let gradients = model.forward(&x)?.cross_entropy(&labels)?.backward()?;
        optimizer.step(&mut model, &gradients)
    });
    Ok(())
}
