//! Memory that runs out in the middle of a recorded run.

use crate::step::{data, digits};
use crate::with;
use kiln_core::{DType, Error, Result, Runtime};
use kiln_cuda::{Cuda, Options};
use kiln_data::LabelledOn;
use kiln_nn::module::StateDict;
use kiln_nn::optim::Adam;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Layer, Sequential};
use kiln_train::{Checkpoint, Checkpoints, NonFinite, Output, Report, RunFolder, TrainError, TrainOptions, Trainer};
use std::path::Path;

/// The state of a run whose steps of two samples, those that end its epochs of six steps, need memory that there is or is not.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    /// The short batch of the first epoch.
    Step,
    /// The validation of the short batch.
    Validation,
    Nothing,
}

/// A run in `folder`, from its newest checkpoint if there is one.
fn run(cuda: &Cuda, folder: &Path, autocast: Option<DType>, needs: Needs) -> kiln_train::Result<(Report, Vec<u8>)> {
    let options = TrainOptions {
        epochs: 3,
        log_every: 2,
        autocast,
        non_finite: NonFinite::Skip { in_a_row: 1 },
        checkpoints: Some(Checkpoints {
            every_steps: Some(2),
            ..Default::default()
        }),
        ..Default::default()
    };
    let opened = match folder.exists() {
        true => RunFolder::reopen(folder),
        false => RunFolder::create(folder),
    }?;
    let mut trainer = Trainer::new(cuda, options);
    if let Ok(checkpoint) = Checkpoint::latest(&opened) {
        trainer = trainer.resume(checkpoint);
    }
    let closure = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| -> Result<Output<Cuda>> {
        let at = if kiln_nn::is_grad_enabled() {
            Needs::Step
        } else {
            Needs::Validation
        };
        if needs == at && batch.labels.size() == 2 {
            drop(cuda.alloc(DType::U8, 2 * cuda.context().free_memory().unwrap())?);
        }
        Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    };
    let (mut model, mut adam) = (digits(cuda), Adam::new(1e-2));
    let data = data([10, 10, 1]);
    let report = trainer
        .folder(opened)
        .fit(&mut model, &mut adam, closure, &data, Some(&data))?;
    Ok((report, encode(&StateDict::of(&model), &Metadata::new()).unwrap()))
}

fn requested(source: &Error) -> (usize, usize) {
    match source.root() {
        Error::OutOfMemory {
            requested,
            free: Some(free),
            ..
        } => (*requested, *free),
        other => panic!("{other}"),
    }
}

/// The error has the step and the bytes requested and free, a checkpoint of a whole step stands, and with enough memory the run goes on
/// to the bits of one that never stopped.
#[test]
fn a_recorded_run_that_runs_out_of_memory_goes_on_with_more() {
    let cuda = with(Options::default());
    let parent = tempfile::tempdir().unwrap();
    for autocast in [None, Some(DType::F16)] {
        let path = |name: &str| parent.path().join(format!("{name}-{autocast:?}"));
        let (report, calm) = run(&cuda, &path("calm"), autocast, Needs::Nothing).unwrap();
        assert!(report.execution.replayed > 8, "{:?}", report.execution);
        for (name, needs, newest) in [("step", Needs::Step, 4), ("validation", Needs::Validation, 6)] {
            let live = cuda.memory().live;
            let error = run(&cuda, &path(name), autocast, needs).unwrap_err();
            assert_eq!(cuda.memory().live, live, "the memory of the run is given back");
            let (requested, free) = match &error {
                TrainError::Step {
                    step: 6,
                    epoch: 1,
                    source,
                } if needs == Needs::Step => requested(source),
                TrainError::Validation {
                    step: 6,
                    epoch: 1,
                    source,
                } if needs == Needs::Validation => requested(source),
                other => panic!("{other}"),
            };
            assert!(error.is_out_of_memory() && requested > free, "{error}");
            let folder = RunFolder::reopen(path(name)).unwrap();
            // From the state that was kept in memory, if that is a later one.
            let found = Checkpoint::latest(&folder).unwrap().manifest().step();
            assert!((newest..=6).contains(&found) && (found < 6 || newest == 6), "{found}");
            drop(folder);
            let (_, resumed) = run(&cuda, &path(name), autocast, Needs::Nothing).unwrap();
            assert!(resumed == calm, "{name} {autocast:?}");
        }
    }
}
