//! Capsules of bad steps: what they hold, and what a replay of them shows.

use crate::common::{Net, loader};
use kiln_core::Shape;
use kiln_cpu::Cpu;
use kiln_data::{Arrays, Batch, Dataset, Labelled, LabelledOn, Labels, Loader, LoaderOptions};
use kiln_nn::layers::{Dropout, Linear, Noise};
use kiln_nn::optim::Sgd;
use kiln_nn::watch::Pass;
use kiln_nn::{Backend, DType, Init, Layer, Module, Tensor};
use kiln_train::{Capsule, Cause, NonFinite, Output, Phase, Place, RunFolder, TrainError, TrainOptions, Trainer};
use ndarray::{Array1, Array2};
use std::path::Path;
use std::sync::Arc;

fn cause(error: TrainError) -> Cause {
    match error {
        TrainError::NonFiniteLoss { cause: Some(cause), .. } => *cause,
        other => panic!("{other}"),
    }
}

/// Growth e^x of inputs x: finite in f32 below 88.7.
fn growth<B: Backend>(model: &Net<B>, batch: &LabelledOn<B>) -> kiln_core::Result<Output<B>> {
    let growth = batch.inputs.exp()?.mean(&[], false)?;
    Ok(Output::new(
        model.forward(&batch.inputs)?.square()?.mean(&[], false)?.mul(&growth)?,
    ))
}

/// A logarithm of the inputs' sums, which is infinite at 0 in every precision.
fn logarithm<B: Backend>(model: &Net<B>, batch: &LabelledOn<B>) -> kiln_core::Result<Output<B>> {
    let log = batch.inputs.sum(&[1, 2, 3], false)?.log()?.mean(&[], false)?;
    Ok(Output::new(
        model.forward(&batch.inputs)?.square()?.mean(&[], false)?.add(&log)?,
    ))
}

fn images(bad: f32) -> Loader {
    let inputs = (0..24 * 64)
        .map(|i| if i / 64 == 13 { 255.0 * bad } else { 255.0 })
        .collect();
    let labels = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
    let arrays = Arrays::new(Shape::new(&[8, 8, 1]).unwrap(), inputs, labels).unwrap();
    loader(Arc::new(arrays), 4, false, 0)
}

type Step = fn(&Net<Cpu>, &LabelledOn<Cpu>) -> kiln_core::Result<Output<Cpu>>;

fn run(folder: &Path, step: Step, data: &Loader, accumulate: usize) -> (Cause, Net<Cpu>) {
    let cpu = Cpu::new();
    let options = TrainOptions {
        accumulate,
        ..Default::default()
    };
    let mut model = Net::with_dropout(&cpu, 0, 0.5);
    let error = Trainer::new(&cpu, options)
        .folder(RunFolder::create(folder).unwrap())
        .fit(&mut model, &mut Sgd::new(1e-3), step, data, None)
        .unwrap_err();
    (cause(error), model)
}

fn net() -> Net<Cpu> {
    // The weights are the capsule's, whatever they are here; random streams are those of the same seed.
    Net::with_dropout(&Cpu::new(), 0, 0.5)
}

#[test]
fn overflow_is_told_from_what_has_no_value() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    for (accumulate, steps) in [(1, 4), (3, 2)] {
        let at = |name: &str| dir.path().join(format!("{name}-{accumulate}"));
        let (found, _) = run(&at("growth"), growth::<Cpu>, &images(100.0), accumulate);
        assert_eq!((found.step, found.batch), (steps, 4), "{found}");
        let path = found.capsule.clone().unwrap();
        assert_eq!(path, at("growth").join(format!("capsule-00000000{steps}.json")));
        let capsule = Capsule::open(&path).unwrap();
        assert_eq!(*capsule.cause(), Cause { capsule: None, ..found });
        assert_eq!(capsule.samples(), [12, 13, 14, 15]);
        let as_it_was = capsule
            .replay::<_, _, Labelled>(&cpu, &mut net(), growth, DType::F32)
            .unwrap();
        let first = as_it_was.first_non_finite().unwrap();
        assert_eq!(
            (&first.name.op[..], first.name.pass, first.infinite, first.nan),
            ("exp", Pass::Forward, 64, 0)
        );
        assert_eq!(first.share(), 0.25);
        let wide = capsule
            .replay::<_, _, Labelled>(&cpu, &mut net(), growth, DType::F64)
            .unwrap();
        assert!(wide.is_finite() && wide.loss > 1e40, "{}", wide.loss);

        let (found, _) = run(&at("log"), logarithm::<Cpu>, &images(0.0), accumulate);
        let capsule = Capsule::open(found.capsule.unwrap().with_extension("safetensors")).unwrap();
        for dtype in [DType::F32, DType::F64] {
            let replay = capsule
                .replay::<_, _, Labelled>(&cpu, &mut net(), logarithm, dtype)
                .unwrap();
            assert_eq!(replay.first_non_finite().unwrap().name.op, "log");
            assert!(replay.loss.is_infinite());
        }
    }
}

