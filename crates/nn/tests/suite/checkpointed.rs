//! Layers with activation checkpointing compute what they compute without: values, gradients, random numbers and running statistics.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_nn::autograd::{checkpoint_layers, checkpoint_layers_told, checkpointable};
use kiln_nn::layers::{
    BatchNorm, Checkpointed, Conv2d, Dropout, Embedding, Flatten, Gelu, Hooked, Linear, MaxPool2d, MultiheadAttention,
    Relu, SpectralNorm, TransformerEncoderLayer, WeightNorm,
};
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{
    Activation, AttentionOptions, Backend, DType, Error, Gradients, Indices, Init, Layer, Module, Result, Sequential,
    Tensor, autocast, grad, is_grad_enabled,
};

/// A residual block with everything that a second pass could spoil.
#[derive(Clone, Module)]
struct Block<B: Backend> {
    fc1: Linear<B>,
    norm: BatchNorm<B>,
    dropout: Dropout<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Block<B> {
    fn new(init: &mut Init<B>, width: usize) -> Result<Self> {
        Ok(Block {
            fc1: Linear::new(init, width, 4 * width)?,
            norm: BatchNorm::new(init, 4 * width)?,
            dropout: Dropout::new(init, 0.3)?,
            fc2: Linear::new(init, 4 * width, width)?,
        })
    }
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.norm.forward(&self.fc1.forward(x)?)?.relu()?;
        x.add(&self.fc2.forward(&self.dropout.forward(&y)?)?)
    }
}

#[derive(Clone, Module)]
struct Net<B: Backend> {
    stem: Linear<B>,
    blocks: Vec<Block<B>>,
    head: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(backend: &B, width: usize, blocks: usize) -> Result<Self> {
        let init = &mut Init::new(backend, 0);
        Ok(Net {
            stem: Linear::new(init, 5, width)?,
            blocks: (0..blocks).map(|_| Block::new(init, width)).collect::<Result<_>>()?,
            head: Linear::new(init, width, 3)?,
        })
    }
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.stem.forward(x)?.relu()?;
        self.head.forward(&self.blocks.forward(&x)?)
    }
}

fn input(cpu: &Cpu, shape: &[usize]) -> Result<Tensor<Cpu>> {
    let values: Vec<f32> = (0..shape.iter().product::<usize>())
        .map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0)
        .collect();
    Tensor::from_slice(cpu, &values, shape)
}

/// The gradients of all parameters by name, and the model with its buffers and counters, as bits.
type Bits = (Vec<(String, Vec<u64>)>, Vec<u8>);

fn bits(net: &impl Module<Cpu>, grads: &Gradients<Cpu>) -> Result<Bits> {
    let mut all = Vec::new();
    for (name, p) in net.named_parameters() {
        let grad = grads.get(p).map(Tensor::to_f64).transpose()?;
        all.push((name, grad.into_iter().flatten().map(f64::to_bits).collect()));
    }
    Ok((
        all,
        encode(&StateDict::of(net), &Metadata::new())
            .map_err(|e| Error::invalid("encode", "state", e, "one that encodes"))?,
    ))
}

/// Three steps' worth of passes, without updates, with the layers that `select` accepts checkpointed.
fn passes<M: Layer<Cpu>>(net: &M, x: &Tensor<Cpu>, precision: DType, select: impl Fn(&str) -> bool) -> Result<Bits> {
    let mut sum = Gradients::default();
    for _ in 0..3 {
        let forward = || autocast(precision, || net.forward(x)?.square()?.mean(&[], false));
        let loss = checkpoint_layers(net, &select, forward)?;
        sum.accumulate(loss.backward()?)?;
    }
    bits(net, &sum)
}

#[test]
fn gradients_statistics_and_random_numbers_are_those_of_the_layers() -> Result<()> {
    for precision in [DType::F32, DType::BF16] {
        for (train, pattern) in [(true, "blocks."), (true, "blocks.1"), (true, ""), (false, "blocks.")] {
            let cpu = Cpu::poisoned();
            let x = input(&cpu, &[8, 5])?;
            let made = || -> Result<Net<Cpu>> {
                let mut net = Net::new(&cpu, 6, 3)?;
                if !train {
                    net.eval();
                }
                // A frozen parameter inside of a checkpointed layer has no gradient.
                net.blocks[1].fc1.weight.set_trainable(false);
                Ok(net)
            };
            let plain = passes(&made()?, &x, precision, |_| false)?;
            let saving = passes(&made()?, &x, precision, |name| name.starts_with(pattern))?;
            assert!(plain == saving, "{precision} {train} {pattern}");
        }
    }
    Ok(())
}

