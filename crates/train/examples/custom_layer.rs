//! A layer and a model of one's own: structs whose fields are modules, and a forward pass of tensor functions.
//! `cargo run --release --example custom_layer`

use kiln_cpu::Cpu;
use kiln_nn::layers::{Linear, RmsNorm};
use kiln_nn::optim::Adam;
use kiln_nn::{Backend, DType, Init, Layer, Module, Optimizer, Result, Rng, Tensor};

/// `x + w₂(silu(w₁ n) · w₃ n)` of the normalised input n, the gated feed-forward block of Shazeer (2020).
#[derive(Clone, Module)]
struct GatedBlock<B: Backend> {
    norm: RmsNorm<B>,
    gate: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> GatedBlock<B> {
    fn new(init: &mut Init<B>, width: usize) -> Result<Self> {
        Ok(GatedBlock {
            norm: RmsNorm::new(init, &[width])?,
            gate: Linear::new(init, width, 2 * width)?,
            up: Linear::new(init, width, 2 * width)?,
            down: Linear::new(init, 2 * width, width)?,
        })
    }
}

impl<B: Backend> Layer<B> for GatedBlock<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let n = self.norm.forward(x)?;
        let gated = self.gate.forward(&n)?.silu()?.mul(&self.up.forward(&n)?)?;
        x.add(&self.down.forward(&gated)?)
    }
}

/// Two blocks and an output.
#[derive(Clone, Module)]
struct Net<B: Backend> {
    blocks: Vec<GatedBlock<B>>,
    head: Linear<B>,
}

impl<B: Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.head.forward(&x)
    }
}

fn main() -> Result<()> {
    let loss = run(1000)?;
    println!("mean squared error {loss:.5}");
    Ok(())
}

/// Learns the product of two coordinates, and returns the last loss.
pub(crate) fn run(steps: usize) -> Result<f64> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let blocks = vec![GatedBlock::new(init, 8)?, GatedBlock::new(init, 8)?];
    let head = Linear::new(init, 8, 1)?;
    let mut net = Net { blocks, head };
    for (name, p) in net.named_parameters().iter().take(2) {
        println!("{name} {:?}", p.shape());
    }
    let mut rng = Rng::new(1);
    let mut optimizer = Adam::new(3e-3);
    let mut last = f64::INFINITY;
    for _ in 0..steps {
        let x = Tensor::randn(&cpu, &[64, 8], DType::F32, &mut rng)?;
        let product = x.narrow(1, 0, 1)?.mul(&x.narrow(1, 1, 1)?)?;
        let loss = net.forward(&x)?.sub(&product)?.square()?.mean(&[], false)?;
        optimizer.step(&mut net, &loss.backward()?)?;
        last = loss.item()?;
    }
    Ok(last)
}
