//! The first value that is not finite is found: its step, batch, layer and op, wherever it arises.

use crate::common::{Net, images, loader, step};
use kiln_core::Shape;
use kiln_cpu::Cpu;
use kiln_data::{Arrays, LabelledOn, Labels, Loader};
use kiln_nn::layers::{Flatten, Linear};
use kiln_nn::optim::{Schedule, Sgd};
use kiln_nn::{Backend, DType, Init, Layer, LoadOptions, Module, Sequential, Tensor};
use kiln_train::{
    Cause, Checkpoint, Checkpoints, NonFinite, Output, Phase, Place, RunFolder, TrainError, TrainOptions, Trainer,
    Warning,
};
use std::sync::{Arc, Mutex};

/// 24 images of values by their number, in batches of `batch` in order.
fn data(batch: usize, value: impl Fn(usize) -> f32) -> Loader {
    let inputs = (0..24 * 64).map(|i| value(i / 64) * ((i % 7) as f32 + 1.0)).collect();
    let labels = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
    let arrays = Arrays::new(Shape::new(&[8, 8, 1]).unwrap(), inputs, labels).unwrap();
    loader(Arc::new(arrays), batch, false, 0)
}

fn options() -> TrainOptions {
    TrainOptions {
        epochs: 2,
        log_every: 4,
        ..Default::default()
    }
}

fn cause(error: &TrainError) -> &Cause {
    match error {
        TrainError::NonFiniteLoss { cause: Some(cause), .. }
        | TrainError::NonFiniteWeights { cause: Some(cause), .. } => cause,
        other => panic!("{other}"),
    }
}

fn op(layer: &str, op: &str, backward: bool, nan: bool) -> Place {
    Place::Op {
        layer: layer.into(),
        op: op.into(),
        backward,
        nan,
        arose: true,
    }
}

#[test]
fn a_batch_with_a_nan_is_named() {
    let cpu = Cpu::new();
    for accumulate in [1, 2] {
        let options = TrainOptions {
            accumulate,
            ..options()
        };
        let poisoned = data(4, |i| if i == 13 { f32::NAN } else { 1.0 });
        let error = Trainer::new(&cpu, options)
            .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &poisoned, None)
            .unwrap_err();
        let found = cause(&error);
        assert_eq!(
            (found.step, found.epoch, found.batch),
            (4 / accumulate as u64, 1, 4),
            "{error}"
        );
        assert_eq!(found.place, Place::Batch { array: "inputs".into() });
        assert!(error.to_string().contains("`inputs` of the batch"), "{error}");
    }
}

#[test]
fn a_weight_that_is_nan_from_the_start_is_named() {
    let cpu = Cpu::new();
    let mut model = Net::new(&cpu, 0);
    let mut weights = model.state_dict();
    let nan = Tensor::full(&cpu, &[4], DType::F32, f64::NAN).unwrap();
    weights.insert("dense.bias", kiln_nn::module::Value::Float(nan));
    model
        .load_state_dict(&weights, LoadOptions::strict().allow_non_finite())
        .unwrap();
    let error = Trainer::new(&cpu, options())
        .fit(&mut model, &mut Sgd::new(0.01), step, &data(4, |_| 1.0), None)
        .unwrap_err();
    let found = cause(&error);
    assert_eq!(
        (found.step, found.place.clone()),
        (
            0,
            Place::Weights {
                name: "dense.bias".into()
            }
        ),
        "{error}"
    );
}

/// A learning rate that grows beyond all bounds: the op that overflows first, or the update if that overflows itself.
#[test]
fn a_learning_rate_that_is_too_large_is_named_by_what_overflows() {
    let cpu = Cpu::new();
    let fit = |gamma| {
        let schedule = Schedule::MultiStep {
            lr: 1e-2,
            milestones: vec![8],
            gamma,
        };
        Trainer::new(&cpu, options())
            .schedule(schedule)
            .fit(
                &mut Net::new(&cpu, 0),
                &mut Sgd::new(1e-2),
                step,
                &data(4, |i| 1.0 + i as f32),
                None,
            )
            .unwrap_err()
    };
    let error = fit(1e28);
    let found = cause(&error);
    assert_eq!((found.step, found.epoch, found.batch), (10, 2, 4), "{error}");
    assert!(
        matches!(&found.place, Place::Op { layer, op, backward: false, .. } if layer == "dense" && op == "linear"),
        "{error}"
    );
    let error = fit(1e60);
    let found = cause(&error);
    assert_eq!((found.step, found.epoch, found.batch), (9, 2, 3), "{error}");
    assert!(
        matches!(&found.place, Place::Update { name } if name == "conv.weight"),
        "{error}"
    );
}

