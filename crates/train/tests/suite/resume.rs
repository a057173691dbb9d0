//! Runs that go on from a checkpoint end as if they had never stopped.

use crate::common::{Net, bytes, images, loader, step};
use kiln_core::ops::Activation;
use kiln_cpu::Cpu;
use kiln_data::{Compose, Crop, Flip, LabelledOn, Loader, LoaderOptions, ToFloat};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Noise};
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adam, NAdam, Optimizer, ReduceOnPlateau, Schedule, Sgd};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Sequential, Tensor};
use kiln_train::{
    Accuracy, Average, Callback, Checkpoint, Checkpoints, Clip, End, EpochRecord, Execution, Flow, Metric, NonFinite,
    Output, Phase, Reduction, Report, RunFolder, StepInfo, StopHandle, TrainOptions, Trainer,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
struct Setup {
    optimizer: usize,
    accumulate: usize,
    phases: bool,
    skips: bool,
    autocast: Option<DType>,
    plateau: bool,
    average: Option<Average>,
    log_every: usize,
    every_steps: u64,
}

fn setups() -> impl Strategy<Value = Setup> {
    (
        0usize..3,
        1usize..4,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![
            None,
            Some(Average::Ema { decay: 0.9 }),
            Some(Average::Swa { from: 3, every: 2 }),
        ]),
        1usize..7,
        1u64..6,
        prop::sample::select(vec![None, Some(DType::BF16), Some(DType::F16)]),
    )
        .prop_map(
            |(optimizer, accumulate, phases, skips, plateau, average, log_every, every_steps, autocast)| Setup {
                optimizer,
                accumulate,
                phases,
                skips,
                autocast,
                plateau,
                average,
                log_every,
                every_steps,
            },
        )
}

/// Everything random and everything with a state: dropout, batch norm, noise.
#[derive(Module)]
struct Stateful<B: Backend> {
    features: Sequential<B>,
    noise: Noise<B>,
    head: Linear<B>,
}

impl<B: Backend> Stateful<B> {
    fn new(backend: &B) -> Self {
        let init = &mut Init::new(backend, 4);
        let conv = Conv2d::<B>::builder(1, 3, 3)
            .activation(Activation::Relu)
            .build(init)
            .unwrap();
        let features = Sequential::new()
            .push(conv)
            .push(BatchNorm::new(init, 3).unwrap())
            .push(MaxPool2d::new(2))
            .push(Flatten::default())
            .push(Dropout::new(init, 0.3).unwrap());
        Stateful {
            features,
            noise: Noise::new(init).unwrap(),
            head: Linear::new(init, 27, 4).unwrap(),
        }
    }
}

impl<B: Backend> Layer<B> for Stateful<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let x = self.features.forward(x)?;
        let noise = self.noise.randn(x.shape(), DType::F32)?.mul_scalar(0.1)?;
        self.head.forward(&x.add(&noise)?)
    }
}

/// The sum of all scores in the order of the batches, gathered in training too.
#[derive(Default)]
struct Scores(Vec<f64>);

impl Metric<Cpu> for Scores {
    fn name(&self) -> String {
        "scores".to_string()
    }
    fn measure(&self, output: &Output<Cpu>) -> Result<Tensor<Cpu>> {
        Ok(output.floats("scores")?.clone())
    }
    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }
    fn in_training(&self) -> bool {
        true
    }
    fn observe(&mut self, term: &[f64], _: &[usize]) {
        self.0.extend_from_slice(term);
    }
    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        std::mem::take(&mut self.0).into_iter().sum()
    }
}

/// Notes every report of the loss, and stops after so many batches of the run.
struct Watch {
    seen: Arc<Mutex<Vec<(u64, u64, StepInfo)>>>,
    stop_after: Option<usize>,
    batches: usize,
}

impl Callback for Watch {
    fn on_step(&mut self, info: &StepInfo) -> kiln_train::Result<Flow> {
        if info.loss.is_some() {
            let report = StepInfo {
                seconds: 0.0,
                waiting: 0.0,
                ..info.clone()
            };
            self.seen.lock().unwrap().push((info.epoch, info.batch, report));
        }
        self.batches += 1;
        Ok(match Some(self.batches) == self.stop_after {
            true => Flow::Stop,
            false => Flow::Continue,
        })
    }
}

const EPOCHS: u64 = 3;

/// What a run leaves behind, without times and without how its steps were made.
#[derive(Debug, PartialEq)]
struct Left {
    model: Vec<u8>,
    averaged: Option<Vec<u8>>,
    optimizers: Vec<Vec<u8>>,
    epochs: Vec<EpochRecord>,
    file: Vec<EpochRecord>,
}

