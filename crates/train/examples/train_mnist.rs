//! A convolutional net on the 10,000 handwritten digits that ship with Kiln: `cargo run --release --example train_mnist`.

use kiln_cpu::Cpu;
use kiln_data::{LabelledOn, Loader, LoaderOptions, ToFloat, mnist};
use kiln_nn::layers::{Conv2d, Flatten, Linear, MaxPool2d, Relu};
use kiln_nn::{Init, Layer, Sequential, optim::Adam};
use kiln_train::{Accuracy, Output, TrainOptions, Trainer};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    run(TrainOptions {
        epochs: 5,
        ..Default::default()
    })
}

/// Trains with these options and prints the best epoch's loss and accuracy on the held-back digits.
pub(crate) fn run(options: TrainOptions) -> Result<(), Box<dyn Error>> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let mut model = Sequential::new()
        .push(Conv2d::new(init, 1, 16, 3)?)
        .push(Relu)
        .push(MaxPool2d::new(2))
        .push(Conv2d::new(init, 16, 32, 3)?)
        .push(Relu)
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Linear::new(init, 5 * 5 * 32, 10)?);

    let digits = mnist::embedded()?;
    let batches = LoaderOptions {
        batch_size: 32,
        shuffle: true,
        ..Default::default()
    };
    let train = Loader::new(Arc::new(digits.train), batches)?.with_transform(ToFloat);
    let valid = Loader::new(Arc::new(digits.test), batches)?.with_transform(ToFloat);

    let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
    };
    let mut trainer = Trainer::new(&cpu, options).metric(Accuracy::new());
    let report = trainer.fit(&mut model, &mut Adam::new(1e-3), step, &train, Some(&valid))?;
    if let Some(best) = report.best() {
        println!("best epoch: {}, {:?}", best.epoch, best.valid);
    }
    Ok(())
}
