//! Gradients of gradients: a critic whose slope is held at 1 (Gulrajani et al. 2017, "Improved Training of Wasserstein GANs").
//! `cargo run --release --example gradient_penalty`

use kiln_cpu::Cpu;
use kiln_nn::layers::{Linear, Tanh};
use kiln_nn::optim::Adam;
use kiln_nn::{DType, Init, Layer, Optimizer, Result, Rng, Sequential, Tensor, grad};

fn main() -> Result<()> {
    let [distance, slope] = run(400)?;
    println!("estimated distance {distance:.3} (2 in truth), slope {slope:.3}");
    Ok(())
}

/// Estimates the Wasserstein distance of two normal distributions two apart. Returns it with the mean norm of the critic's
/// gradient.
pub(crate) fn run(steps: usize) -> Result<[f64; 2]> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let mut critic = Sequential::new()
        .push(Linear::new(init, 2, 64)?)
        .push(Tanh)
        .push(Linear::new(init, 64, 64)?)
        .push(Tanh)
        .push(Linear::new(init, 64, 1)?);
    let mut optimizer = Adam::new(1e-3);
    let mut rng = Rng::new(1);
    let shift = Tensor::from_slice(&cpu, &[2f32, 0.0], &[1, 2])?;
    let mut last = [0.0; 2];
    for _ in 0..steps {
        let real = Tensor::randn(&cpu, &[128, 2], DType::F32, &mut rng)?.add(&shift)?;
        let fake = Tensor::randn(&cpu, &[128, 2], DType::F32, &mut rng)?;
        let share = Tensor::rand(&cpu, &[128, 1], DType::F32, &mut rng)?;
        let between = fake.add(&real.sub(&fake)?.mul(&share)?)?.requires_grad();

        // The gradient with respect to the input is itself part of the loss, so its graph is kept.
        let score = critic.forward(&between)?.sum(&[], false)?;
        let slope = grad(&score, &[&between], None, true)?.remove(0);
        let slope = slope.expect("the score depends on its input").norm(2.0, &[1], false)?;
        let penalty = slope.add_scalar(-1.0)?.square()?.mean(&[], false)?;

        let [real, fake] = [&real, &fake].map(|x| critic.forward(x)?.mean(&[], false));
        let distance = real?.sub(&fake?)?;
        let loss = penalty.mul_scalar(10.0)?.sub(&distance)?;
        optimizer.step(&mut critic, &loss.backward()?)?;
        last = [distance.item()?, slope.mean(&[], false)?.item()?];
    }
    Ok(last)
}
