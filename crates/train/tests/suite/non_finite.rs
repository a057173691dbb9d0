//! NaN and infinity in training: the error names the step, and saved finite weights stay.

use crate::common::{Net, all_finite, bytes, images, loader, step};
use kiln_core::Shape;
use kiln_cpu::Cpu;
use kiln_data::{Arrays, Dataset, LabelledOn, Labels, Sample};
use kiln_nn::layers::{BatchNorm, Dropout, Flatten, Linear};
use kiln_nn::optim::{Schedule, Sgd};
use kiln_nn::{Init, Layer, Sequential};
use kiln_train::{Callback, Flow, NonFinite, Output, RunFolder, StepInfo, TrainError, TrainOptions, Trainer};
use std::sync::{Arc, Mutex};

/// A dataset of 24 images, of which the 14th holds a NaN.
fn poisoned() -> Arc<dyn Dataset<Sample = Sample>> {
    let mut inputs = vec![100.0; 24 * 64];
    inputs[13 * 64 + 5] = f32::NAN;
    let labels = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
    Arc::new(Arrays::new(Shape::new(&[8, 8, 1]).unwrap(), inputs, labels).unwrap())
}

#[test]
fn an_exploding_run_names_the_step_and_keeps_good_weights() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let mut model = Net::new(&cpu, 0);
    // An epoch has ten steps; the learning rate becomes huge with the 13th step, whose loss is the last finite one.
    let schedule = Schedule::MultiStep {
        lr: 1e-2,
        milestones: vec![12],
        gamma: 1e32,
    };
    let options = TrainOptions {
        epochs: 3,
        ..Default::default()
    };
    let one = TrainOptions {
        epochs: 1,
        ..Default::default()
    };
    let data = loader(images(80, 0), 8, true, 0);
    let error = Trainer::new(&cpu, options)
        .schedule(schedule)
        .folder(folder.clone())
        .fit(&mut model, &mut Sgd::new(1e-2), step, &data, None)
        .unwrap_err();
    let TrainError::NonFiniteLoss {
        step: at, epoch, cause, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*at, *epoch), (14, 2));
    let cause = cause.as_ref().expect("it is found");
    assert_eq!((cause.step, cause.epoch), (14, 2), "{error}");
    assert!(
        error.to_string().starts_with("step 14 (epoch 2): the loss is"),
        "{error}"
    );

    let mut good = Net::new(&cpu, 0);
    Trainer::new(&cpu, one)
        .fit(&mut good, &mut Sgd::new(1e-2), step, &data, None)
        .unwrap();
    for name in [RunFolder::LAST, RunFolder::BEST] {
        assert_eq!(
            std::fs::read(folder.file(name)).unwrap(),
            crate::common::bytes(&good),
            "{name}"
        );
    }
}

#[test]
fn weights_that_explode_with_the_last_step_are_not_saved() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let data = loader(images(8, 0), 8, true, 0);
    let error = Trainer::new(&cpu, TrainOptions::default())
        .folder(folder.clone())
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(1e300), step, &data, None)
        .unwrap_err();
    assert!(
        matches!(&error, TrainError::NonFiniteWeights { step: 1, epoch: 1, .. }),
        "{error}"
    );
    assert!(!folder.file(RunFolder::LAST).exists() && !folder.file(RunFolder::BEST).exists());
}

#[test]
fn a_bad_sample_is_named_as_the_cause() {
    let cpu = Cpu::new();
    let options = TrainOptions {
        log_every: 1,
        ..Default::default()
    };
    let error = Trainer::new(&cpu, options)
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(0.0),
            step,
            &loader(poisoned(), 4, false, 0),
            None,
        )
        .unwrap_err();
    let TrainError::NonFiniteLoss { step: at, value, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*at, 4);
    assert!(value.is_nan(), "{error}");
}

/// A callback that keeps the number of the last step.
struct LastStep(Arc<Mutex<u64>>);

impl Callback for LastStep {
    fn on_step(&mut self, info: &StepInfo) -> kiln_train::Result<Flow> {
        *self.0.lock().unwrap() = info.step;
        Ok(Flow::Continue)
    }
}

