//! Whole training steps of both nets on a fixed batch: forward, loss, backward, update.

use crate::measure;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use kiln_core::Result;
use kiln_core::ops::Activation;
use kiln_cpu::Cpu;
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d};
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

fn conv(init: &mut Init<Cpu>, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d<Cpu>> {
    let builder = Conv2d::builder(inputs, outputs, kernel).activation(Activation::Relu);
    builder.build(init)
}

fn dense(init: &mut Init<Cpu>, inputs: usize, outputs: usize) -> Result<Linear<Cpu>> {
    let builder = Linear::builder(inputs, outputs).activation(Activation::Relu);
    builder.build(init)
}

fn mnist_cnn(init: &mut Init<Cpu>) -> Result<Sequential<Cpu>> {
    Ok(Sequential::new()
        .push(conv(init, 1, 32, 3)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 32, 64, 3)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 64, 64, 3)?)
        .push(Flatten::default())
        .push(dense(init, 576, 64)?)
        .push(Linear::new(init, 64, 10)?))
}

fn lenet(init: &mut Init<Cpu>) -> Result<Sequential<Cpu>> {
    Ok(Sequential::new()
        .push(conv(init, 3, 6, 5)?)
        .push(MaxPool2d::new(2))
        .push(conv(init, 6, 16, 5)?)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(dense(init, 400, 120)?)
        .push(dense(init, 120, 84)?)
        .push(Linear::new(init, 84, 10)?))
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
