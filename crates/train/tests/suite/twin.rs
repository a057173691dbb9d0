//! The twin check: backends that round differently agree, and an op that computes something else is named.

use crate::common::{Net, bytes, digits, images, loader, step};
use kiln_core::ops::Activation;
use kiln_cpu::Cpu;
use kiln_data::{Labelled, LabelledOn};
use kiln_nn::autograd::{RuleContext, function, kernel};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Flatten, Lambda, Linear, Noise};
use kiln_nn::optim::{Adam, Sgd};
use kiln_nn::watch::Pass;
use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Sequential, Tensor};
use kiln_train::{
    Capsule, Deviation, Output, Phase, Place, RunFolder, TrainError, TrainOptions, Trainer, Twin, Warning,
};
use ndarray::Array1;

fn objective<B: Backend>(model: &impl Layer<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
}

/// A convolution large enough for Winograd's algorithm, batch norm, dropout and a dense layer.
fn net(cpu: &Cpu) -> Result<Sequential<Cpu>> {
    let init = &mut Init::new(cpu, 0);
    let conv = Conv2d::<Cpu>::builder(1, 16, 3)
        .activation(Activation::Relu)
        .build(init)?;
    Ok(Sequential::new()
        .push(conv)
        .push(Conv2d::new(init, 16, 16, 3)?)
        .push(BatchNorm::new(init, 16)?)
        .push(Flatten::default())
        .push(Dropout::new(init, 0.3)?)
        .push(Linear::new(init, 24 * 24 * 16, 10)?))
}

/// Convolutions by Winograd's algorithm round differently from plain sums, and after some steps a ReLU falls another way.
#[test]
fn devices_that_round_differently_agree() {
    let (device, cpu) = (Cpu::new(), Cpu::builder().exact_convolutions(true).build());
    for (autocast, accumulate) in [(None, 1), (None, 2), (Some(DType::BF16), 1), (Some(DType::F16), 1)] {
        let options = TrainOptions {
            epochs: 2,
            autocast,
            accumulate,
            ..Default::default()
        };
        let data = loader(digits(24), 4, true, 0);
        let run = |twin: bool| {
            let mut model = net(&device).unwrap();
            let mut trainer = Trainer::new(&device, options.clone());
            if twin {
                trainer = trainer.twin(Twin::new::<_, _, Labelled>(&cpu, net, objective).unwrap().every(2));
            }
            let report = trainer
                .fit(&mut model, &mut Adam::new(1e-3), objective, &data, None)
                .unwrap();
            (bytes(&model), report)
        };
        let ((checked, report), (plain, _)) = (run(true), run(false));
        // The run does not depend on the check.
        assert!(checked == plain, "{autocast:?}");
        let twin = report.twin.unwrap();
        assert_eq!(twin.steps, 12_u64.div_ceil(2 * accumulate as u64));
        assert!(twin.ops >= 15 * twin.steps, "{twin:?}");
    }
}

/// How the op of a test goes wrong on the device.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// The last element is left out.
    Last,
    /// Results have 12 digits less.
    Digits,
    /// Another order, which rounds differently.
    Order,
    Gradient,
}

/// `x³` by a kernel of its own.
fn cube<B: Backend>(x: &Tensor<B>, wrong: Wrong) -> Result<Tensor<B>> {
    let values = x.to_f64()?;
    let forward = || {
        let cubes: Vec<f64> = values.iter().map(|x| x * x * x).collect();
        let cut = |v: f64| match wrong {
            Wrong::Digits => f64::from((v * 4096.0).round() as f32 / 4096.0),
            Wrong::Order => v * (1.0 + 1e-7),
            _ => v,
        };
        let mut cubes: Vec<f64> = cubes.into_iter().map(cut).collect();
        if let (Wrong::Last, Some(last)) = (wrong, cubes.last_mut()) {
            *last = 0.0;
        }
        // No op of its own, so that there is one op alone to tell.
        kernel("cube", &[x.into()], x.shape(), x.dtype(), |backend, _, y| {
            let made = Tensor::from_f64(backend, &cubes, x.shape(), x.dtype())?;
            match x.dtype() {
                DType::F64 => backend.write(&made.to_vec::<f64>()?, y),
                _ => backend.write(&made.to_vec::<f32>()?, y),
            }
        })
    };
    let saved = x.detach();
    let factor = if wrong == Wrong::Gradient { 2.999 } else { 3.0 };
    function("cube", &[x], forward, move |cx: &RuleContext<'_, B>| {
        Ok(vec![Some(saved.square()?.mul_scalar(factor)?.mul(cx.grad)?)])
    })
}