fn timeless(record: &EpochRecord) -> EpochRecord {
    EpochRecord {
        seconds: 0.0,
        waiting: 0.0,
        samples_per_second: 0.0,
        execution: Execution::default(),
        machine: Default::default(),
        ..record.clone()
    }
}

/// Checks that the table of a history has its epochs, with their times.
fn check_table(history: &str, table: &str) {
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len().saturating_sub(1), history.lines().count());
    for (line, row) in history.lines().zip(rows.iter().skip(1)) {
        let record: EpochRecord = serde_json::from_str(line).unwrap();
        let cell = |name: &str| row[rows[0].iter().position(|n| *n == name).unwrap()];
        assert_eq!(cell("epoch"), record.epoch.to_string());
        assert_eq!(cell("seconds").parse(), Ok(record.seconds));
    }
}

fn data() -> Loader {
    let options = LoaderOptions {
        batch_size: 4,
        shuffle: true,
        seed: 9,
        workers: 1,
        ..Default::default()
    };
    let augment = Compose::new()
        .then(Crop::new(8, 8, 1))
        .then(Flip::new(0.5).unwrap())
        .then(ToFloat);
    Loader::new(images(30, 0), options).unwrap().with_transform(augment)
}

/// The reports of a run.
type Seen = Vec<(u64, u64, StepInfo)>;

/// Runs in `folder` until the end or until so many batches, from its newest checkpoint if it `resumes`.
fn run(setup: Setup, folder: &Path, resumes: bool, stop_after: Option<usize>) -> (Report, Left, Seen) {
    let cpu = Cpu::new();
    let options = TrainOptions {
        epochs: EPOCHS,
        accumulate: setup.accumulate,
        clip: Some(Clip::Norm(1.0)),
        average: setup.average,
        log_every: setup.log_every,
        autocast: setup.autocast,
        non_finite: match setup.skips {
            true => NonFinite::Skip { in_a_row: 100 },
            false => NonFinite::Stop,
        },
        checkpoints: Some(Checkpoints {
            every_steps: Some(setup.every_steps),
            every: None,
            keep: 100,
        }),
        ..Default::default()
    };
    let optimizer = || -> Box<dyn Optimizer<Cpu>> {
        match setup.optimizer {
            0 => Box::new(Sgd::new(0.05).momentum(0.9)),
            1 => Box::new(Adam::new(0.01)),
            _ => Box::new(NAdam::new(0.01)),
        }
    };
    let seen = Arc::default();
    let mut trainer = Trainer::new(&cpu, options)
        .metric(Accuracy::new())
        .metric(Scores::default())
        .callback(Watch {
            seen: Arc::clone(&seen),
            stop_after,
            batches: 0,
        });
    match setup.plateau {
        true => {
            trainer = trainer.reduce_on_plateau(ReduceOnPlateau {
                patience: 0,
                factor: 0.5,
                ..Default::default()
            });
        }
        false => {
            let schedule = Schedule::Cosine {
                lr: 0.05,
                min: 0.0,
                steps: 24,
            };
            trainer = trainer.schedule(schedule);
        }
    }
    let opened = match resumes {
        true => {
            let opened = RunFolder::reopen(folder).unwrap();
            trainer = trainer.resume(Checkpoint::latest(&opened).unwrap());
            opened
        }
        false => RunFolder::create(folder).unwrap(),
    };
    trainer = trainer.folder(opened);
    let trained = |model: &Stateful<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        let spread = logits.std(&[], 1, false)?;
        // Some steps are skipped.
        let loss = logits.cross_entropy(&batch.labels)?;
        let loss = match setup.skips && batch.labels.to_vec::<i32>()?[..2] == [1, 1] {
            true => loss.mul_scalar(f64::NAN)?,
            false => loss,
        };
        Ok(Output::new(loss)
            .part("spread", &spread)
            .with_scores(logits, &batch.labels))
    };
    let (mut model, mut first, mut second) = (Stateful::new(&cpu), optimizer(), optimizer());
    let (train, valid) = (data(), loader(images(8, 1), 8, false, 0));
    let report = match setup.phases {
        true => {
            let phases = vec![
                Phase::new("a", &mut *first, trained).trains(|name| name.starts_with("features")),
                Phase::new("b", &mut *second, trained)
                    .trains(|name| name.starts_with("head"))
                    .every(2),
            ];
            let valid = kiln_train::Validation::new(&valid, trained);
            trainer = trainer.reduce_on_plateau(ReduceOnPlateau::default());
            trainer.fit_phases(&mut model, phases, &train, Some(&valid))
        }
        false => trainer.fit(&mut model, &mut *first, trained, &train, Some(&valid)),
    };
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    let file = std::fs::read_to_string(folder.join(RunFolder::HISTORY)).unwrap();
    check_table(&file, &std::fs::read_to_string(folder.join(RunFolder::TABLE)).unwrap());
    let left = Left {
        model: bytes(&model),
        averaged: std::fs::read(folder.join(RunFolder::AVERAGED)).ok(),
        optimizers: [&first, &second]
            .map(|o| encode(&o.state_dict().unwrap(), &Metadata::new()).unwrap())
            .into(),
        epochs: report.history.epochs().iter().map(timeless).collect(),
        file: file
            .lines()
            .map(|l| timeless(&serde_json::from_str(l).unwrap()))
            .collect(),
    };
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (report, left, seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Stopped after any batch, in the middle of a step too, and gone on: the same weights, optimizers, history and reports.
    #[test]
    fn a_stopped_run_goes_on_to_the_same_bits(setup in setups(), stop in 1usize..23) {
        let parent = tempfile::tempdir().unwrap();
        let (whole, parts) = (parent.path().join("whole"), parent.path().join("parts"));
        let (_, expected, reports) = run(setup, &whole, false, None);
        prop_assert_eq!(&expected.epochs, &expected.file);
        let (stopped, _, before) = run(setup, &parts, false, Some(stop));
        prop_assert_eq!(stopped.end, End::Stopped);
        let position = Checkpoint::latest(&RunFolder::reopen(&parts).unwrap()).unwrap();
        let (_, left, after) = run(setup, &parts, true, None);
        prop_assert!(left == expected, "{:?} and {:?}", left.epochs, expected.epochs);
        // Reports of batches whose step was dropped come again.
        let (epoch, batch) = (position.manifest().epoch(), position.manifest().batch());
        let kept = before.into_iter().filter(|(e, b, _)| (*e, *b) <= (epoch, batch));
        let all: Seen = kept.chain(after).collect();
        prop_assert_eq!(all, reports);
    }

    /// Killed at any time: from every checkpoint of a run the same end is reached, whatever was written after it.
    #[test]
    fn every_checkpoint_leads_to_the_same_end(setup in setups(), which in any::<prop::sample::Index>()) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let (_, expected, _) = run(setup, &path, false, None);
        let mut manifests: Vec<_> = names(&path).into_iter().filter(|n| n.starts_with("checkpoint") && n.ends_with(".json")).collect();
        manifests.sort();
        for newer in manifests.split_off(which.index(manifests.len()) + 1) {
            std::fs::remove_file(path.join(newer)).unwrap();
        }
        let (_, left, _) = run(setup, &path, true, None);
        prop_assert!(left == expected, "{:?} and {:?}", left.epochs, expected.epochs);
    }
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries
        .map(|e| e.unwrap().file_name().to_str().unwrap().to_string())
        .collect()
}

