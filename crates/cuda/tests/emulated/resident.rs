//! Images that stay on the device: batches made by the kernel, in steps that are recorded and replayed.

use crate::step::digits;
use crate::with;
use kiln_core::{Backend, Error, Result};
use kiln_cpu::Cpu;
use kiln_cuda::{Cuda, Options};
use kiln_data::{
    Compose, Crop, DataError, Dataset, DeviceImages, Flip, LabelledOn, Loader, LoaderOptions, Normalise, Sample,
    Synthetic, ToFloat,
};
use kiln_nn::module::StateDict;
use kiln_nn::optim::Adam;
use kiln_nn::{Layer, Sequential};
use kiln_train::{Output, Report, TrainOptions, Trainer};
use std::sync::Arc;

fn images() -> Arc<Synthetic> {
    Arc::new(Synthetic::images(22, &[9, 10, 1], 4, 5).unwrap())
}

fn transform() -> Compose {
    let stages = Compose::new().then(Crop::new(10, 10, 2)).then(Flip::new(0.5).unwrap());
    stages.then(ToFloat).then(Normalise::new(&[0.4], &[0.3]).unwrap())
}

fn loader(data: impl Dataset<Sample = Sample> + 'static) -> Loader {
    let options = LoaderOptions {
        batch_size: 4,
        shuffle: true,
        seed: 3,
        ..Default::default()
    };
    Loader::new(Arc::new(data), options)
        .unwrap()
        .with_transform(transform())
}

fn step<B: Backend>(model: &Sequential<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
}

/// The weights after four epochs, as bits, and the report.
fn trained(cuda: &Cuda, data: &Loader) -> (Vec<u64>, Report) {
    let mut model = digits(cuda);
    let options = TrainOptions {
        epochs: 4,
        log_every: 3,
        ..Default::default()
    };
    let trained = Trainer::new(cuda, options).fit(&mut model, &mut Adam::new(1e-2), step, data, Some(data));
    let dict = StateDict::of(&model);
    let floats = dict
        .iter()
        .filter_map(|(name, _)| dict.float(name))
        .map(|t| t.to_f64().unwrap());
    (floats.flatten().map(f64::to_bits).collect(), trained.unwrap())
}

#[test]
fn replayed_steps_have_the_bits_of_the_host_s_batches() {
    let cuda = with(Options::default());
    let host = loader(images());
    let device = loader(DeviceImages::new(&cuda, images()).unwrap());
    let (want, by_host) = trained(&cuda, &host);
    let (got, by_device) = trained(&cuda, &device);
    assert_eq!(got, want);
    assert!(by_device.execution.replayed > 10, "{:?}", by_device.execution);
    assert_eq!(by_device.execution.replayed, by_host.execution.replayed);
    assert_eq!(by_device.execution.allocations, 0);
    let losses = |report: &Report| {
        report
            .history
            .epochs()
            .iter()
            .map(|e| (e.train.clone(), e.valid.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(&by_device), losses(&by_host));
}

/// The processor's batches have the bits of the GPU's.
#[test]
fn batches_are_those_of_the_processor() {
    let (cuda, cpu) = (with(Options::default()), Cpu::new());
    let on_gpu = loader(DeviceImages::new(&cuda, images()).unwrap());
    let on_cpu = loader(DeviceImages::new(&cpu, images()).unwrap());
    for (a, b) in on_gpu.epoch(2).unwrap().zip(on_cpu.epoch(2).unwrap()) {
        let (a, b) = (a.unwrap(), b.unwrap());
        let refused = a.to_device(&cpu);
        match refused {
            Err(DataError::Tensor(e)) if matches!(*e, Error::InvalidArgument { argument: "images", .. }) => {}
            other => panic!("{other:?}"),
        }
        let (a, b) = (a.to_device(&cuda).unwrap(), b.to_device(&cpu).unwrap());
        assert_eq!(a.inputs.to_vec::<f32>().unwrap(), b.inputs.to_vec::<f32>().unwrap());
        assert_eq!(a.labels.to_vec::<i32>().unwrap(), b.labels.to_vec::<i32>().unwrap());
    }
}