fn cubic(cpu: &Cpu, wrong: Wrong) -> Result<Sequential<Cpu>> {
    let init = &mut Init::new(cpu, 0);
    Ok(Sequential::new()
        .push(Flatten::default())
        .push_named("fc", Linear::new(init, 64, 8)?)?
        .push_named("growth", Lambda::new(move |x| cube(x, wrong)))?
        .push(Linear::new(init, 8, 4)?))
}

fn trained(wrong: Wrong) -> std::result::Result<(), TrainError> {
    let cpu = Cpu::new();
    let twin = Twin::new::<_, _, Labelled>(&cpu, |cpu| cubic(cpu, Wrong::Nothing), objective)?.every(3);
    let data = loader(images(40, 0), 8, true, 0);
    Trainer::new(&cpu, TrainOptions::default())
        .twin(twin)
        .fit(&mut cubic(&cpu, wrong)?, &mut Sgd::new(0.01), objective, &data, None)
        .map(drop)
}

#[test]
fn an_op_that_is_wrong_is_named() {
    for right in [Wrong::Nothing, Wrong::Order] {
        trained(right).unwrap();
    }
    for (wrong, pass) in [
        (Wrong::Last, Pass::Forward),
        (Wrong::Digits, Pass::Forward),
        (Wrong::Gradient, Pass::Backward),
    ] {
        let error = trained(wrong).unwrap_err();
        let TrainError::Twin {
            step: 1,
            epoch: 1,
            deviation,
            compared,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        let Deviation {
            name,
            element,
            device,
            expected,
            bound,
            ..
        } = &**deviation;
        assert_eq!(
            (&name.layer[..], &name.op[..], name.pass),
            ("growth", "cube", pass),
            "{error}"
        );
        assert!((device - expected).abs() > *bound && *compared > 8, "{error}");
        if wrong == Wrong::Last {
            assert_eq!((*element, *device), (63, 0.0), "{error}");
        }
        let text = error.to_string();
        assert!(
            text.contains("in layer `growth`") && text.contains("step 1 (epoch 1)"),
            "{text}"
        );
    }
}

#[derive(Module)]
struct Gan<B: Backend> {
    noise: Noise<B>,
    generator: Linear<B>,
    critic: Linear<B>,
}

fn gan(cpu: &Cpu) -> Result<Gan<Cpu>> {
    let init = &mut Init::new(cpu, 0);
    Ok(Gan {
        noise: Noise::new(init)?,
        generator: Linear::new(init, 4, 64)?,
        critic: Linear::new(init, 64, 1)?,
    })
}

/// Phases are compared each by its closure, also where a closure makes tensors of f32 and there is no comparison in f64.
#[test]
fn phases_are_compared() {
    let cpu = Cpu::new();
    let generator = |wrong| {
        move |gan: &Gan<Cpu>, batch: &LabelledOn<Cpu>| {
            let noise = gan.noise.randn(&[batch.labels.size(), 4], DType::F32)?;
            let fake = cube(&gan.generator.forward(&noise)?, wrong)?;
            Ok(Output::new(gan.critic.forward(&fake)?.mean(&[], false)?))
        }
    };
    let critic = |gan: &Gan<Cpu>, batch: &LabelledOn<Cpu>| {
        let real = batch.inputs.reshape(&[batch.labels.size(), 64])?;
        Ok(Output::new(gan.critic.forward(&real)?.square()?.mean(&[], false)?))
    };
    let run = |wrong| {
        let twin = Twin::of_phases::<_, _, Labelled>(
            &cpu,
            gan,
            vec![
                ("critic".to_string(), Box::new(critic)),
                ("generator".to_string(), Box::new(generator(Wrong::Nothing))),
            ],
        )
        .unwrap();
        let (mut a, mut b) = (Sgd::new(1e-3), Sgd::new(1e-3));
        let phases = vec![
            Phase::new("critic", &mut a, critic).trains(|name| name.starts_with("critic")),
            Phase::new("generator", &mut b, generator(wrong))
                .trains(|name| name.starts_with("generator"))
                .every(2),
        ];
        let data = loader(images(40, 0), 8, true, 0);
        Trainer::new(&cpu, TrainOptions::default())
            .twin(twin.every(1))
            .fit_phases(&mut gan(&cpu).unwrap(), phases, &data, None)
    };
    assert_eq!(run(Wrong::Nothing).unwrap().twin.unwrap().steps, 5 + 2);
    for wrong in [Wrong::Last, Wrong::Gradient] {
        let error = run(wrong).unwrap_err();
        let TrainError::Twin {
            step: 2,
            phase,
            deviation,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((&phase[..], &deviation.name.op[..]), ("generator", "cube"), "{error}");
    }
}

#[test]
fn a_twin_for_other_batches_is_refused() {
    let cpu = Cpu::new();
    let model = |cpu: &Cpu| Linear::new(&mut Init::new(cpu, 0), 1, 1);
    let other = |model: &Linear<Cpu>, batch: &Tensor<Cpu>| Ok(Output::new(model.forward(batch)?));
    let data = loader(images(8, 0), 8, true, 0);
    for (twin, argument) in [
        (None, "twin"),
        (
            Some(
                Twin::new::<_, _, Labelled>(&cpu, |cpu| Ok(Net::new(cpu, 0)), step)
                    .unwrap()
                    .every(0),
            ),
            "twin.every",
        ),
    ] {
        let trainer = Trainer::new(&cpu, TrainOptions::default());
        let mut trainer = match twin {
            Some(twin) => trainer.twin(twin),
            None => trainer.twin(Twin::new::<_, _, Array1<f32>>(&cpu, model, other).unwrap()),
        };
        let error = trainer
            .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.1), step, &data, None)
            .unwrap_err();
        assert!(
            matches!(&error, TrainError::InvalidArgument { argument: found, .. } if *found == argument),
            "{error}"
        );
    }
}

