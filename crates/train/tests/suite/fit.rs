//! Tests of a run: learning, evaluation, and files.

use crate::common::{Net, all_finite, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{Arrays, Labels};
use kiln_nn::optim::{Adam, ReduceOnPlateau, Schedule, Sgd};
use kiln_nn::{Module, weights};
use kiln_train::{Accuracy, Clip, End, Goal, Monitor, RunFolder, TopK, TrainError, TrainOptions, Trainer, evaluate};
use std::sync::Arc;

fn epochs(epochs: u64) -> TrainOptions {
    TrainOptions {
        epochs,
        ..Default::default()
    }
}

#[test]
fn a_net_learns_and_files_tell_of_it() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let mut model = Net::new(&cpu, 0);
    let (train, valid) = (loader(images(200, 0), 16, true, 1), loader(images(50, 1), 16, false, 0));
    let report = Trainer::new(&cpu, epochs(6))
        .metric(Accuracy::new())
        .metric(TopK::new(2))
        .folder(folder.clone())
        .fit(&mut model, &mut Adam::new(1e-2), step, &train, Some(&valid))
        .unwrap();
    assert_eq!((report.end, report.steps), (End::Finished, 6 * 13));
    let (first, last) = (&report.history.epochs()[0], report.history.last().unwrap());
    assert!(last.train["loss"] < 0.5 * first.train["loss"], "{first:?} {last:?}");
    let valid_values = last.valid.as_ref().unwrap();
    assert!(valid_values["accuracy"] > 0.95, "{last:?}");
    assert!(valid_values["top2"] >= valid_values["accuracy"]);

    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("checkpoint-"))
        .collect();
    names.sort();
    // The lock file is there because the run's folder is still open.
    assert_eq!(
        names,
        [
            ".kiln.lock",
            RunFolder::BEST,
            RunFolder::TABLE,
            RunFolder::HISTORY,
            RunFolder::LAST
        ]
    );
    assert_eq!(std::fs::read(folder.file(RunFolder::LAST)).unwrap(), bytes(&model));
    let lines = std::fs::read_to_string(folder.file(RunFolder::HISTORY)).unwrap();
    let parsed: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(parsed.len(), 6);
    assert_eq!(parsed[5]["valid"]["accuracy"], valid_values["accuracy"]);
    let table = std::fs::read_to_string(folder.file(RunFolder::TABLE)).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 7);
    let column = rows[0].iter().position(|name| *name == "valid/accuracy").unwrap();
    assert_eq!(rows[6][column].parse(), Ok(valid_values["accuracy"]));

    let mut best = Net::new(&cpu, 9);
    let (dict, _) = weights::read(folder.file(RunFolder::BEST), &cpu).unwrap();
    best.load_state_dict(&dict, weights::LoadOptions::strict()).unwrap();
    let measured = evaluate(&cpu, &mut best, &step, &valid, &mut [&mut Accuracy::new()]).unwrap();
    assert_eq!(
        measured.values["loss"],
        report.best().unwrap().valid.as_ref().unwrap()["loss"]
    );
}

#[test]
fn evaluation_changes_nothing_and_weighs_batches_by_their_samples() {
    let cpu = Cpu::new();
    let mut model = Net::with_dropout(&cpu, 1, 0.5);
    let before = bytes(&model);
    let mut measure = |batch| {
        let data = loader(images(21, 1), batch, false, 0);
        evaluate(&cpu, &mut model, &step, &data, &mut [&mut Accuracy::new()]).unwrap()
    };
    let (uneven, whole) = (measure(8), measure(21));
    assert_eq!((uneven.samples, whole.samples), (21, 21));
    assert!((uneven.values["loss"] - whole.values["loss"]).abs() < 1e-6);
    assert_eq!(uneven.values["accuracy"], whole.values["accuracy"]);
    assert_eq!(bytes(&model), before);
}