/// The plainest run.
const PLAIN: Setup = Setup {
    optimizer: 0,
    accumulate: 1,
    phases: false,
    skips: false,
    autocast: None,
    plateau: false,
    average: None,
    log_every: 3,
    every_steps: 3,
};

pub(crate) fn options(epochs: u64, max_steps: Option<u64>) -> TrainOptions {
    TrainOptions {
        epochs,
        max_steps,
        checkpoints: Some(Checkpoints {
            every_steps: Some(1),
            every: None,
            keep: 2,
        }),
        ..Default::default()
    }
}

/// A run of the small net in `folder`, new or resumed.
pub(crate) fn small(
    folder: RunFolder,
    resumes: bool,
    options: TrainOptions,
    batch: usize,
) -> kiln_train::Result<(Report, Vec<u8>)> {
    let cpu = Cpu::new();
    let mut trainer = Trainer::new(&cpu, options);
    if resumes {
        trainer = trainer.resume(Checkpoint::latest(&folder)?);
    }
    let mut model = Net::new(&cpu, 1);
    let data = loader(images(16, 0), batch, true, 0);
    let report = trainer
        .folder(folder)
        .fit(&mut model, &mut Adam::new(0.01), step, &data, Some(&data))?;
    Ok((report, bytes(&model)))
}

