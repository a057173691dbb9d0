//! Runs of recorded steps that meet a NaN, and steps that are compared with the CPU.

use crate::step::{data, digits};
use crate::with;
use kiln_core::{Backend, Result, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::{Cuda, Options};
use kiln_data::{Arrays, Labelled, LabelledOn, Labels, Loader, LoaderOptions};
use kiln_nn::autograd::{RuleContext, function, kernel};
use kiln_nn::layers::Lambda;
use kiln_nn::module::StateDict;
use kiln_nn::optim::Adam;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{DType, Init, Layer, Sequential, Tensor};
use kiln_train::{Capsule, NonFinite, Output, Place, RunFolder, TrainError, TrainOptions, Trainer, Twin, Warning};
use std::sync::Arc;

fn step<B: Backend>(model: &Sequential<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
}

/// 24 images `[10, 10, 1]`, of which the 14th overflows in a convolution.
fn overflowing() -> Loader {
    let value = |i: usize| if i / 100 == 13 { 3e38 } else { (i as f32 * 0.7).sin() };
    let labels = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
    let images = Arrays::new(
        Shape::new(&[10, 10, 1]).unwrap(),
        (0..2400).map(value).collect(),
        labels,
    )
    .unwrap();
    let options = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    Loader::new(Arc::new(images), options).unwrap()
}

fn options(non_finite: NonFinite) -> TrainOptions {
    TrainOptions {
        epochs: 2,
        log_every: 5,
        non_finite,
        ..Default::default()
    }
}

/// A recorded run finds the step and the op, and goes on from before it to the bits of a run that checks every step.
#[test]
fn a_recorded_run_finds_an_overflow_and_goes_back() {
    let (cuda, dir) = (with(Options::default()), tempfile::tempdir().unwrap());
    let run = |non_finite, folder: Option<RunFolder>| {
        let mut model = digits(&cuda);
        let mut trainer = Trainer::new(&cuda, options(non_finite));
        if let Some(folder) = folder {
            trainer = trainer.folder(folder);
        }
        let result = trainer.fit(&mut model, &mut Adam::new(1e-2), step, &overflowing(), None);
        (result, encode(&StateDict::of(&model), &Metadata::new()).unwrap())
    };
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let error = run(NonFinite::Stop, Some(folder)).0.unwrap_err();
    let TrainError::NonFiniteLoss { cause: Some(cause), .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((cause.step, cause.batch), (7, 7), "{error}");
    // The variance of what the convolution makes of the large image is infinite.
    assert!(
        matches!(&cause.place, Place::Op { layer, op, backward: false, .. } if layer == "3" && op == "batch_norm"),
        "{error}"
    );
    // What overflowed on the device does so on the CPU, and not in f64.
    let (cpu, capsule) = (Cpu::new(), Capsule::open(cause.capsule.as_ref().unwrap()).unwrap());
    let replay = |dtype| {
        capsule
            .replay::<_, _, Labelled>(&cpu, &mut digits(&cpu), step, dtype)
            .unwrap()
    };
    assert_eq!(replay(DType::F32).first_non_finite().unwrap().name.op, "batch_norm");
    assert!(replay(DType::F64).is_finite());

    let back = NonFinite::Rollback {
        in_a_row: 1,
        lr_factor: 1.0,
    };
    let ((went_back, weights), (skipped, same)) = (run(back, None), run(NonFinite::Skip { in_a_row: 1 }, None));
    let (went_back, skipped) = (went_back.unwrap(), skipped.unwrap());
    assert!(weights == same);
    assert_eq!((went_back.steps, skipped.steps), (22, 22));
    assert!(
        went_back.execution.replayed >= 8 && skipped.execution.replayed >= 8,
        "{:?} {:?}",
        went_back.execution,
        skipped.execution
    );
    assert!(matches!(
        &went_back.warnings[..],
        [Warning::RolledBack { .. }, Warning::RolledBack { .. }]
    ));
    // Skipped steps are counted when losses are read, and then made again to be explained.
    let explained: Vec<(u64, &Place)> = skipped
        .warnings
        .iter()
        .map(|warning| match warning {
            Warning::Skipped { cause } => (cause.step, &cause.place),
            other => panic!("{other}"),
        })
        .collect();
    let [(7, first), (19, second)] = explained[..] else {
        panic!("{explained:?}");
    };
    assert!(first == &cause.place && second == first, "{explained:?}");
}

/// Every op of the device is within its bound, recorded steps stay recorded, and the run is as without the check.
#[test]
fn the_device_agrees_with_its_twin() {
    let (cuda, cpu) = (
        with(Options::default()),
        Cpu::builder().exact_convolutions(true).build(),
    );
    let run = |twin: bool| {
        let mut model = digits(&cuda);
        let mut trainer = Trainer::new(&cuda, options(NonFinite::Stop));
        if twin {
            let twin = Twin::new::<_, _, Labelled>(&cpu, |cpu| Ok(digits(cpu)), step).unwrap();
            trainer = trainer.twin(twin.every(5));
        }
        let report = trainer
            .fit(&mut model, &mut Adam::new(1e-2), step, &data([10, 10, 1]), None)
            .unwrap_or_else(|e| panic!("{e}"));
        (encode(&StateDict::of(&model), &Metadata::new()).unwrap(), report)
    };
    let ((weights, report), (same, plain)) = (run(true), run(false));
    assert!(weights == same);
    let twin = report.twin.unwrap();
    assert!(twin.steps == 3 && twin.ops >= 3 * 30, "{twin:?}");
    assert_eq!(report.execution.replayed, plain.execution.replayed);
    let other = |cpu: &Cpu| -> Result<Sequential<Cpu>> {
        Ok(Sequential::new().push(kiln_nn::layers::Linear::new(&mut Init::new(cpu, 0), 1, 1)?))
    };
    let twin = Twin::new::<_, _, Labelled>(&cpu, other, step).unwrap();
    let trainer = Trainer::new(&cuda, options(NonFinite::Stop)).twin(twin);
    let refused = { trainer }.fit(&mut digits(&cuda), &mut Adam::new(1e-2), step, &data([10, 10, 1]), None);
    assert!(matches!(refused, Err(TrainError::Weights(_))));
}

/// A step that the device computes wrongly is a capsule of the device's run, and the comparison is made again from it: with the wrong
/// op on the device it differs again, with the right one it does not.
#[test]
fn a_step_that_the_device_computes_wrongly_is_compared_again() {
    let (cuda, dir) = (with(Options::default()), tempfile::tempdir().unwrap());
    let cpu = Cpu::builder().exact_convolutions(true).build();
    // The last layer of the device's network has an op that leaves out the last element.
    fn net<B: Backend>(backend: &B, wrong: bool) -> Sequential<B> {
        digits(backend)
            .push_named("last", Lambda::new(move |x| halved(x, wrong)))
            .unwrap()
    }
    let twin = || {
        Twin::new::<_, _, Labelled>(&cpu, |cpu| Ok(net(cpu, false)), step)
            .unwrap()
            .every(4)
    };
    for (autocast, wrong) in [(None, true), (Some(DType::BF16), true), (None, false)] {
        let name = format!("{autocast:?}-{wrong}");
        let mut trainer = Trainer::new(
            &cuda,
            TrainOptions {
                autocast,
                ..options(NonFinite::Stop)
            },
        )
        .folder(RunFolder::create(dir.path().join(name)).unwrap())
        .twin(twin());
        let fitted = trainer.fit(
            &mut net(&cuda, wrong),
            &mut Adam::new(1e-2),
            step,
            &data([10, 10, 1]),
            None,
        );
        let error = match (fitted, wrong) {
            (Err(error), true) => error,
            (Ok(_), false) => continue,
            (other, _) => panic!("{other:?}"),
        };
        let TrainError::Twin {
            step: 1,
            deviation,
            compared,
            capsule: Some(path),
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(
            (&deviation.name.layer[..], &deviation.name.op[..]),
            ("last", "halved"),
            "{error}"
        );
        let capsule = Capsule::open(path).unwrap();
        assert_eq!(capsule.autocast(), autocast);
        let again = |wrong| {
            let mut model = net(&cuda, wrong);
            capsule
                .compare::<_, _, Labelled>(&cuda, &mut model, step, &mut twin())
                .unwrap()
        };
        assert_eq!(again(true), (Some((**deviation).clone()), *compared));
        assert_eq!(again(false), (None, *compared));
        // The capsule of the device is one of the CPU as well.
        let of_cpu = |wrong| {
            let mut model = net(&cpu, wrong);
            capsule
                .compare::<_, _, Labelled>(&cpu, &mut model, step, &mut twin())
                .unwrap()
                .0
        };
        assert!(of_cpu(true).is_some() && of_cpu(false).is_none());
    }
}

/// Half of `x` by an op of its own.
fn halved<B: Backend>(x: &Tensor<B>, wrong: bool) -> Result<Tensor<B>> {
    let half = x.detach().mul_scalar(0.5)?;
    let forward = || {
        kernel("halved", &[x.into()], x.shape(), x.dtype(), |backend, _, y| {
            let mut values = half.to_f64()?;
            if let (true, Some(last)) = (wrong, values.last_mut()) {
                *last = 0.0;
            }
            let made = Tensor::from_f64(backend, &values, x.shape(), x.dtype())?;
            match x.dtype() {
                DType::F64 => backend.write(&made.to_vec::<f64>()?, y),
                DType::F32 => backend.write(&made.to_vec::<f32>()?, y),
                _ => backend.write(&made.to_vec::<half::bf16>()?, y),
            }
        })
    };
    function("halved", &[x], forward, |cx: &RuleContext<'_, B>| {
        Ok(vec![Some(cx.grad.mul_scalar(0.5)?)])
    })
}

/// In f16 a recorded run tells of gradients that overflow although their loss is not scaled up, and of none while the scale falls.
#[test]
fn a_recorded_run_that_goes_on_skipping_names_the_op() {
    let cuda = with(Options::default());
    let run = |factor: f64, capture| {
        let step = move |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
            let loss = model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?;
            Ok(Output::new(loss.mul_scalar(factor)?))
        };
        let options = TrainOptions {
            epochs: 4,
            log_every: 3,
            autocast: Some(DType::F16),
            capture,
            ..Default::default()
        };
        let mut model = digits(&cuda);
        let report = Trainer::new(&cuda, options)
            .fit(&mut model, &mut Adam::new(1e-3), step, &data([10, 10, 1]), None)
            .unwrap_or_else(|e| panic!("{e}"));
        (report, encode(&StateDict::of(&model), &Metadata::new()).unwrap())
    };
    assert_eq!(run(1e3, true).0.warnings, []);
    let ((report, weights), (plain, same)) = (run(1e6, true), run(1e6, false));
    assert!(
        weights == same && report.execution.replayed > 8,
        "{:?}",
        report.execution
    );
    assert_eq!(report.warnings, plain.warnings);
    assert!(!report.warnings.is_empty());
    for warning in &report.warnings {
        let Warning::Overflow { cause } = warning else {
            panic!("{warning}");
        };
        assert!(cause.step >= 17, "{warning}");
        assert!(matches!(cause.place, Place::Op { backward: true, .. }), "{warning}");
    }
}
