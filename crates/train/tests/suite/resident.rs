//! Runs whose images stay on the device have the bits of runs whose batches the host makes, and go on from each other's
//! checkpoints.

use crate::common::{Net, bytes, images, step};
use kiln_cpu::Cpu;
use kiln_data::{Compose, Crop, Dataset, DeviceImages, Flip, Loader, LoaderOptions, Sample, ToFloat};
use kiln_nn::optim::Adam;
use kiln_train::{Accuracy, Checkpoint, End, Flow, RunFolder, TrainOptions, Trainer};
use std::path::Path;
use std::sync::Arc;

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions {
        batch_size: 16,
        shuffle: true,
        workers,
        seed: 3,
        ..Default::default()
    }
}

fn transform() -> Compose {
    Compose::new()
        .then(Crop::new(8, 8, 2))
        .then(Flip::new(0.5).unwrap())
        .then(ToFloat)
}

/// Trains three epochs, or goes on from the folder's checkpoint; stops after batch 3 of the second epoch if `stops`. Returns the
/// bytes of the model and the measured values.
fn run(cpu: &Cpu, folder: &Path, (train, valid): &(Loader, Loader), stops: bool) -> (Vec<u8>, Vec<String>) {
    let resumes = folder.exists();
    let open = if resumes {
        RunFolder::reopen(folder)
    } else {
        RunFolder::create(folder)
    };
    let open = open.unwrap();
    let checkpoint = resumes.then(|| Checkpoint::latest(&open).unwrap());
    let options = TrainOptions {
        epochs: 3,
        ..Default::default()
    };
    let mut trainer = Trainer::new(cpu, options).metric(Accuracy::new()).folder(open);
    if let Some(checkpoint) = checkpoint {
        trainer = trainer.resume(checkpoint);
    }
    if stops {
        trainer = trainer.on_step(|step| {
            Ok(if step.epoch == 2 && step.batch == 3 {
                Flow::Stop
            } else {
                Flow::Continue
            })
        });
    }
    let mut model = Net::with_dropout(cpu, 1, 0.25);
    let report = trainer
        .fit(&mut model, &mut Adam::new(1e-2), step, train, Some(valid))
        .unwrap();
    assert_eq!(report.end == End::Stopped, stops);
    let epochs = report.history.epochs().iter();
    let values = epochs.map(|e| format!("{:?} {:?} {}", e.train, e.valid, e.step));
    (bytes(&model), values.collect())
}

#[test]
fn a_run_has_the_same_bits_with_images_on_the_device_and_on_the_host() {
    let cpu = Cpu::new();
    type Images = Arc<dyn Dataset<Sample = Sample>>;
    let loaders = |train: &Images, valid: &Images, workers| {
        let loader = |data: &Images| Loader::new(data.clone(), options(workers)).unwrap();
        (
            loader(train).with_transform(transform()),
            loader(valid).with_transform(ToFloat),
        )
    };
    let (train, valid) = (images(90, 0), images(90, 1));
    let host = |workers| loaders(&train, &valid, workers);
    let on_device = |data: &Images| -> Images { Arc::new(DeviceImages::new(&cpu, data.clone()).unwrap()) };
    let (train_there, valid_there) = (on_device(&train), on_device(&valid));
    let device = |workers| loaders(&train_there, &valid_there, workers);
    let parent = tempfile::tempdir().unwrap();
    let folder = |name: &str| parent.path().join(name);
    let want = run(&cpu, &folder("host"), &host(2), false);
    assert_eq!(run(&cpu, &folder("device"), &device(0), false), want);
    assert_eq!(run(&cpu, &folder("workers"), &device(3), false), want);

    // Stopped with the one, resumed with the other.
    run(&cpu, &folder("to device"), &host(1), true);
    assert_eq!(run(&cpu, &folder("to device"), &device(0), false), want);
    run(&cpu, &folder("to host"), &device(0), true);
    assert_eq!(run(&cpu, &folder("to host"), &host(0), false), want);
}