#[test]
fn layers_of_other_kinds_compute_the_same() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu, &[2, 4, 8])?;
    let init = || Init::new(&cpu, 1);
    let nets: [&dyn Fn() -> Result<Sequential<Cpu>>; 2] = [
        &|| {
            let init = &mut init();
            let layer = |init: &mut _| TransformerEncoderLayer::builder(8, 2).feedforward(16).build(init);
            Ok(Sequential::new().push(layer(init)?).push(layer(init)?))
        },
        &|| {
            let init = &mut init();
            let inner = Sequential::new().push(Linear::new(init, 8, 8)?).push(Relu);
            Ok(Sequential::new().push(Linear::new(init, 8, 8)?).push(inner))
        },
    ];
    for (i, net) in nets.iter().enumerate() {
        let plain = passes(&net()?, &x, DType::F32, |_| false)?;
        assert!(
            plain == passes(&net()?, &x, DType::F32, |name| !name.contains('.'))?,
            "{i}"
        );
    }
    Ok(())
}

#[test]
fn a_wrapper_keeps_names_and_results() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu, &[8, 6])?;
    let init = || Init::new(&cpu, 2);
    let plain = Sequential::new().push(Block::new(&mut init(), 6)?);
    let wrapped = Sequential::new().push(Checkpointed::new(Block::new(&mut init(), 6)?));
    let select = |_: &str| false;
    assert!(passes(&plain, &x, DType::F32, select)? == passes(&wrapped, &x, DType::F32, select)?);
    // A power iteration changes buffers that the same pass reads.
    let spectral = || SpectralNorm::new(&mut init(), Linear::new(&mut init(), 6, 6)?);
    let (plain, wrapper) = (
        Sequential::new().push(spectral()?).push(Gelu),
        Sequential::new().push(Checkpointed::new(spectral()?)).push(Gelu),
    );
    assert!(passes(&plain, &x, DType::F32, select)? == passes(&wrapper, &x, DType::F32, select)?);
    // A second pass over a kept graph begins with the same numbers.
    let loss = wrapped.forward(&x)?.square()?.sum(&[], false)?;
    let first = bits(&wrapped, &loss.backward_retain()?)?;
    assert!(first == bits(&wrapped, &loss.backward()?)?);
    Ok(())
}

#[test]
fn gradients_have_gradients() -> Result<()> {
    let cpu = Cpu::poisoned();
    // Dropout draws new numbers in each pass, so every net begins anew.
    let second = |select: &dyn Fn(&str) -> bool| -> Result<Vec<Vec<f64>>> {
        let mut net = Net::new(&cpu, 4, 2)?;
        net.to_dtype(DType::F64)?;
        let x = input(&cpu, &[4, 5])?.to_dtype(DType::F64)?.requires_grad();
        let y = checkpoint_layers(&net, select, || net.forward(&x)?.tanh()?.sum(&[], false))?;
        let dx = grad(&y, &[&x], None, true)?.remove(0).expect("it depends on x");
        let grads = dx.square()?.sum(&[], false)?.backward()?;
        let of = |p| grads.get(p).map_or(Ok(Vec::new()), Tensor::to_f64);
        net.parameters().into_iter().map(|p| of(p)).collect()
    };
    let plain = second(&|_| false)?;
    assert!(plain.iter().flatten().any(|&g| g != 0.0));
    for (plain, saving) in plain.iter().zip(second(&|name| name.starts_with("blocks."))?) {
        assert_eq!(plain.len(), saving.len());
        for (a, b) in plain.iter().zip(&saving) {
            assert!((a - b).abs() <= 1e-11 * (1.0 + a.abs()), "{a} {b}");
        }
    }
    Ok(())
}

/// The memory of buffers that are alive after the forward pass, and the largest until the end of the backward pass, beyond that before.
fn memory(blocks: usize, checkpointed: bool) -> Result<(usize, usize)> {
    let cpu = Cpu::new();
    let net = Net::new(&cpu, 32, blocks)?;
    let x = input(&cpu, &[256, 5])?;
    let before = cpu.memory().live;
    let select = |name: &str| checkpointed && name.starts_with("blocks.");
    let loss = checkpoint_layers(&net, select, || net.forward(&x)?.square()?.mean(&[], false))?;
    let after = cpu.memory().live - before;
    drop(loss.backward()?);
    Ok((after, cpu.memory().peak - before))
}

