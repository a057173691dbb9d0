//! Adam over lists of tensors. Of each parameter 28 bytes move: the parameter, its gradient and two moments are read, and
//! all but the gradient written.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{AdamParams, OptimOps, OptimSlot};
use kiln_core::{DType, Result, Runtime};
use kiln_cuda::{Cuda, CudaBuffer};

/// The tensors of mnist-cnn: weights and biases of three convolutions and two dense layers.
const MNIST_CNN: [usize; 10] = [288, 32, 18432, 64, 36864, 64, 36864, 64, 640, 10];
/// A stretch of a deep net's list, repeated 40 times for 200 tensors.
const DEEP: [usize; 5] = [36864, 64, 147456, 256, 65536];

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    adam(bench, cuda, "mnist-cnn", &MNIST_CNN)?;
    adam(bench, cuda, "200-tensors", &DEEP.repeat(40))
}

/// A parameter, its gradient and its moments.
struct Tensors {
    param: CudaBuffer,
    grad: CudaBuffer,
    moments: [CudaBuffer; 2],
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
    let tensors = |&len: &usize| -> Result<Tensors> {
        let zeros = vec![0f32; len];
        Ok(Tensors {
            param: random(cuda, 1, DType::F32, len)?,
            grad: random(cuda, 2, DType::F32, len)?,
            moments: [cuda.upload(&zeros)?, cuda.upload(&zeros)?],
        })
    };
    let mut list = lens.iter().map(tensors).collect::<Result<Vec<_>>>()?;
    let mut slots: Vec<_> = list
        .iter_mut()
        .map(|t| OptimSlot {
            param: &mut t.param,
            grad: &t.grad,
            state: t.moments.iter_mut().collect(),
        })
        .collect();
    let p = AdamParams {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: 0,
        amsgrad: 0,
    };
    // The rate, the corrections of the first step, and the scale of gradients.
    let scalars = cuda.upload(&[1e-3f32, 0.1, 0.001f32.sqrt(), 1.0])?;
    bench.measure(cuda, &id, "auto", cost, || cuda.adam(&p, &scalars, &mut slots))
}
