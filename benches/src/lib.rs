//! Shared parts of the benches: random buffers, and the sizes that `benches/peers` measures too.
//!
//! Every bench has the same id as the same work in `benches/peers/torch_bench.py`; `cargo xtask bench` puts both in
//! one table.

pub mod nets;

use kiln_core::ops::ElementwiseOps;
use kiln_core::philox::{Key, uniform};
use kiln_core::{Backend, DType, Result, Runtime};
use kiln_cpu::{Cpu, CpuBuffer};
use kiln_nn::optim::Adam;
use kiln_nn::{Gradients, Optimizer, Param, Rng, Tensor};

/// A convolution of one of the nets, stride 1 and no padding.
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// The second part of the ids of its benches.
    pub name: &'static str,
    /// Images.
    pub batch: usize,
    /// Input channels.
    pub input: usize,
    /// Input height and width.
    pub size: usize,
    /// Output channels.
    pub output: usize,
    /// Kernel height and width.
    pub kernel: usize,
}

/// The convolutions of mnist-cnn and lenet.
pub const CONVS: [Conv; 5] = [
    conv("mnist1-b32", 32, 1, 28, 32, 3),
    conv("mnist2-b32", 32, 32, 13, 64, 3),
    conv("mnist3-b32", 32, 64, 5, 64, 3),
    conv("lenet1-b4", 4, 3, 32, 6, 5),
    conv("lenet2-b4", 4, 6, 14, 16, 5),
];

const fn conv(name: &'static str, batch: usize, input: usize, size: usize, output: usize, kernel: usize) -> Conv {
    Conv {
        name,
        batch,
        input,
        size,
        output,
        kernel,
    }
}

/// `m`, `k`, `n` of the products; the second is the first dense layer of mnist-cnn.
pub const GEMMS: [(usize, usize, usize); 4] = [(128, 128, 128), (32, 576, 64), (512, 512, 512), (1024, 1024, 1024)];

/// Rows and classes of the cross-entropies.
pub const LOSSES: [(usize, usize); 2] = [(32, 10), (128, 1000)];

/// Sequences, positions, heads and width of a head of the attentions: that of gpt-mini, and one with long sequences.
pub const ATTENTION: [[usize; 4]; 2] = [[8, 256, 6, 64], [1, 1024, 12, 64]];

/// One with more positions, whose squares would be a matrix of 805 MB.
pub const LONG_ATTENTION: [usize; 4] = [1, 4096, 12, 64];

/// Steps, sequences, classes and labels of a sequence of a CTC loss: 16 phrases of six seconds, with 25 steps a second.
pub const CTC: [usize; 4] = [150, 16, 29, 40];

/// Sizes of mnist-cnn's parameters, weights and biases in turn.
pub const MNIST_PARAMETERS: [usize; 10] = [288, 32, 18_432, 64, 36_864, 64, 36_864, 64, 640, 10];

/// `len` numbers from −1 to 1, the same for the same `stream`.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
pub fn random(cpu: &Cpu, stream: u32, len: usize) -> Result<CpuBuffer> {
    let bits = Key::new(0, stream, 0);
    let values: Vec<f32> = (0..len as u64).map(|i| 2.0 * uniform(bits.word(i)) - 1.0).collect();
    cpu.upload(&values)
}

/// As [`random`], in `dtype`.
///
/// # Errors
/// As [`random`].
pub fn random_in(cpu: &Cpu, dtype: DType, stream: u32, len: usize) -> Result<CpuBuffer> {
    let values = random(cpu, stream, len)?;
    let mut cast = cpu.alloc(dtype, len)?;
    cpu.cast(&values, &mut cast)?;
    Ok(cast)
}

/// An uninitialised buffer of `len` f32, for a result.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
pub fn output(cpu: &Cpu, len: usize) -> Result<CpuBuffer> {
    cpu.alloc(DType::F32, len)
}

/// A function that takes a step of Adam, with its default options, over random parameters of these lengths.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory), here and in the steps.
pub fn adam<B: Backend>(backend: &B, lens: &[usize]) -> Result<impl FnMut() -> Result<()>> {
    let mut rng = Rng::new(0);
    let mut uniform = |len| Tensor::uniform(backend, &[len], DType::F32, -1.0, 1.0, &mut rng);
    let params = lens.iter().map(|&len| Ok(Param::new(uniform(len)?)));
    let mut params: Vec<Param<B>> = params.collect::<Result<_>>()?;
    let mut grads = Gradients::default();
    for (param, &len) in params.iter().zip(lens) {
        grads.insert(param, uniform(len)?)?;
    }
    let mut adam = Adam::new(1e-3);
    Ok(move || adam.step(&mut params, &grads))
}

/// Compiles and runs the README's examples as doctests, in this crate because it depends on every crate that they use.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The chapters of the guide, likewise.
#[cfg(doctest)]
pub mod guide {
    #[doc = include_str!("../../docs/guide/tensors.md")]
    pub struct Tensors;
    #[doc = include_str!("../../docs/guide/gradients.md")]
    pub struct Gradients;
    #[doc = include_str!("../../docs/guide/ops.md")]
    pub struct Ops;
    #[doc = include_str!("../../docs/guide/models.md")]
    pub struct Models;
    #[doc = include_str!("../../docs/guide/training.md")]
    pub struct Training;
    #[doc = include_str!("../../docs/guide/trainer.md")]
    pub struct Trainer;
    #[doc = include_str!("../../docs/guide/saving.md")]
    pub struct Saving;
    #[doc = include_str!("../../docs/guide/debugging.md")]
    pub struct Debugging;
    #[doc = include_str!("../../docs/guide/performance.md")]
    pub struct Performance;
}