#[test]
fn the_input_of_a_layer_is_all_that_is_kept() -> Result<()> {
    let kept = |checkpointed| -> Result<(usize, usize)> {
        let (few, many) = (memory(2, checkpointed)?, memory(10, checkpointed)?);
        Ok(((many.0 - few.0) / 8, (many.1 - few.1) / 8))
    };
    let (plain, saving) = (kept(false)?, kept(true)?);
    // A block's input and output, [256, 32] of f32; of eight buffers and counters copies, in whole cache lines.
    let x = 256 * 32 * 4;
    let buffers = 2 * 128 * 4 + 2 * 64;
    assert!(saving.0 <= x + buffers, "{saving:?}");
    // Without, at least four tensors four times as wide stay beside it.
    assert!(plain.0 >= 10 * x && plain.1 >= 10 * x, "{plain:?}");
    // The largest grows by the inputs, and by gradients of parameters, which are alive at the end.
    let parameters = 2 * (32 * 128 * 4) + 3 * 128 * 4 + 32 * 4;
    assert!(saving.1 <= x + buffers + parameters * 9 / 8 + 1024, "{saving:?}");
    Ok(())
}

#[test]
fn nothing_is_computed_twice_where_nothing_is_recorded() -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let cpu = Cpu::poisoned();
    let count = kiln_nn::layers::Lambda::new(|x: &Tensor<Cpu>| {
        CALLS.fetch_add(1 + 100 * usize::from(is_grad_enabled()), Ordering::Relaxed);
        Ok(x.clone())
    });
    let net = Sequential::new().push(Checkpointed::new(Sequential::new().push(count).push(Relu)));
    let x = input(&cpu, &[2, 3])?;
    kiln_nn::no_grad(|| net.forward(&x))?;
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 1);
    // Neither input nor parameters are tracked.
    net.forward(&x)?;
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 101);
    let loss = net.forward(&x.requires_grad())?.sum(&[], false)?;
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 1);
    loss.backward()?;
    assert_eq!(CALLS.swap(0, Ordering::Relaxed), 101);
    Ok(())
}

#[test]
fn layers_that_can_be_cloned_are_listed() -> Result<()> {
    let net = Net::new(&Cpu::new(), 4, 1)?;
    let expected = [
        "stem",
        "blocks.0",
        "blocks.0.fc1",
        "blocks.0.norm",
        "blocks.0.dropout",
        "blocks.0.fc2",
        "head",
    ];
    assert_eq!(checkpointable(&net), expected);
    Ok(())
}

/// Convolutions that run as one op with the pooling behind them; the second one's has parameters of the first again.
#[derive(Clone, Module)]
struct Pooled<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    flatten: Flatten,
    fc: Linear<B>,
}

impl<B: Backend> Pooled<B> {
    fn new(backend: &B) -> Result<Self> {
        let init = &mut Init::new(backend, 3);
        let relu = Activation::Relu;
        Ok(Pooled {
            conv1: Conv2d::<B>::builder(1, 8, 3).activation(relu).build(init)?,
            conv2: Conv2d::<B>::builder(8, 4, 3).bias(false).build(init)?,
            pool: MaxPool2d::new(2),
            flatten: Flatten::default(),
            fc: Linear::new(init, 4 * 2 * 2, 3)?,
        })
    }
}

impl<B: Backend> Layer<B> for Pooled<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self
            .conv2
            .forward_pooled(&self.pool, &self.conv1.forward_pooled(&self.pool, x)?)?;
        self.fc.forward(&self.flatten.forward(&x)?)
    }
}

#[test]
fn convolutions_with_the_pooling_behind_them_are_computed_again_as_one() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu, &[3, 14, 14, 1])?;
    for precision in [DType::F32, DType::BF16] {
        let plain = passes(&Pooled::new(&cpu)?, &x, precision, |_| false)?;
        for pattern in ["conv1", "conv2", "conv", "pool", ""] {
            let net = Pooled::new(&cpu)?;
            let select = |name: &str| name.starts_with(pattern);
            assert!(plain == passes(&net, &x, precision, select)?, "{precision} {pattern}");
            let (_, left) = checkpoint_layers_told(&net, select, || net.forward(&x))?;
            assert!(left.is_empty(), "{left:?}");
        }
    }
    // The largest result of each window, which the gradient reads, is not kept.
    let kept = |pattern: &str| -> Result<usize> {
        let net = Pooled::new(&cpu)?;
        let before = cpu.memory().live;
        let pass = || net.conv1.forward_pooled(&net.pool, &x)?.sum(&[], false);
        let sum = checkpoint_layers(&net, |name| name == pattern, pass)?;
        let kept = cpu.memory().live - before;
        drop(sum);
        Ok(kept)
    };
    let largest = 3 * 6 * 6 * 8 * 4;
    assert!(
        kept("conv1")? + largest <= kept("none")?,
        "{} {}",
        kept("conv1")?,
        kept("none")?
    );
    Ok(())
}