/// A capsule has the weights and random counters of before the step: with the batch repaired, the loss is that of the run.
#[test]
fn a_replay_draws_the_numbers_of_the_run() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let losses = std::sync::Mutex::new(Vec::new());
    let step = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let loss = model.forward(&batch.inputs)?.square()?.mean(&[], false)?;
        losses.lock().unwrap().push(loss.item()?);
        // Infinite for the batch with the large image.
        Ok(Output::new(loss.add(
            &batch.inputs.mean(&[], false)?.square()?.square()?.square()?.square()?,
        )?))
    };
    let folder = RunFolder::create(dir.path().join("run")).unwrap();
    let error = Trainer::new(&cpu, TrainOptions::default())
        .folder(folder)
        .fit(&mut net(), &mut Sgd::new(1e-3), step, &images(1e4), None)
        .unwrap_err();
    let bad = losses.lock().unwrap()[3];
    let capsule = Capsule::open(cause(error).capsule.unwrap()).unwrap();
    losses.lock().unwrap().clear();
    capsule
        .replay::<_, _, Labelled>(&cpu, &mut net(), step, DType::F32)
        .unwrap();
    assert_eq!(losses.lock().unwrap()[..], [bad]);
}

/// Points with a list of lists and a weight that not every batch has.
#[derive(Batch)]
struct Points {
    points: Array2<f32>,
    near: Vec<Array1<f32>>,
    kinds: Array1<i32>,
    weight: Option<Array1<f64>>,
}

struct Numbers;

impl Dataset for Numbers {
    type Sample = usize;
    fn len(&self) -> usize {
        12
    }
    fn read(&self, index: usize, sample: &mut usize) -> kiln_data::Result<()> {
        *sample = index;
        Ok(())
    }
}

#[derive(Module)]
struct Two<B: Backend> {
    noise: Noise<B>,
    dropout: Dropout<B>,
    left: Linear<B>,
    right: Linear<B>,
}

/// Batches of any kind and phases with names have capsules too, in each policy that goes on.
#[test]
fn any_batch_and_any_phase_has_a_capsule() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let collate = |numbers: &[usize]| {
        Ok(Points {
            points: Array2::from_shape_fn((numbers.len(), 2), |(i, j)| (numbers[i] + j) as f32 - 8.0),
            near: numbers.iter().map(|&n| Array1::from_elem(n % 3, n as f32)).collect(),
            kinds: numbers.iter().map(|&n| n as i32).collect(),
            weight: numbers.contains(&7).then(|| Array1::ones(numbers.len())),
        })
    };
    let options = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    let data = Loader::with_collate(Arc::new(Numbers), collate, options).unwrap();
    let two = || {
        let init = &mut Init::new(&cpu, 0);
        Two {
            noise: Noise::new(init).unwrap(),
            dropout: Dropout::new(init, 0.5).unwrap(),
            left: Linear::new(init, 2, 2).unwrap(),
            right: Linear::new(init, 2, 2).unwrap(),
        }
    };
    let left = |model: &Two<Cpu>, batch: &PointsOn<Cpu>| {
        Ok(Output::new(
            model.left.forward(&batch.points)?.square()?.mean(&[], false)?,
        ))
    };
    // The root has no slope at 0, which is a point of the batches of 6 to 9.
    let right = |model: &Two<Cpu>, batch: &PointsOn<Cpu>| {
        let near: Vec<Tensor<Cpu>> = batch
            .near
            .iter()
            .map(|n| n.sum(&[], false))
            .collect::<kiln_core::Result<_>>()?;
        let x = model.dropout.forward(&batch.points)?;
        let weight = batch.weight.as_ref().map_or(Ok(1.0), |w| w.mean(&[], false)?.item())?;
        let y = model.right.forward(&x)?.mul(&batch.points)?.square()?.sqrt()?;
        Ok(Output::new(
            y.mean(&[], false)?.add(&near[0].mul_scalar(0.0)?)?.mul_scalar(weight)?,
        ))
    };
    for (name, non_finite) in [
        ("stop", NonFinite::Stop),
        ("skip", NonFinite::Skip { in_a_row: 2 }),
        (
            "back",
            NonFinite::Rollback {
                in_a_row: 2,
                lr_factor: 1.0,
            },
        ),
    ] {
        let (mut a, mut b) = (Sgd::new(1e-3), Sgd::new(1e-3));
        let phases = vec![
            Phase::new("left", &mut a, left).trains(|name| name.starts_with("left")),
            Phase::new("right", &mut b, right).trains(|name| name.starts_with("right")),
        ];
        let options = TrainOptions {
            non_finite,
            ..Default::default()
        };
        let result = Trainer::new(&cpu, options)
            .folder(RunFolder::create(dir.path().join(name)).unwrap())
            .fit_phases(&mut two(), phases, &data, None);
        assert_eq!(result.is_err(), name == "stop");
        let capsule = Capsule::open(dir.path().join(name).join("capsule-000000004")).unwrap();
        let found = capsule.cause();
        assert_eq!((&found.phase[..], found.batch), ("right", 4), "{name}: {found}");
        assert!(
            matches!(&found.place, Place::Op { op, backward: true, .. } if op == "sqrt"),
            "{name}: {found}"
        );
        let replay = capsule
            .replay::<_, _, Points>(&cpu, &mut two(), right, DType::F64)
            .unwrap();
        assert_eq!(replay.first_non_finite().unwrap().name.op, "sqrt", "{name}");
        // Only the parameters of the phase have gradients.
        assert!(replay.ops.iter().all(|op| !op.name.layer.contains("left")), "{name}");
    }
}

