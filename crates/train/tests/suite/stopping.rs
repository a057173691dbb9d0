//! Runs that end before their last epoch.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{Dataset, LabelledOn, Sample};
use kiln_nn::autograd::is_grad_enabled;
use kiln_nn::layers::{BatchNorm, Dropout, Flatten, Linear};
use kiln_nn::optim::Sgd;
use kiln_nn::{Error, Init, Layer, Sequential, Shape, Tensor};
use kiln_train::{
    Accuracy, Callback, End, EpochRecord, Flow, Output, Plan, Result, RunFolder, StepInfo, StopHandle, TrainOptions,
    Trainer,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn ten_epochs() -> TrainOptions {
    TrainOptions {
        epochs: 10,
        ..Default::default()
    }
}

/// A callback that asks for a stop at a batch, by a handle or by its return value, and records its calls.
struct Stopper {
    handle: Option<StopHandle>,
    at: (u64, u64),
    told: Arc<Mutex<Vec<String>>>,
}

impl Callback for Stopper {
    fn on_start(&mut self, plan: &Plan) -> Result<()> {
        self.told
            .lock()
            .unwrap()
            .push(format!("{} epochs of {}", plan.epochs, plan.batches));
        Ok(())
    }
    fn on_step(&mut self, info: &StepInfo) -> Result<Flow> {
        if (info.epoch, info.batch) != self.at {
            return Ok(Flow::Continue);
        }
        match &self.handle {
            Some(handle) => handle.request(),
            None => return Ok(Flow::Stop),
        }
        Ok(Flow::Continue)
    }
    fn on_epoch_end(&mut self, record: &EpochRecord) -> Result<Flow> {
        self.told.lock().unwrap().push(format!("epoch {}", record.epoch));
        Ok(Flow::Continue)
    }
    fn on_end(&mut self) {
        self.told.lock().unwrap().push("end".to_string());
    }
}

#[test]
fn a_request_finishes_the_batch_and_saves_the_last_weights() {
    for by_handle in [true, false] {
        let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
        let folder = RunFolder::create(dir.path().join("run")).unwrap();
        let (stop, told) = (StopHandle::new(), Arc::default());
        let stopper = Stopper {
            handle: by_handle.then(|| stop.clone()),
            at: (2, 3),
            told: Arc::clone(&told),
        };
        let mut model = Net::new(&cpu, 0);
        let report = Trainer::new(&cpu, ten_epochs())
            .callback(stopper)
            .folder(folder.clone())
            .stop_handle(stop)
            .fit(
                &mut model,
                &mut Sgd::new(0.01),
                step,
                &loader(images(80, 0), 8, true, 1),
                None,
            )
            .unwrap();
        assert_eq!(report.end, End::Stopped);
        assert_eq!(*told.lock().unwrap(), ["10 epochs of 10", "epoch 1", "end"]);
        assert_eq!(report.history.epochs().len(), 1);
        assert_eq!(report.steps, 13);
        assert_eq!(std::fs::read(folder.file(RunFolder::LAST)).unwrap(), bytes(&model));
        assert_ne!(std::fs::read(folder.file(RunFolder::BEST)).unwrap(), bytes(&model));
    }
}

#[test]
fn a_request_before_the_first_batch_still_saves() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let stop = StopHandle::new();
    stop.request();
    let report = Trainer::new(&cpu, ten_epochs())
        .folder(folder.clone())
        .stop_handle(stop)
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(0.01),
            step,
            &loader(images(80, 0), 8, true, 0),
            Some(&loader(images(8, 1), 8, false, 0)),
        )
        .unwrap();
    assert_eq!((report.end, report.steps), (End::Stopped, 0));
    assert!(folder.file(RunFolder::LAST).exists() && !folder.file(RunFolder::BEST).exists());
}

/// A network whose forward pass changes its running statistics and a counter.
fn changing(cpu: &Cpu) -> Sequential<Cpu> {
    let init = &mut Init::new(cpu, 0);
    Sequential::new()
        .push(BatchNorm::new(init, 1).unwrap())
        .push(Flatten::default())
        .push(Dropout::new(init, 0.3).unwrap())
        .push(Linear::new(init, 64, 4).unwrap())
}

/// Runs ops until one fails because it was interrupted; returns that error.
fn endless(x: &Tensor<Cpu>) -> Error {
    loop {
        if let Err(e) = x.exp() {
            return e;
        }
    }
}

