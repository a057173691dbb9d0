//! Runs that end before their last epoch.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::Sgd;
use kiln_train::{
    Accuracy, Callback, End, EpochRecord, Flow, Plan, Result, RunFolder, StepInfo, StopHandle, TrainOptions, Trainer,
};
use std::sync::{Arc, Mutex};

fn ten_epochs() -> TrainOptions {
    TrainOptions {
        epochs: 10,
        ..Default::default()
    }
}

/// Asks for a stop at a batch, by the handle or by its answer, and notes what it is told.
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
        // The request by handle comes after its batch was looked at; the next one is still finished.
        assert_eq!(report.steps, if by_handle { 14 } else { 13 });
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
    assert_eq!((report.end, report.steps), (End::Stopped, 1));
    assert!(folder.file(RunFolder::LAST).exists() && !folder.file(RunFolder::BEST).exists());
}

#[test]
fn a_run_that_gets_no_better_ends_early() {
    let cpu = Cpu::new();
    let options = TrainOptions {
        patience: Some(2),
        ..ten_epochs()
    };
    // Nothing changes at rate 0: the first epoch stays the best.
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
    assert_eq!(report.end, End::Stale);
    assert_eq!(report.history.epochs().len(), 3);
    assert_eq!(report.best().unwrap().epoch, 1);
}