#[test]
fn bad_steps_can_be_skipped() {
    let cpu = Cpu::new();
    for accumulate in [1, 2] {
        let mut model = Net::new(&cpu, 0);
        let options = TrainOptions {
            epochs: 2,
            accumulate,
            non_finite: NonFinite::Skip { in_a_row: 1 },
            ..Default::default()
        };
        let told = Arc::default();
        let report = Trainer::new(&cpu, options)
            .callback(LastStep(Arc::clone(&told)))
            .fit(
                &mut model,
                &mut Sgd::new(0.01),
                step,
                &loader(poisoned(), 4, false, 0),
                None,
            )
            .unwrap();
        let made = if accumulate == 1 { 5 } else { 2 };
        let steps: Vec<u64> = report.history.epochs().iter().map(|e| e.step).collect();
        assert_eq!((report.steps, steps), (2 * made, vec![made, 2 * made]));
        assert_eq!(*told.lock().unwrap(), 2 * made);
        assert!(
            report
                .history
                .epochs()
                .iter()
                .all(|e| e.skipped == 1 && e.train["loss"].is_finite())
        );
        assert!(all_finite(&model));
    }
}

/// The bytes of the model after a run over 24 images in batches of 4, where some batches are NaN or left out.
fn with_batch_norm(accumulate: usize, nan: &[usize], left_out: &[usize]) -> Vec<u8> {
    let cpu = Cpu::new();
    let (mut inputs, mut classes) = (Vec::new(), Vec::new());
    for i in (0..24).filter(|i| !left_out.contains(&(i / 4))) {
        let bad = nan.contains(&(i / 4));
        inputs.extend((0..64).map(|j| if bad { f32::NAN } else { ((i * 64 + j) as f32).sin() }));
        classes.push(i as i32 % 4);
    }
    let data = Arrays::new(Shape::new(&[8, 8, 1]).unwrap(), inputs, Labels::Classes(classes, 4)).unwrap();
    let init = &mut Init::new(&cpu, 0);
    let mut model = Sequential::new()
        .push(BatchNorm::new(init, 1).unwrap())
        .push(Flatten::default())
        .push(Dropout::new(init, 0.3).unwrap())
        .push(Linear::new(init, 64, 4).unwrap());
    let options = TrainOptions {
        epochs: 2,
        accumulate,
        non_finite: NonFinite::Skip { in_a_row: 1 },
        ..Default::default()
    };
    let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        Ok(Output::new(logits.cross_entropy(&batch.labels)?))
    };
    let data = loader(Arc::new(data), 4, false, 0);
    let report = Trainer::new(&cpu, options).fit(&mut model, &mut Sgd::new(0.01), step, &data, None);
    let skipped = u64::from(!nan.is_empty());
    assert!(report.unwrap().history.epochs().iter().all(|e| e.skipped == skipped));
    bytes(&model)
}

#[test]
fn a_skipped_step_leaves_running_statistics_and_counters_alone() {
    assert!(with_batch_norm(1, &[3], &[]) == with_batch_norm(1, &[], &[3]));
    // The third batch is finite, but belongs to the same step as the fourth.
    assert!(with_batch_norm(2, &[3], &[]) == with_batch_norm(2, &[], &[2, 3]));
    assert!(with_batch_norm(1, &[], &[]) != with_batch_norm(1, &[], &[3]));
}

#[test]
fn too_many_skipped_steps_end_the_run() {
    let cpu = Cpu::new();
    let options = TrainOptions {
        non_finite: NonFinite::Skip { in_a_row: 2 },
        ..Default::default()
    };
    let shape = Shape::new(&[8, 8, 1]).unwrap();
    let data = Arrays::new(shape, vec![f32::NAN; 10 * 64], Labels::Classes(vec![0; 10], 4)).unwrap();
    let mut model = Net::new(&cpu, 0);
    let error = Trainer::new(&cpu, options)
        .fit(
            &mut model,
            &mut Sgd::new(0.01),
            step,
            &loader(Arc::new(data), 1, false, 0),
            None,
        )
        .unwrap_err();
    assert!(
        matches!(
            error,
            TrainError::TooManySkipped {
                step: 3,
                epoch: 1,
                count: 3,
                ..
            }
        ),
        "{error}"
    );
    assert!(all_finite(&model));
}
