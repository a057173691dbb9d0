//! Norms and activations that are computed again in the backward pass.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_nn::autograd::{grad, recompute_activations};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Gelu, LayerNorm, Linear, ResidualStream};
use kiln_nn::{Activation, Backend, DType, Init, Layer, Module, Result, Rng, Tensor, autocast};

#[derive(Module)]
struct Block<B: Backend> {
    norm: LayerNorm<B>,
    fc: Linear<B>,
    act: Gelu,
    proj: Linear<B>,
    dropout: Dropout<B>,
}

impl<B: Backend> Block<B> {
    fn new(init: &mut Init<B>) -> Result<Self> {
        Ok(Block {
            norm: LayerNorm::new(init, &[6])?,
            fc: Linear::new(init, 6, 11)?,
            act: Gelu,
            proj: Linear::new(init, 11, 6)?,
            dropout: Dropout::new(init, 0.3)?,
        })
    }

    fn add_to(&self, stream: ResidualStream<B>) -> Result<ResidualStream<B>> {
        let (stream, n) = stream.norm(&self.norm)?;
        let y = self.proj.forward(&self.act.forward(&self.fc.forward(&n)?)?)?;
        stream.add(&y, Some(&self.dropout))
    }
}

/// The gradients of two blocks of the same seed, with or without the switch.
fn gradients(again: bool, dtype: DType) -> Result<Vec<Vec<f64>>> {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 7);
    let blocks = vec![Block::new(init)?, Block::new(init)?];
    let x = Tensor::randn(&cpu, &[3, 5, 6], DType::F32, &mut Rng::new(3))?;
    let loss = || {
        let mut stream = ResidualStream::new(&x);
        for block in &blocks {
            stream = block.add_to(stream)?;
        }
        stream.sum()?.square()?.sum(&[], false)
    };
    let loss = autocast(dtype, || if again { recompute_activations(loss) } else { loss() })?;
    let grads = loss.backward()?;
    let of = |p: &Tensor<Cpu>| grads.get(p).expect("every parameter has a gradient").to_f64();
    blocks
        .iter()
        .flat_map(|block| block.parameters())
        .map(|p| of(p.tensor()))
        .collect()
}

/// The gradients have the bits that they have where everything is kept.
#[test]
fn the_bits_are_the_same() -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        assert_eq!(gradients(true, dtype)?, gradients(false, dtype)?, "{dtype}");
    }
    Ok(())
}

/// Gradients of gradients go through inputs that are computed again.
#[test]
fn second_gradients_are_the_same() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = Tensor::randn(&cpu, &[2, 3], DType::F32, &mut Rng::new(1))?.requires_grad();
    let w = Tensor::randn(&cpu, &[4, 3], DType::F32, &mut Rng::new(2))?.requires_grad();
    let second = |again: bool| -> Result<Vec<f64>> {
        let y = || x.gelu()?.linear(&w, None, Activation::None)?.square()?.sum(&[], false);
        let y = if again { recompute_activations(y)? } else { y()? };
        let first = grad(&y, &[&w], None, true)?.remove(0).expect("it depends on w");
        let found = grad(&first.square()?.sum(&[], false)?, &[&x], None, false)?.remove(0);
        found.expect("it depends on x").to_f64()
    };
    assert_eq!(second(true)?, second(false)?);
    Ok(())
}

/// The result of an activation is freed after the forward pass: that which a linear layer alone reads always, whose gradient makes it again
/// on its way, and any with the switch.
#[test]
fn the_result_is_not_kept() -> Result<()> {
    let held = |again: bool, once: bool| -> Result<usize> {
        let cpu = Cpu::poisoned();
        let x = Tensor::randn(&cpu, &[64, 256], DType::F32, &mut Rng::new(1))?.requires_grad();
        let w = Tensor::randn(&cpu, &[1, 256], DType::F32, &mut Rng::new(2))?.requires_grad();
        let y = || {
            let h = x.gelu()?;
            let h = if once { h } else { h.unsqueeze(0)? };
            h.linear(&w, None, Activation::None)
        };
        let _y = if again { recompute_activations(y)? } else { y()? };
        Ok(cpu.memory().live)
    };
    assert_eq!(held(false, false)? - held(true, false)?, 64 * 256 * 4);
    assert_eq!(held(false, true)?, held(true, false)?);
    assert_eq!(held(false, true)?, held(true, true)?);
    Ok(())
}