/// log(0) in the loss, and √0, whose loss is finite: the weights are not, one step later.
#[test]
fn log_of_zero_and_the_slope_of_a_root_are_named() {
    let cpu = Cpu::new();
    let zero_at_13 = data(4, |i| if i == 13 { 0.0 } else { 1.0 });
    let sums = |batch: &LabelledOn<Cpu>| batch.inputs.sum(&[1, 2, 3], false);
    let log = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let score = model.forward(&batch.inputs)?.square()?.mean(&[], false)?;
        Ok(Output::new(score.add(&sums(batch)?.log()?.mean(&[], false)?)?))
    };
    let error = Trainer::new(&cpu, options())
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(1e-4), log, &zero_at_13, None)
        .unwrap_err();
    let found = cause(&error);
    assert_eq!(
        (found.step, found.batch, found.place.clone()),
        (4, 4, op("", "log", false, false)),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("in the forward pass of op `log`, from finite inputs"),
        "{error}"
    );

    let root = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        // So long that the state of the run is kept at every look.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let score = model.forward(&batch.inputs)?.abs()?.sqrt()?;
        Ok(Output::new(score.mean(&[], false)?))
    };
    let init = &mut Init::new(&cpu, 0);
    let linear = Linear::<Cpu>::builder(64, 4).bias(false).build(init).unwrap();
    let mut net = Sequential::new()
        .push(Flatten::default())
        .push_named("fc", linear)
        .unwrap();
    let error = Trainer::new(&cpu, options())
        .fit(&mut net, &mut Sgd::new(1e-4), root, &zero_at_13, None)
        .unwrap_err();
    let found = cause(&error);
    assert_eq!(
        (found.step, found.batch, found.place.clone()),
        (4, 4, op("", "sqrt", true, false)),
        "{error}"
    );
}

#[derive(Module)]
struct Two<B: Backend> {
    left: Linear<B>,
    right: Linear<B>,
}

/// Of several phases the bad one is named, and only what is not finite in a good step too is passed over.
#[test]
fn the_phase_is_named() {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let mut model = Two {
        left: Linear::new(init, 64, 2).unwrap(),
        right: Linear::new(init, 64, 2).unwrap(),
    };
    let flat = |batch: &LabelledOn<Cpu>| batch.inputs.reshape(&[batch.labels.size(), 64]);
    let (mut a, mut b) = (Sgd::new(1e-4), Sgd::new(1e-4));
    let phases = vec![
        Phase::new("left", &mut a, |model: &Two<Cpu>, batch: &LabelledOn<Cpu>| {
            // Infinities in every step, of which nothing comes.
            let infinite = batch.inputs.sum(&[], false)?.mul_scalar(0.0)?.reciprocal()?;
            let nothing = infinite.reciprocal()?;
            let score = model.left.forward(&flat(batch)?)?.square()?.mean(&[], false)?;
            Ok(Output::new(score.add(&nothing)?))
        })
        .trains(|name| name.starts_with("left")),
        Phase::new("right", &mut b, |model: &Two<Cpu>, batch: &LabelledOn<Cpu>| {
            let zero = batch.inputs.sum(&[], false)?;
            Ok(Output::new(
                model
                    .right
                    .forward(&flat(batch)?)?
                    .square()?
                    .mean(&[], false)?
                    .div(&zero)?,
            ))
        })
        .trains(|name| name.starts_with("right")),
    ];
    let zeros_at_16 = data(4, |i| if i / 4 == 4 { 0.0 } else { 1.0 });
    let error = Trainer::new(&cpu, options())
        .fit_phases(&mut model, phases, &zeros_at_16, None)
        .unwrap_err();
    let found = cause(&error);
    assert_eq!(
        (found.step, &found.phase[..], found.place.clone()),
        (5, "right", op("", "div", false, false)),
        "{error}"
    );
}

