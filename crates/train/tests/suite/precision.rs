//! Runs in mixed precision.

use crate::common::{Net, all_finite, bytes, digits, images, loader, mnist_cnn, step};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::optim::{Adam, Sgd};
use kiln_nn::{DType, Layer, Module};
use kiln_train::{
    Accuracy, Checkpoint, NonFinite, Output, Place, Report, RunFolder, TrainError, TrainOptions, Trainer, Warning,
};

fn options(autocast: Option<DType>, epochs: u64) -> TrainOptions {
    TrainOptions {
        epochs,
        autocast,
        ..Default::default()
    }
}

#[test]
fn a_net_learns_in_mixed_precision_as_in_f32() {
    let cpu = Cpu::new();
    let (train, test) = (loader(digits(480), 16, true, 0), loader(digits(480), 96, false, 0));
    let run = |autocast| {
        let mut model = mnist_cnn(&cpu, 3);
        let report = Trainer::new(&cpu, options(autocast, 2))
            .metric(Accuracy::new())
            .fit(&mut model, &mut Adam::new(2e-3), step, &train, Some(&test))
            .unwrap();
        assert!(model.parameters().iter().all(|p| p.dtype() == DType::F32));
        let last = report.history.epochs().last().unwrap().clone();
        (last.valid.unwrap(), bytes(&model), last.skipped)
    };
    let (plain, exact, _) = run(None);
    for half in [DType::BF16, DType::F16] {
        let (values, weights, _) = run(Some(half));
        assert_ne!(weights, exact, "{half} was used");
        assert!(
            values["accuracy"] > plain["accuracy"] - 0.06,
            "{half}: {values:?}, f32: {plain:?}"
        );
        assert_eq!(run(Some(half)).1, weights, "{half} twice");
    }
}

/// Trains a small net on a loss that is `factor` times the cross-entropy.
fn scaled(
    factor: f64,
    epochs: u64,
    folder: Option<RunFolder>,
    resumes: bool,
) -> kiln_train::Result<(Report, Net<Cpu>)> {
    let cpu = Cpu::new();
    let mut model = Net::new(&cpu, 0);
    // Few other skips are allowed, which does not bound the search for a scale.
    let options = TrainOptions {
        non_finite: NonFinite::Skip { in_a_row: 1 },
        ..options(Some(DType::F16), epochs)
    };
    let mut trainer = Trainer::new(&cpu, options);
    if let Some(folder) = folder {
        if resumes {
            trainer = trainer.resume(Checkpoint::latest(&folder)?);
        }
        trainer = trainer.folder(folder);
    }
    let step = move |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let loss = model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?;
        Ok(Output::new(loss.mul_scalar(factor)?))
    };
    let data = loader(images(80, 0), 8, true, 0);
    let report = trainer.fit(&mut model, &mut Sgd::new(0.1 / factor), step, &data, None)?;
    Ok((report, model))
}

#[test]
fn overflowing_steps_are_skipped_until_the_scale_fits() {
    // At first the gradients of the logits are about 65536·1000: the scale halves until they fit f16.
    let (report, model) = scaled(1000.0, 2, None, false).unwrap();
    let skipped: Vec<u64> = report.history.epochs().iter().map(|e| e.skipped).collect();
    assert!((5..=10).contains(&skipped[0]), "{skipped:?}");
    assert_eq!(skipped[1], 0, "the second epoch keeps the scale");
    assert_eq!(report.steps, 20 - skipped[0]);
    assert!(all_finite(&model));
    let losses: Vec<f64> = report.history.epochs().iter().map(|e| e.train["loss"]).collect();
    assert!(losses[1] < losses[0], "{losses:?}");
    assert!(report.not_captured.is_none());
    // That is how a scale is found, and nothing to tell.
    assert_eq!(report.warnings, []);
}

/// Gradients that overflow even where the loss is not scaled up are those of the network, and their op is named: of the 17th step, whose
/// scale is 1, and of those that follow.
#[test]
fn a_run_that_goes_on_skipping_names_the_op() {
    let (report, _) = scaled(1e6, 3, None, false).unwrap();
    let skipped: u64 = report.history.epochs().iter().map(|e| e.skipped).sum();
    assert!((17..21).contains(&skipped), "{skipped}");
    let told: Vec<_> = report
        .warnings
        .iter()
        .map(|warning| match warning {
            Warning::Overflow { cause } => match &cause.place {
                Place::Op { op, backward: true, .. } => (cause.step, &op[..]),
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(told[0], (17, "cross_entropy"));
    let steps: Vec<u64> = told.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, (17..=skipped).collect::<Vec<_>>());
    let text = report.warnings[0].to_string();
    assert!(
        text.contains("step 17 (epoch 2, batch 7)") && text.contains("bf16"),
        "{text}"
    );
}

#[test]
fn the_scale_is_part_of_a_checkpoint_and_so_is_the_precision() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let whole = scaled(1000.0, 2, None, false).unwrap();
    scaled(1000.0, 1, Some(RunFolder::create(&path).unwrap()), false).unwrap();
    let resumed = scaled(1000.0, 2, Some(RunFolder::reopen(&path).unwrap()), true).unwrap();
    assert_eq!(bytes(&resumed.1), bytes(&whole.1));
    assert_eq!(resumed.0.steps, whole.0.steps);

    let folder = RunFolder::reopen(&path).unwrap();
    let cpu = Cpu::new();
    let refused = Trainer::new(&cpu, options(None, 3))
        .resume(Checkpoint::latest(&folder).unwrap())
        .folder(folder)
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(1e-4),
            step,
            &loader(images(80, 0), 8, true, 0),
            None,
        )
        .unwrap_err();
    assert!(
        matches!(&refused, TrainError::OtherRun { name, saved, now } if name == "precision" && saved == "f16" && now == "none"),
        "{refused}"
    );
}

#[test]
fn a_loss_that_overflows_at_every_scale_ends_the_run() {
    let refused = scaled(1e30, 9, None, false).map(drop).unwrap_err();
    assert!(matches!(refused, TrainError::TooManySkipped { .. }), "{refused}");
    let cpu = Cpu::new();
    let refused = Trainer::new(&cpu, options(Some(DType::F64), 1))
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(0.1),
            step,
            &loader(images(8, 0), 8, true, 0),
            None,
        )
        .unwrap_err();
    assert!(refused.to_string().contains("bf16 or f16"), "{refused}");
}

#[test]
fn validation_runs_in_the_precision_of_steps() {
    let cpu = Cpu::new();
    let data = loader(images(16, 0), 8, false, 0);
    let check = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = model.forward(&batch.inputs)?;
        assert_eq!(logits.dtype(), DType::BF16);
        Ok(Output::new(logits.cross_entropy(&batch.labels)?))
    };
    Trainer::new(&cpu, options(Some(DType::BF16), 1))
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.1), check, &data, Some(&data))
        .unwrap();
}
