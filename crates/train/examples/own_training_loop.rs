//! A training loop without `Trainer`: batches, loss, gradients, clipping, a schedule, evaluation.
//! `cargo run --release --example own_training_loop`

use kiln_cpu::Cpu;
use kiln_data::{Loader, LoaderOptions, ToFloat, mnist};
use kiln_nn::layers::{Flatten, Linear, Relu};
use kiln_nn::optim::{AdamW, Schedule};
use kiln_nn::{Init, Layer, Module, Optimizer, Sequential, no_grad};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let accuracy = run(900)?;
    println!("{:.1} % of the held-back digits", 100.0 * accuracy);
    Ok(())
}

/// Trains for this many steps and returns the accuracy on the held-back digits.
pub(crate) fn run(steps: u64) -> Result<f64, Box<dyn Error>> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let mut model = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 28 * 28, 128)?)
        .push(Relu)
        .push(Linear::new(init, 128, 10)?);
    let digits = mnist::embedded()?;
    let options = LoaderOptions {
        batch_size: 64,
        shuffle: true,
        ..Default::default()
    };
    let train = Loader::new(Arc::new(digits.train), options)?.with_transform(ToFloat);
    let test = Loader::new(Arc::new(digits.test), options)?.with_transform(ToFloat);

    let mut optimizer = AdamW::new(3e-3);
    let schedule = Schedule::one_cycle(3e-3, steps);
    let (mut step, mut epoch) = (0, 0);
    while step < steps {
        for host in train.epoch(epoch)?.take((steps - step) as usize) {
            let batch = host?.to_device(&cpu)?;
            schedule.apply(step, &mut optimizer)?;
            let loss = model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?;
            let mut grads = loss.backward()?;
            let norm = grads.clip_norm(model.parameters(), 1.0)?;
            optimizer.step(&mut model, &grads)?;
            if step % 100 == 0 {
                println!("step {step}: loss {:.4}, norm {:.3}", loss.item()?, norm.item()?);
            }
            step += 1;
        }
        epoch += 1;
    }

    model.eval();
    let (mut right, mut seen) = (0, 0);
    for host in test.epoch(0)? {
        let batch = host?.to_device(&cpu)?;
        let labels: Vec<i32> = batch.labels.to_vec()?;
        let guesses: Vec<i32> = no_grad(|| model.forward(&batch.inputs)?.argmax(1, false)?.to_vec())?;
        right += labels.iter().zip(&guesses).filter(|(a, b)| a == b).count();
        seen += labels.len();
    }
    Ok(right as f64 / seen as f64)
}