/// What is saved stays finite, and the state of a checkpoint does not depend on whether values are searched.
#[test]
fn the_last_good_checkpoint_stays() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let run = |find_non_finite: bool| {
        let folder = RunFolder::create(dir.path().join(find_non_finite.to_string())).unwrap();
        let options = TrainOptions {
            find_non_finite,
            checkpoints: Some(Checkpoints {
                every_steps: Some(1),
                ..Default::default()
            }),
            ..options()
        };
        let poisoned = data(4, |i| if i == 13 { f32::NAN } else { 1.0 });
        let error = Trainer::new(&cpu, options)
            .folder(folder.clone())
            .fit(
                &mut Net::with_dropout(&cpu, 0, 0.5),
                &mut Sgd::new(0.01),
                step,
                &poisoned,
                None,
            )
            .unwrap_err();
        let checkpoint = Checkpoint::latest(&folder).unwrap();
        let tensors = std::fs::read(folder.file(&Checkpoint::tensors_name(3))).unwrap();
        (error, checkpoint.manifest().step(), tensors)
    };
    let ((found, step, tensors), (error, also, same)) = (run(true), run(false));
    assert_eq!((step, also), (3, 3));
    assert!(tensors == same);
    assert_eq!(cause(&found).step, 4);
    let TrainError::NonFiniteLoss {
        step: 4,
        cause: None,
        guess: Some(guess),
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(guess.contains("holds values that are not finite"), "{guess}");
}

/// Skipped steps are told with their cause.
#[test]
fn skipped_steps_are_explained() {
    let cpu = Cpu::new();
    let told: Arc<Mutex<Vec<Warning>>> = Arc::default();
    let options = TrainOptions {
        non_finite: NonFinite::Skip { in_a_row: 1 },
        ..options()
    };
    struct Keep(Arc<Mutex<Vec<Warning>>>);
    impl kiln_train::Callback for Keep {
        fn on_warning(&mut self, warning: &Warning) {
            self.0.lock().unwrap().push(warning.clone());
        }
    }
    let poisoned = data(4, |i| if i == 13 { f32::NAN } else { 1.0 });
    let report = Trainer::new(&cpu, options)
        .callback(Keep(told.clone()))
        .fit(
            &mut Net::with_dropout(&cpu, 0, 0.5),
            &mut Sgd::new(0.01),
            step,
            &poisoned,
            None,
        )
        .unwrap();
    assert_eq!(*told.lock().unwrap(), report.warnings);
    let steps = report.warnings.iter().map(|warning| match warning {
        Warning::Skipped { cause } => (cause.step, cause.epoch, cause.batch, cause.place.clone()),
        other => panic!("{other}"),
    });
    let place = Place::Batch { array: "inputs".into() };
    assert_eq!(steps.collect::<Vec<_>>(), [(4, 1, 4, place.clone()), (10, 2, 4, place)]);
}