#[test]
fn a_run_may_get_more_steps_and_more_epochs() {
    let parent = tempfile::tempdir().unwrap();
    let (whole, parts) = (parent.path().join("whole"), parent.path().join("parts"));
    let (expected, weights) = small(RunFolder::create(&whole).unwrap(), false, options(3, None), 4).unwrap();
    let epochs = |report: &Report| report.history.epochs().iter().map(timeless).collect::<Vec<_>>();
    // Six steps end within the second epoch, which is measured and saved as it is.
    let (report, _) = small(RunFolder::create(&parts).unwrap(), false, options(3, Some(6)), 4).unwrap();
    assert_eq!((report.steps, report.history.epochs().len()), (6, 2));
    let (again, _) = small(RunFolder::reopen(&parts).unwrap(), true, options(3, Some(6)), 4).unwrap();
    assert_eq!(epochs(&again), epochs(&report));
    let (report, _) = small(RunFolder::reopen(&parts).unwrap(), true, options(2, None), 4).unwrap();
    assert_eq!(epochs(&report), epochs(&expected)[..2]);
    let (report, resumed) = small(RunFolder::reopen(&parts).unwrap(), true, options(3, None), 4).unwrap();
    assert_eq!(epochs(&report), epochs(&expected));
    assert!(resumed == weights);
    // A run that is at its end has nothing to do.
    let (report, same) = small(RunFolder::reopen(&parts).unwrap(), true, options(3, None), 4).unwrap();
    assert_eq!((report.end, epochs(&report)), (End::Finished, epochs(&expected)));
    assert!(same == weights);
}

#[test]
fn a_stop_in_the_middle_of_a_validation_is_gone_on_with() {
    let parent = tempfile::tempdir().unwrap();
    let cpu = Cpu::new();
    let data = loader(images(16, 0), 4, true, 0);
    let run = |path: &Path, resumes: bool, stop_at: Option<usize>| {
        let (stop, calls) = (StopHandle::new(), Cell::new(0));
        let mut trainer = Trainer::new(&cpu, options(2, None))
            .metric(Accuracy::new())
            .stop_handle(stop.clone());
        let folder = match resumes {
            true => RunFolder::reopen(path).unwrap(),
            false => RunFolder::create(path).unwrap(),
        };
        if resumes {
            trainer = trainer.resume(Checkpoint::latest(&folder).unwrap());
        }
        let stopping = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
            calls.set(calls.get() + 1);
            if Some(calls.get()) == stop_at {
                stop.request();
            }
            step(model, batch)
        };
        let mut model = Net::with_dropout(&cpu, 1, 0.2);
        let report = trainer
            .folder(folder)
            .fit(&mut model, &mut Adam::new(0.01), stopping, &data, Some(&data))
            .unwrap();
        (
            report.history.epochs().iter().map(timeless).collect::<Vec<_>>(),
            bytes(&model),
            report.end,
        )
    };
    let expected = run(&parent.path().join("whole"), false, None);
    // Four batches of training, four of validation: the last of the first, and two of the second.
    for stop_at in 4..=8 {
        let path = parent.path().join(format!("parts-{stop_at}"));
        assert_eq!(run(&path, false, Some(stop_at)).2, End::Stopped);
        assert!(run(&path, true, None) == expected, "{stop_at}");
    }
}

/// The state of a model is in the checkpoint under `model.`, as any reader of safetensors sees.
#[test]
fn tensors_have_the_names_of_the_model() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    run(PLAIN, &path, false, None);
    let newest = names(&path)
        .into_iter()
        .filter(|n| n.ends_with(".safetensors") && n.starts_with("checkpoint"))
        .max()
        .unwrap();
    let (tensors, _): (StateDict<Cpu>, _) = kiln_nn::weights::read(path.join(newest), &Cpu::new()).unwrap();
    for name in [
        "model.head.weight",
        "model.noise.step",
        "optimizer.0.head.weight.momentum_buffer",
        "metric.0.sum",
    ] {
        assert!(
            tensors.get(name).is_some(),
            "{name} is not among {:?}",
            tensors.names().collect::<Vec<_>>()
        );
    }
}

/// Checkpoints of every version that was released are read for ever. `KILN_WRITE_GOLDEN=1` writes one of the present version
/// where there is none.
#[test]
fn checkpoints_of_earlier_versions_are_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let present = golden.join("checkpoint-v1");
    if std::env::var_os("KILN_WRITE_GOLDEN").is_some() && !present.exists() {
        run(GOLDEN, &present, false, None);
    }
    for version in ["checkpoint-v1"] {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        std::fs::create_dir(&path).unwrap();
        for name in names(&golden.join(version)) {
            std::fs::copy(golden.join(version).join(&name), path.join(&name)).unwrap();
        }
        let weights = std::fs::read(path.join(RunFolder::LAST)).unwrap();
        let (report, left, _) = run(GOLDEN, &path, true, None);
        assert_eq!((report.end, left.epochs.len()), (End::Finished, EPOCHS as usize));
        assert!(left.model == weights, "{version}");
    }
}

/// A run with every kind of state, of which the last checkpoint is kept.
const GOLDEN: Setup = Setup {
    optimizer: 1,
    accumulate: 2,
    phases: true,
    average: Some(Average::Ema { decay: 0.9 }),
    every_steps: 1000,
    ..PLAIN
};
