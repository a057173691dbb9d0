//! Training steps of recurrent layers but for the optimizer: results, and the gradients of all parameters.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_core::Result;
use kiln_cpu::Cpu;
use kiln_nn::layers::{Gru, Lstm};
use kiln_nn::{DType, Init, Layer, Rng, Tensor, grad};

/// Layers, elements of inputs and states, sequences, steps.
const SIZES: [usize; 4] = [2, 256, 16, 128];

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let [layers, width, batch, steps] = SIZES;
    let init = &mut Init::new(&cpu, 0);
    let lstm: Lstm<Cpu> = Lstm::builder(width, width).layers(layers).build(init)?;
    let gru: Gru<Cpu> = Gru::builder(width, width).layers(layers).build(init)?;
    let nets: [(&str, &dyn Layer<Cpu>); 2] = [("lstm", &lstm), ("gru", &gru)];
    let rng = &mut Rng::new(0);
    let x = Tensor::randn(&cpu, &[steps, batch, width], DType::F32, rng)?;
    let g = Tensor::randn(&cpu, &[steps, batch, width], DType::F32, rng)?;
    let mut group = c.benchmark_group("recurrent");
    group.throughput(Throughput::Elements((steps * batch) as u64));
    for (name, net) in nets {
        let parameters: Vec<&Tensor<Cpu>> = net.parameters().into_iter().map(|p| &**p).collect();
        let id = format!("{name}-train-{width}x{layers}-b{batch}-t{steps}");
        measure(&mut group, id, || {
            grad(&net.forward(&x)?, &parameters, Some(&g), false).map(drop)
        });
    }
    group.finish();
    Ok(())
}