/// A run that skips steps for the same reason again and again tells the first four, and of later ones what is new.
#[test]
fn a_cause_that_appears_late_is_explained() {
    let cpu = Cpu::new();
    let options = TrainOptions {
        epochs: 1,
        non_finite: NonFinite::Skip { in_a_row: 1 },
        ..options()
    };
    // Every second batch is skipped, the eighth of these for another reason.
    let value = |i: usize| match i {
        14 => 0.0,
        _ if i.is_multiple_of(2) => f32::NAN,
        _ => 1.0,
    };
    let step = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let loss = model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?;
        Ok(Output::new(loss.add(&batch.inputs.mean(&[], false)?.log()?)?))
    };
    let report = Trainer::new(&cpu, options)
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.0), step, &data(1, value), None)
        .unwrap();
    assert_eq!(report.history.epochs()[0].skipped, 12);
    let told: Vec<_> = report
        .warnings
        .iter()
        .map(|warning| match warning {
            Warning::Skipped { cause } => (cause.step, matches!(cause.place, Place::Batch { .. })),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(told, [(1, true), (3, true), (5, true), (7, true), (15, false)]);
}

/// Learning from images is not changed by keeping its state.
#[test]
fn a_run_does_not_depend_on_the_search() {
    let cpu = Cpu::new();
    let run = |find_non_finite| {
        let options = TrainOptions {
            find_non_finite,
            ..options()
        };
        let mut model = Net::with_dropout(&cpu, 0, 0.5);
        let data = loader(images(40, 0), 8, true, 0);
        Trainer::new(&cpu, options)
            .fit(&mut model, &mut Sgd::new(0.01), step, &data, None)
            .unwrap();
        crate::common::bytes(&model)
    };
    assert!(run(true) == run(false));
}

/// Going back leaves the model as skipping would have, bit for bit.
#[test]
fn going_back_equals_skipping() {
    let cpu = Cpu::new();
    for (accumulate, workers) in [(1, 0), (2, 2)] {
        let run = |non_finite| {
            let options = TrainOptions {
                non_finite,
                accumulate,
                epochs: 3,
                average: Some(kiln_train::Average::Ema { decay: 0.5 }),
                ..options()
            };
            let mut model = Net::with_dropout(&cpu, 0, 0.5);
            let poisoned = |i| {
                if [2, 13, 17, 23].contains(&i) {
                    f32::NAN
                } else {
                    i as f32 / 10.0
                }
            };
            let inputs = (0..24 * 64)
                .map(|i| poisoned(i / 64) * ((i % 7) as f32 + 1.0))
                .collect();
            let labels = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
            let arrays = Arrays::new(Shape::new(&[8, 8, 1]).unwrap(), inputs, labels).unwrap();
            let data = loader(Arc::new(arrays), 2, true, workers);
            let schedule = Schedule::Cosine {
                lr: 0.05,
                min: 0.0,
                steps: 36,
            };
            let report = Trainer::new(&cpu, options)
                .schedule(schedule)
                .fit(&mut model, &mut kiln_nn::optim::Adam::new(0.05), step, &data, None)
                .unwrap();
            let epochs: Vec<_> = report.history.epochs().iter().map(|e| (e.step, e.skipped)).collect();
            (crate::common::bytes(&model), epochs, report.steps)
        };
        let (went_back, skipped) = (
            run(NonFinite::Rollback {
                in_a_row: 4,
                lr_factor: 1.0,
            }),
            run(NonFinite::Skip { in_a_row: 4 }),
        );
        assert_eq!(went_back.1, skipped.1);
        assert!(went_back == skipped);
        assert!(went_back.1.iter().any(|(_, skipped)| *skipped > 1));
    }
}

/// A rate that falls each time keeps its fall in a checkpoint, and too many steps in a row end the run.
#[test]
fn going_back_lowers_the_rate_and_has_an_end() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let poisoned = || data(4, |i| if i == 13 { f32::NAN } else { 0.1 });
    let options = TrainOptions {
        non_finite: NonFinite::Rollback {
            in_a_row: 1,
            lr_factor: 0.5,
        },
        ..options()
    };
    for schedule in [None, Some(Schedule::Constant { lr: 0.01 })] {
        let folder = RunFolder::create(dir.path().join(schedule.is_some().to_string())).unwrap();
        let fit = |epochs, checkpoint: Option<Checkpoint>| {
            let mut trainer = Trainer::new(
                &cpu,
                TrainOptions {
                    epochs,
                    ..options.clone()
                },
            )
            .folder(folder.clone());
            if let Some(schedule) = schedule.clone() {
                trainer = trainer.schedule(schedule);
            }
            if let Some(checkpoint) = checkpoint {
                trainer = trainer.resume(checkpoint);
            }
            trainer
                .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &poisoned(), None)
                .unwrap()
        };
        let report = fit(1, None);
        assert!(
            matches!(&report.warnings[..], [Warning::RolledBack { cause }] if cause.step == 4),
            "{:?}",
            report.warnings
        );
        assert_eq!(report.history.epochs()[0].lr, 0.005);
        let report = fit(2, Some(Checkpoint::latest(&folder).unwrap()));
        assert_eq!(report.history.epochs()[1].lr, 0.0025);
    }
    let poisoned = data(4, |i| if i >= 13 { f32::NAN } else { 0.1 });
    let error = Trainer::new(&cpu, options)
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &poisoned, None)
        .unwrap_err();
    assert!(
        matches!(
            &error,
            TrainError::TooManySkipped {
                step: 5,
                count: 2,
                cause: Some(_),
                ..
            }
        ),
        "{error}"
    );
}
