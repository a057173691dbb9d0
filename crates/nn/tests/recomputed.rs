//! Norms and activations that are computed again in the backward pass.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_nn::autograd::{grad, recompute_activations};
use kiln_nn::layers::{Dropout, Gelu, LayerNorm, Linear, ResidualStream};
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

/// The result of an activation is freed after the forward pass.
#[test]
fn the_result_is_not_kept() -> Result<()> {
    let held = |again: bool| -> Result<usize> {
        let cpu = Cpu::poisoned();
        let x = Tensor::randn(&cpu, &[64, 256], DType::F32, &mut Rng::new(1))?.requires_grad();
        let w = Tensor::randn(&cpu, &[1, 256], DType::F32, &mut Rng::new(2))?.requires_grad();
        let y = || x.gelu()?.linear(&w, None, Activation::None);
        let _y = if again { recompute_activations(y)? } else { y()? };
        Ok(cpu.memory().live)
    };
    assert_eq!(held(false)? - held(true)?, 64 * 256 * 4);
    Ok(())
}
