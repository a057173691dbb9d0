//! Whole training steps of mnist-cnn and lenet on a fixed batch, op by op and as one graph launch.

use crate::measure::{Bench, Cost};
use kiln_benches::nets::{lenet, mnist_cnn};
use kiln_core::{Result, Runtime};
use kiln_cuda::Cuda;
use kiln_models::Model;
use kiln_nn::{Indices, Init, Layer, Scheme, Sequential, Tensor};

const BATCHES: [usize; 4] = [4, 32, 128, 512];
/// Approximate floating-point operations per image: two for each multiply-add of the layers, times three for forward pass and
/// both gradients.
const MNIST_CNN: u64 = 6 * (26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 3 * 3 * 64 * 576 + 576 * 64 + 64 * 10);
const LENET: u64 = 6 * (28 * 28 * 6 * 75 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10);

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for batch in BATCHES {
        let net = mnist_cnn(&mut Init::new(cuda, 0).scheme(Scheme::Keras))?;
        step(bench, cuda, (Model::MnistCnn, MNIST_CNN), net, &[batch, 28, 28, 1])?;
    }
    for batch in BATCHES {
        let net = lenet(&mut Init::new(cuda, 0))?;
        step(bench, cuda, (Model::Lenet, LENET), net, &[batch, 32, 32, 3])?;
    }
    Ok(())
}

fn step(
    bench: &Bench,
    cuda: &Cuda,
    (net, flops): (Model, u64),
    mut model: Sequential<Cuda>,
    shape: &[usize; 4],
) -> Result<()> {
    let mut optimizer = net.recipe().optimizer.build();
    let id = format!("step/f32/{}-b{}", net.name(), shape[0]);
    let cost = Cost {
        images: shape[0] as u64,
        ..Cost::default()
    };
    let work = Cost {
        flops: flops * shape[0] as u64,
        ..cost
    };
    if !bench.wants(&id, work) {
        return Ok(());
    }
    let pixels: Vec<f32> = (0..shape.iter().product()).map(|i| (i % 255) as f32 / 255.0).collect();
    let labels: Vec<i32> = (0..shape[0] as i32).map(|i| 7 * i % 10).collect();
    let x = Tensor::from_slice(cuda, &pixels, shape)?;
    let labels = Indices::from_slice(cuda, &labels, &shape[..1])?;
    bench.measure_beside(cuda, &id, "eager", cost, None, || {
        let gradients = model.forward(&x)?.cross_entropy(&labels)?.backward()?;
        optimizer.step(&mut model, &gradients)
    })?;

    let mut applied = None;
    optimizer.prepare(&model)?;
    let graph = cuda.capture(&mut || {
        let gradients = model.forward(&x)?.cross_entropy(&labels)?.backward()?;
        applied = Some(optimizer.apply(&mut model, &gradients)?);
        Ok(())
    })?;
    let (Some(mut graph), Some(applied)) = (graph, applied) else {
        return Ok(());
    };
    optimizer.count(&applied);
    bench.measure_beside(cuda, &id, "graph", cost, bench.last_capture(), || {
        optimizer.prepare(&model)?;
        cuda.replay(&mut graph)?;
        optimizer.count(&applied);
        Ok(())
    })
}
