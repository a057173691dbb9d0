//! Adam over lists of tensors. 28 bytes move for each element: the parameter, its gradient and two moments are read, and
//! all but the gradient are written.

use crate::measure::{Bench, Cost};
use kiln_benches::MNIST_PARAMETERS;
use kiln_core::Result;
use kiln_cuda::Cuda;

/// A part of a deep network's list, repeated 40 times for 200 tensors.
const DEEP: [usize; 5] = [36864, 64, 147456, 256, 65536];

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    adam(bench, cuda, "mnist-cnn", &MNIST_PARAMETERS)?;
    adam(bench, cuda, "200-tensors", &DEEP.repeat(40))
}

fn adam(bench: &Bench, cuda: &Cuda, name: &str, lens: &[usize]) -> Result<()> {
    let id = format!("optim-adam/f32/{name}");
    let params: usize = lens.iter().sum();
    let cost = Cost {
        bytes: 28 * params as u64,
        ..Cost::default()
    };
    let work = Cost {
        flops: 15 * params as u64,
        ..cost
    };
    if !bench.wants(&id, work) {
        return Ok(());
    }
    bench.measure(cuda, &id, "auto", cost, kiln_benches::adam(cuda, lens)?)
}
