//! A training step that is recorded once and from then on launched as one graph, by hand; `Trainer` does this by itself.
//! `cargo run --release -p kiln-cuda --example cuda_graph`

use kiln_core::Runtime;
use kiln_cuda::Cuda;
use kiln_data::{LabelledOn, Loader, LoaderOptions, ToFloat, mnist};
use kiln_nn::layers::{Flatten, Linear, Relu};
use kiln_nn::optim::{Adam, Applied};
use kiln_nn::{Init, Layer, Optimizer, Sequential, Tensor};
use std::error::Error;
use std::sync::Arc;

/// Samples of a batch. A recording is of one shape.
const BATCH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let cuda = match Cuda::new(0) {
        Ok(cuda) => cuda,
        Err(why) => {
            println!("nothing to show without a CUDA device: {why}");
            println!("the emulated driver is one: cargo build --release -p kiln-emulator, and");
            println!("KILN_CUDA_DRIVER=target/release/libkiln_emulator.so before this command");
            return Ok(());
        }
    };
    let [first, last] = run(&cuda, 300)?;
    println!("loss {first:.4} in the first step, {last:.4} in the last");
    Ok(())
}

/// Trains for this many steps and returns the losses of the first and the last.
pub(crate) fn run(cuda: &Cuda, steps: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let init = &mut Init::new(cuda, 0);
    let mut model = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 28 * 28, 32)?)
        .push(Relu)
        .push(Linear::new(init, 32, 10)?);
    let mut optimizer = Adam::new(1e-3);
    let options = LoaderOptions {
        batch_size: BATCH,
        shuffle: true,
        ..Default::default()
    };
    let train = Loader::new(Arc::new(mnist::embedded()?.train), options)?.with_transform(ToFloat);
    let mut batches = Vec::new();
    for host in train.epoch(0)? {
        let host = host?;
        if host.len() == BATCH {
            batches.push(host);
        }
    }
    let mut batches = batches.iter().cycle();
    let mut next = || batches.next().ok_or("no whole batch");

    // The first step runs op by op: it makes the optimizer's state and loads the kernels, which a recording cannot.
    let mut batch = next()?.to_device(cuda)?;
    optimizer.prepare(&model)?;
    let (loss, applied) = step(&mut model, &mut optimizer, &batch)?;
    optimizer.count(&applied);
    let first = loss.item()?;

    // The second is recorded, and runs once. Values that change from step to step lie in memory that stays where it is: the
    // batch is written over the one before, and `prepare` writes the learning rate and the optimizer's other scalars.
    next()?.write_to(&mut batch)?;
    optimizer.prepare(&model)?;
    let mut made = None;
    let graph = cuda.capture(&mut || {
        made = Some(step(&mut model, &mut optimizer, &batch)?);
        Ok(())
    })?;
    let (Some(mut graph), Some((loss, applied))) = (graph, made) else {
        return Err("the step was not recorded".into());
    };
    optimizer.count(&applied);
    println!("a step is one launch of {} kernels", Runtime::launches(cuda, &graph));

    // All others are replays. Reading the loss waits for the device, so not every step does.
    for number in 2..steps {
        next()?.write_to(&mut batch)?;
        optimizer.prepare(&model)?;
        cuda.replay(&mut graph)?;
        optimizer.count(&applied);
        if number % 50 == 0 {
            println!("step {number}: loss {:.4}", loss.item()?);
        }
    }
    Ok([first, loss.item()?])
}

/// The work of a step on the device: forward, backward, update.
fn step(
    model: &mut Sequential<Cuda>,
    optimizer: &mut dyn Optimizer<Cuda>,
    batch: &LabelledOn<Cuda>,
) -> kiln_core::Result<(Tensor<Cuda>, Applied)> {
    let loss = model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?;
    let grads = loss.backward()?;
    Ok((loss.detach(), optimizer.apply(model, &grads)?))
}