/// A chain of residual blocks, `y = relu(bn(x) + x)`, with a convolution of 1×1 before each norm.
#[derive(Module)]
struct Chain<B: Backend> {
    blocks: Vec<Residual<B>>,
}

#[derive(Module)]
struct Residual<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
}

impl<B: Backend> Chain<B> {
    fn new(backend: &B, blocks: usize, channels: usize) -> Result<Self> {
        let init = &mut Init::new(backend, 11);
        let block = |_| {
            let conv = Conv2d::builder(channels, channels, 1).bias(false).build(init)?;
            let bn = BatchNorm::new(init, channels)?;
            Ok(Residual { conv, bn })
        };
        let blocks = (0..blocks).map(block).collect::<Result<_>>()?;
        Ok(Chain { blocks })
    }
}

impl<B: Backend> Layer<B> for Chain<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let block = |x: Tensor<B>, block: &Residual<B>| block.conv.forward_norm_relu(&block.bn, &x, Some(&x));
        self.blocks.iter().try_fold(x.clone(), block)
    }
}

/// A chain of any length is computed again in a loop: the bits are the same, and the stack is that of one block.
#[test]
fn long_chains_are_computed_in_a_loop() -> Result<()> {
    let run = |again: bool| -> Result<Vec<f64>> {
        let cpu = Cpu::poisoned();
        let net = Chain::new(&cpu, 3000, 2)?;
        let x = Tensor::randn(&cpu, &[3, 2, 1, 2], DType::F32, &mut Rng::new(5))?.requires_grad();
        let loss = || net.forward(&x)?.square()?.sum(&[], false);
        let loss = if again { recompute_activations(loss)? } else { loss()? };
        loss.backward()?.get(&x).expect("it depends on x").to_f64()
    };
    let small = |again| {
        let thread = std::thread::Builder::new().stack_size(512 << 10);
        thread
            .spawn(move || run(again))
            .expect("a thread")
            .join()
            .expect("no overflow")
    };
    assert_eq!(small(true)?, small(false)?);
    Ok(())
}

/// Of a chain of residual blocks the forward pass keeps the results of the convolutions alone.
#[test]
fn the_results_of_blocks_are_not_kept() -> Result<()> {
    const BLOCKS: usize = 5;
    let held = |again: bool| -> Result<usize> {
        let cpu = Cpu::poisoned();
        let net = Chain::new(&cpu, BLOCKS, 8)?;
        let x = Tensor::randn(&cpu, &[8, 16, 16, 8], DType::F32, &mut Rng::new(5))?.requires_grad();
        let y = || net.forward(&x)?.sum(&[], false);
        let _y = if again { recompute_activations(y)? } else { y()? };
        Ok(cpu.memory().live)
    };
    assert_eq!(held(false)? - held(true)?, BLOCKS * 8 * 16 * 16 * 8 * 4);
    Ok(())
}

/// Gradients of gradients go through batch norms that are computed again.
#[test]
fn second_gradients_of_a_chain_are_the_same() -> Result<()> {
    let second = |again: bool| -> Result<Vec<f64>> {
        let cpu = Cpu::poisoned();
        let net = Chain::new(&cpu, 3, 4)?;
        let x = Tensor::randn(&cpu, &[3, 2, 2, 4], DType::F32, &mut Rng::new(5))?.requires_grad();
        let y = || net.forward(&x)?.square()?.sum(&[], false);
        let y = if again { recompute_activations(y)? } else { y()? };
        let first = grad(&y, &[&x], None, true)?.remove(0).expect("it depends on x");
        let found = grad(&first.square()?.sum(&[], false)?, &[&x], None, false)?.remove(0);
        found.expect("it depends on x").to_f64()
    };
    assert_eq!(second(true)?, second(false)?);
    Ok(())
}