/// A struct with another type parameter than the backend.
#[derive(Clone, Module)]
struct Residual<B: Backend, L: Layer<B> + Clone + 'static> {
    inner: L,
    norm: BatchNorm<B>,
}

impl<B: Backend, L: Layer<B> + Clone + 'static> Layer<B> for Residual<B, L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.add(&self.norm.forward(&self.inner.forward(x)?)?)
    }
}

/// The same without what a copy takes.
#[derive(Module)]
struct Alone<B: Backend, L: Layer<B>> {
    inner: L,
    norm: BatchNorm<B>,
}

impl<B: Backend, L: Layer<B>> Layer<B> for Alone<B, L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.add(&self.norm.forward(&self.inner.forward(x)?)?)
    }
}

#[test]
fn tuples_and_types_with_other_type_parameters_compute_the_same() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu, &[4, 6])?;
    type Made = (
        Residual<Cpu, WeightNorm<Cpu, Linear<Cpu>>>,
        (Linear<Cpu>, Relu, Dropout<Cpu>),
        Vec<SpectralNorm<Cpu, Linear<Cpu>>>,
    );
    let made = || -> Result<Made> {
        let init = &mut Init::new(&cpu, 5);
        let residual = Residual {
            inner: WeightNorm::new(Linear::new(init, 6, 6)?)?,
            norm: BatchNorm::new(init, 6)?,
        };
        let tuple = (Linear::new(init, 6, 8)?, Relu, Dropout::new(init, 0.3)?);
        let linear = Linear::new(init, 8, 3)?;
        Ok((residual, tuple, vec![SpectralNorm::new(init, linear)?]))
    };
    assert_eq!(checkpointable(&made()?)[..3], ["0", "0.inner", "0.inner.layer"]);
    let plain = passes(&made()?, &x, DType::F32, |_| false)?;
    for pattern in ["0", "1", "2", ""] {
        let net = made()?;
        let select = |name: &str| name.starts_with(pattern);
        assert!(plain == passes(&net, &x, DType::F32, select)?, "{pattern}");
        let (_, left) = checkpoint_layers_told(&net, select, || net.forward(&x))?;
        assert!(left.is_empty(), "{pattern} {left:?}");
    }
    Ok(())
}

/// A model of layers that cannot be computed again where it runs them.
#[derive(Module)]
struct Left<B: Backend> {
    ids: Embedding<B>,
    attention: MultiheadAttention<B>,
    hooked: Hooked<B, Linear<B>>,
    alone: Alone<B, Linear<B>>,
    blocks: Vec<Linear<B>>,
    unused: Linear<B>,
}

#[test]
fn layers_that_ran_and_cannot_be_computed_again_are_told() -> Result<()> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let net = Left {
        ids: Embedding::new(init, 5, 8)?,
        attention: MultiheadAttention::new(init, 8, 2)?,
        hooked: Hooked::new(Linear::new(init, 8, 8)?),
        alone: Alone {
            inner: Linear::new(init, 8, 8)?,
            norm: BatchNorm::new(init, 8)?,
        },
        blocks: vec![Linear::new(init, 8, 8)?],
        unused: Linear::new(init, 8, 8)?,
    };
    let ids = Indices::from_slice(&cpu, &[1i32, 2, 3], &[1, 3])?;
    let run = || {
        let x = net.ids.forward(&ids)?;
        let x = net.attention.attend(&x, &x, &x, &AttentionOptions::default())?;
        net.blocks.forward(&net.alone.forward(&net.hooked.forward(&x)?)?)
    };
    // Of ids nothing is kept but the ids, and a list is not one layer.
    let expected = [
        ("alone", "Alone"),
        ("attention", "MultiheadAttention"),
        ("hooked", "Linear"),
    ];
    let (_, left) = checkpoint_layers_told(&net, |_| true, run)?;
    assert_eq!(left, expected.map(|(name, kind)| (name.to_string(), kind)));
    let (_, left) = checkpoint_layers_told(&net, |name| name.starts_with("alone."), run)?;
    assert!(left.is_empty(), "{left:?}");
    let (_, left) = kiln_nn::no_grad(|| checkpoint_layers_told(&net, |_| true, run))?;
    assert!(left.is_empty(), "nothing is kept: {left:?}");
    Ok(())
}