/// In mixed precision a replay has that precision, and the scale of the loss.
#[test]
fn a_capsule_keeps_the_precision() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let options = TrainOptions {
        autocast: Some(DType::F16),
        ..Default::default()
    };
    let error = Trainer::new(&cpu, options)
        .folder(RunFolder::create(dir.path().join("run")).unwrap())
        .fit(&mut net(), &mut Sgd::new(1e-3), growth, &images(100.0), None)
        .unwrap_err();
    let capsule = Capsule::open(cause(error).capsule.unwrap()).unwrap();
    assert_eq!(capsule.autocast(), Some(DType::F16));
    let replay = capsule
        .replay::<_, _, Labelled>(&cpu, &mut net(), growth, DType::F32)
        .unwrap();
    assert!(replay.ops.iter().any(|op| op.name.op == "to_dtype"));
    assert_eq!(replay.first_non_finite().unwrap().name.op, "exp");
}

#[test]
fn what_is_no_capsule_is_refused() {
    let (cpu, dir) = (Cpu::new(), tempfile::tempdir().unwrap());
    let (found, _) = run(&dir.path().join("run"), growth::<Cpu>, &images(100.0), 1);
    let path = found.capsule.unwrap();
    let capsule = Capsule::open(&path).unwrap();
    assert!(matches!(
        capsule.replay::<_, _, Labelled>(&cpu, &mut net(), growth, DType::F16),
        Err(TrainError::InvalidArgument { argument: "dtype", .. })
    ));
    let mut other = Linear::new(&mut Init::new(&cpu, 0), 2, 2).unwrap();
    let none = |_: &Linear<Cpu>, _: &LabelledOn<Cpu>| -> kiln_core::Result<Output<Cpu>> { unreachable!() };
    assert!(matches!(
        capsule.replay::<_, _, Labelled>(&cpu, &mut other, none, DType::F32),
        Err(TrainError::Weights(_))
    ));
    let none = |_: &Net<Cpu>, _: &PointsOn<Cpu>| -> kiln_core::Result<Output<Cpu>> { unreachable!() };
    let error = capsule
        .replay::<_, _, Points>(&cpu, &mut net(), none, DType::F32)
        .unwrap_err();
    assert!(matches!(&error, TrainError::Data(_)), "{error}");
    assert!(
        error.to_string().contains("`points`") && error.to_string().contains("inputs: f32 [4, 8, 8, 1]"),
        "{error}"
    );

    let tensors = path.with_extension("safetensors");
    let bytes = std::fs::read(&tensors).unwrap();
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    for wrong in [&bytes[..bytes.len() - 1], &changed] {
        std::fs::write(&tensors, wrong).unwrap();
        assert!(matches!(Capsule::open(&path), Err(TrainError::BadCapsule { .. })));
    }
    for text in ["{}", "[1", "{\"format\": \"kiln-capsule\", \"version\": 2}"] {
        std::fs::write(&path, text).unwrap();
        assert!(
            matches!(Capsule::open(&path), Err(TrainError::BadCapsule { .. })),
            "{text}"
        );
    }
    assert!(matches!(
        Capsule::open(dir.path().join("none")),
        Err(TrainError::File(_))
    ));
}