#[test]
fn a_step_that_takes_too_long_is_given_up_and_leaves_no_trace() {
    // There are two batches per step and three steps per epoch. The second batch of the fourth step does not end.
    let run = |epochs, stuck: Option<usize>| {
        let (cpu, stop, calls) = (Cpu::new(), StopHandle::new(), AtomicUsize::new(0));
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path().join("run")).unwrap();
        let mut model = changing(&cpu);
        let options = TrainOptions {
            epochs,
            accumulate: 2,
            ..Default::default()
        };
        let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
            let logits = model.forward(&batch.inputs)?;
            if Some(1 + calls.fetch_add(1, Ordering::Relaxed)) == stuck {
                stop.request();
                return Err(endless(&logits));
            }
            Ok(Output::new(logits.cross_entropy(&batch.labels)?))
        };
        let report = Trainer::new(&cpu, options)
            .folder(folder.clone())
            .stop_handle(stop.clone())
            .grace(Duration::from_millis(20))
            .fit(
                &mut model,
                &mut Sgd::new(0.01).momentum(0.9),
                step,
                &loader(images(24, 0), 4, false, 0),
                None,
            )
            .unwrap();
        assert_eq!(std::fs::read(folder.file(RunFolder::LAST)).unwrap(), bytes(&model));
        (report.end, report.steps, bytes(&model))
    };
    let (end, steps, weights) = run(1, None);
    assert_eq!((end, steps), (End::Finished, 3));
    for stuck in [7, 8] {
        assert!(
            run(2, Some(stuck)) == (End::Stopped, 3, weights.clone()),
            "batch {stuck}"
        );
    }
}

#[test]
fn a_measurement_that_takes_too_long_is_given_up() {
    let (cpu, stop) = (Cpu::new(), StopHandle::new());
    let data = loader(images(24, 0), 4, false, 0);
    let step = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        if !is_grad_enabled() {
            stop.request();
            return Err(endless(&logits));
        }
        Ok(Output::new(logits.cross_entropy(&batch.labels)?))
    };
    let report = Trainer::new(&cpu, ten_epochs())
        .stop_handle(stop.clone())
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &data, Some(&data))
        .unwrap();
    assert_eq!((report.end, report.steps), (End::Stopped, 6));
    assert!(report.history.epochs().is_empty());
}

#[test]
fn batches_of_one_step_are_taken_one_at_a_time() {
    struct Counted(Arc<dyn Dataset<Sample = Sample>>, Arc<AtomicUsize>);
    impl Dataset for Counted {
        type Sample = Sample;
        fn len(&self) -> usize {
            self.0.len()
        }
        fn read(&self, index: usize, sample: &mut Sample) -> kiln_data::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read(index, sample)
        }
        fn shape(&self) -> Option<Shape> {
            self.0.shape()
        }
        fn classes(&self) -> Option<usize> {
            self.0.classes()
        }
    }
    let (cpu, reads, calls) = (Cpu::new(), Arc::default(), AtomicUsize::new(0));
    let data = loader(Arc::new(Counted(images(48, 0), Arc::clone(&reads))), 4, false, 0);
    let options = TrainOptions {
        accumulate: 12,
        ..Default::default()
    };
    let seen = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let call = 1 + calls.fetch_add(1, Ordering::Relaxed);
        assert_eq!(reads.load(Ordering::Relaxed), 4 * call, "samples read at batch {call}");
        step(model, batch)
    };
    let report = Trainer::new(&cpu, options).fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), seen, &data, None);
    assert_eq!(report.unwrap().steps, 1);
    assert_eq!(calls.load(Ordering::Relaxed), 12);
}

#[test]
fn a_run_that_gets_no_better_ends_early() {
    let cpu = Cpu::new();
    let options = TrainOptions {
        patience: Some(2),
        ..ten_epochs()
    };
    // At learning rate 0 nothing changes, so the first epoch stays the best.
    let report = Trainer::new(&cpu, options)
        .metric(Accuracy::new())
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(0.0),
            step,
            &loader(images(16, 0), 8, true, 0),
            Some(&loader(images(8, 1), 8, false, 0)),
        )
        .unwrap();
    assert_eq!(report.end, End::EarlyStopped);
    assert_eq!(report.history.epochs().len(), 3);
    assert_eq!(report.best().unwrap().epoch, 1);
}