/// A step that differs is a capsule, from which the comparison is made again; a twin that warns lets the run go on as it would have.
#[test]
fn a_step_that_differs_is_compared_again() {
    let (cpu, parent) = (Cpu::new(), tempfile::tempdir().unwrap());
    let twin = || {
        let twin = Twin::new::<_, _, Labelled>(&cpu, |cpu| cubic(cpu, Wrong::Nothing), objective);
        twin.unwrap().every(3)
    };
    let run = |name: &str, twin: Option<Twin>| {
        let folder = RunFolder::create(parent.path().join(name)).unwrap();
        let mut trainer = Trainer::new(&cpu, TrainOptions::default()).folder(folder);
        if let Some(twin) = twin {
            trainer = trainer.twin(twin);
        }
        let mut model = cubic(&cpu, Wrong::Last).unwrap();
        let data = loader(images(40, 0), 8, true, 0);
        let result = trainer.fit(&mut model, &mut Sgd::new(0.01), objective, &data, None);
        (result, bytes(&model))
    };
    let error = run("stops", Some(twin())).0.unwrap_err();
    let TrainError::Twin {
        deviation,
        compared,
        capsule: Some(path),
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(error.to_string().contains("examine it with `kiln replay "), "{error}");
    let capsule = Capsule::open(path).unwrap();
    assert!(
        matches!(&capsule.cause().place, Place::Twin { layer, op, backward: false, .. } if layer == "growth" && op == "cube"),
        "{:?}",
        capsule.cause()
    );
    let compare = |wrong| {
        let mut model = cubic(&cpu, wrong).unwrap();
        capsule
            .compare::<_, _, Labelled>(&cpu, &mut model, objective, &mut twin())
            .unwrap()
    };
    assert_eq!(compare(Wrong::Last), (Some((**deviation).clone()), *compared));
    assert_eq!(compare(Wrong::Nothing), (None, *compared));

    let ((report, warned), (_, plain)) = (run("warns", Some(twin().warn())), run("plain", None));
    let report = report.unwrap();
    assert!(warned == plain);
    let counts = report.twin.unwrap();
    // Before the first and the fourth of five steps; the op is told once.
    assert_eq!((counts.steps, counts.outside), (2, 2));
    let [Warning::Twin { cause }] = &report.warnings[..] else {
        panic!("{:?}", report.warnings);
    };
    assert!((cause.step, cause.capsule.is_some()) == (1, true), "{cause}");
}