#[test]
fn accumulated_batches_count_as_one() {
    let cpu = Cpu::new();
    let run = |batch, accumulate| {
        let mut model = Net::new(&cpu, 0);
        let options = TrainOptions {
            accumulate,
            ..epochs(2)
        };
        // 40 samples in batches of 16 end with one of 8; so do pairs of batches of 8.
        let report = Trainer::new(&cpu, options)
            .fit(
                &mut model,
                &mut Sgd::new(0.1),
                step,
                &loader(images(40, 0), batch, true, 0),
                None,
            )
            .unwrap();
        assert_eq!(report.steps, 6);
        let values: Vec<f64> = model
            .named_parameters()
            .iter()
            .flat_map(|(_, p)| p.to_f64().unwrap())
            .collect();
        values
    };
    for (a, b) in run(16, 1).iter().zip(run(8, 2)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn clipping_bounds_the_step() {
    let cpu = Cpu::new();
    let run = |clip| {
        let mut model = Net::new(&cpu, 0);
        let before: Vec<f64> = model
            .named_parameters()
            .iter()
            .flat_map(|(_, p)| p.to_f64().unwrap())
            .collect();
        let options = TrainOptions { clip, ..epochs(1) };
        let data = loader(images(16, 0), 16, true, 0);
        Trainer::new(&cpu, options)
            .fit(&mut model, &mut Sgd::new(1.0), step, &data, None)
            .unwrap();
        let after = model
            .named_parameters()
            .into_iter()
            .flat_map(|(_, p)| p.to_f64().unwrap());
        after.zip(before).map(|(a, b)| a - b).collect::<Vec<f64>>()
    };
    let norm = |d: &[f64]| d.iter().map(|x| x * x).sum::<f64>().sqrt();
    let free = run(None);
    assert!(norm(&free) > 0.1);
    assert!((norm(&run(Some(Clip::Norm(0.05)))) - 0.05).abs() < 1e-4);
    let bounded = run(Some(Clip::Value(0.01)));
    assert!(bounded.iter().all(|d| d.abs() < 0.01 + 1e-6) && free.iter().any(|d| d.abs() > 0.02));
}

#[test]
fn schedules_set_the_rate() {
    let cpu = Cpu::new();
    let mut optimizer = Sgd::new(1.0);
    let data = loader(images(32, 0), 8, true, 0);
    let schedule = Schedule::Step {
        lr: 0.1,
        every: 4,
        gamma: 0.5,
    };
    let report = Trainer::new(&cpu, epochs(3))
        .schedule(schedule)
        .fit(&mut Net::new(&cpu, 0), &mut optimizer, step, &data, None)
        .unwrap();
    let rates: Vec<f64> = report.history.epochs().iter().map(|e| e.lr).collect();
    assert_eq!(rates, [0.1, 0.05, 0.025]);

    // The state is a private field, so a struct literal is not possible and the options are set one by one.
    #[allow(clippy::field_reassign_with_default)]
    let plateau = {
        let mut plateau = ReduceOnPlateau::default();
        plateau.patience = 0;
        plateau
    };
    // At this learning rate the loss changes by less than the threshold: the plateau begins with the second epoch.
    let report = Trainer::new(&cpu, epochs(3))
        .reduce_on_plateau(plateau)
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(1e-6), step, &data, None)
        .unwrap();
    let rates: Vec<f64> = report.history.epochs().iter().map(|e| e.lr).collect();
    assert_eq!(rates[..2], [1e-6, 1e-6]);
    assert!((rates[2] - 1e-7).abs() < 1e-12, "{rates:?}");
}

#[test]
fn a_run_ends_after_so_many_updates() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let data = loader(images(40, 0), 8, true, 0);
    for (accumulate, most, epochs_seen, samples) in [(1, 7, 2, 16), (2, 2, 1, 32), (1, 10, 2, 40), (2, 3, 1, 40)] {
        let folder = RunFolder::create(dir.path().join(format!("{accumulate}-{most}"))).unwrap();
        let mut model = Net::new(&cpu, 0);
        let options = TrainOptions {
            accumulate,
            max_steps: Some(most),
            log_every: 100,
            ..epochs(9)
        };
        let report = Trainer::new(&cpu, options)
            .folder(folder.clone())
            .fit(
                &mut model,
                &mut Sgd::new(0.01),
                step,
                &data,
                Some(&loader(images(8, 1), 8, false, 0)),
            )
            .unwrap();
        assert_eq!((report.end, report.steps), (End::Finished, most));
        assert_eq!(report.history.epochs().len(), epochs_seen);
        let last = report.history.last().unwrap();
        assert_eq!((last.step, last.samples), (most, samples));
        assert!(last.valid.is_some() && last.train["loss"].is_finite());
        assert_eq!(std::fs::read(folder.file(RunFolder::LAST)).unwrap(), bytes(&model));
        // The CPU has nothing to replay.
        let made = report.execution;
        assert_eq!((made.eager, made.recorded, made.replayed), (most, 0, 0));
        assert_eq!(report.not_captured, None);
    }
}

#[test]
fn options_outside_their_domain_are_refused() {
    let cpu = Cpu::new();
    let data = loader(images(8, 0), 8, false, 0);
    let fit = |options| {
        let mut trainer = Trainer::new(&cpu, options);
        trainer.fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.1), step, &data, None)
    };
    let watch = |metric| Monitor::new(metric, Goal::Max);
    for (options, argument) in [
        (epochs(0), "epochs"),
        (
            TrainOptions {
                accumulate: 0,
                ..epochs(1)
            },
            "accumulate",
        ),
        (
            TrainOptions {
                log_every: 0,
                ..epochs(1)
            },
            "log_every",
        ),
        (
            TrainOptions {
                patience: Some(0),
                ..epochs(1)
            },
            "patience",
        ),
        (
            TrainOptions {
                max_steps: Some(0),
                ..epochs(1)
            },
            "max_steps",
        ),
        (
            TrainOptions {
                clip: Some(Clip::Norm(0.0)),
                ..epochs(1)
            },
            "clip",
        ),
        (
            TrainOptions {
                clip: Some(Clip::Value(f64::NAN)),
                ..epochs(1)
            },
            "clip",
        ),
    ] {
        let error = fit(options).unwrap_err();
        assert!(
            matches!(error, TrainError::InvalidArgument { argument: a, .. } if a == argument),
            "{error}"
        );
    }
    let error = fit(TrainOptions {
        monitor: watch("acuracy"),
        ..epochs(1)
    })
    .unwrap_err();
    assert!(matches!(error, TrainError::UnknownMetric { .. }), "{error}");
}

#[test]
fn a_label_without_a_class_names_the_step() {
    let cpu = Cpu::new();
    let shape = kiln_core::Shape::new(&[8, 8, 1]).unwrap();
    // The dataset has five classes, the network four.
    let labels = Labels::Classes(vec![0, 1, 2, 3, 4, 0], 5);
    let data = Arc::new(Arrays::new(shape, vec![0.5; 6 * 64], labels).unwrap());
    let mut model = Net::new(&cpu, 0);
    let error = Trainer::new(&cpu, epochs(1))
        .fit(&mut model, &mut Sgd::new(0.1), step, &loader(data, 2, false, 0), None)
        .unwrap_err();
    let TrainError::Step { step, epoch, source } = error else {
        panic!("{error}");
    };
    assert_eq!((step, epoch), (3, 1));
    assert!(
        matches!(source, kiln_core::Error::IndexOutOfRange { index: 4, .. }),
        "{source}"
    );
    assert!(all_finite(&model));
}
