//! Whole training steps: recorded once and replayed, op by op, and on the CPU.

use crate::with;
use kiln_core::ops::Activation;
use kiln_core::{Backend, Error, Result, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::{Cuda, Options};
use kiln_data::{Arrays, BatchSampler, EpochPlan, LabelledOn, Labels, Loader, LoaderOptions, Synthetic, ToFloat};
use kiln_nn::layers::{BatchNorm, Conv2d, Dropout, Flatten, Linear, MaxPool2d, Noise};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::optim::{Adam, AdamW, Group, Lion, NAdam, Optimizer, Rmsprop, Schedule, Sgd};
use kiln_nn::{DType, Indices, Init, Layer, Module, Rng, Sequential, Tensor, autocast};
use kiln_train::{
    Accuracy, Clip, ConfusionMatrix, NonFinite, Output, Phase, Report, TrainError, TrainOptions, Trainer,
};
use std::cell::RefCell;
use std::sync::Arc;

/// Convolutions with ReLU, pooling, batch norm, dropout and dense layers for images `[10, 10, 1]` of four classes.
pub(crate) fn digits<B: Backend>(backend: &B) -> Sequential<B> {
    let init = &mut Init::new(backend, 3);
    let conv = Conv2d::<B>::builder(1, 4, 3).activation(Activation::Relu).build(init);
    let second = Conv2d::<B>::builder(4, 5, 3).bias(false).build(init);
    let dense = Linear::<B>::builder(5, 8).activation(Activation::Relu).build(init);
    Sequential::new()
        .push(conv.unwrap())
        .push(MaxPool2d::new(2))
        .push(second.unwrap())
        .push(BatchNorm::new(init, 5).unwrap())
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(Dropout::new(init, 0.25).unwrap())
        .push(dense.unwrap())
        .push(Dropout::new(init, 0.1).unwrap())
        .push(Linear::new(init, 8, 4).unwrap())
}

/// Two convolutions with pooling and two dense layers for images `[14, 14, 2]` of four classes.
fn lenet<B: Backend>(backend: &B) -> Sequential<B> {
    let init = &mut Init::new(backend, 4);
    let first = Conv2d::<B>::builder(2, 3, 3).activation(Activation::Relu).build(init);
    let second = Conv2d::<B>::builder(3, 4, 3).activation(Activation::Relu).build(init);
    let dense = Linear::<B>::builder(16, 12).activation(Activation::Relu).build(init);
    Sequential::new()
        .push(first.unwrap())
        .push(MaxPool2d::new(2))
        .push(second.unwrap())
        .push(MaxPool2d::new(2))
        .push(Flatten::default())
        .push(dense.unwrap())
        .push(Linear::new(init, 12, 4).unwrap())
}

/// 22 images in batches of 4: five whole ones and a short one an epoch.
pub(crate) fn data(shape: [usize; 3]) -> Loader {
    let images = Arc::new(Synthetic::images(22, &shape, 4, 5).unwrap());
    let options = LoaderOptions {
        batch_size: 4,
        shuffle: true,
        seed: 3,
        ..Default::default()
    };
    Loader::new(images, options).unwrap().with_transform(ToFloat)
}

pub(crate) fn step<B: Backend>(model: &Sequential<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let logits = model.forward(&batch.inputs)?;
    Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
}

/// The values of a dictionary by name, as bits.
fn bits<B: Backend>(dict: &StateDict<B>) -> Vec<(String, Vec<u64>)> {
    let of = |value: &Value<B>| match value {
        Value::Float(t) => t.to_f64().unwrap().into_iter().map(f64::to_bits).collect(),
        Value::Int(i) => i.to_vec::<i32>().unwrap().into_iter().map(|v| v as u64).collect(),
    };
    dict.iter().map(|(name, value)| (name.to_string(), of(value))).collect()
}

/// The model, the optimizer's state and the report that a run leaves behind.
pub(crate) struct Left<B: Backend> {
    model: StateDict<B>,
    optimizer: StateDict<B>,
    pub(crate) report: Report,
}

impl<B: Backend> Left<B> {
    /// Everything that has to be the same, however steps were made.
    pub(crate) fn bits(&self) -> impl PartialEq + std::fmt::Debug + use<B> {
        let epochs = self.report.history.epochs().iter();
        let values: Vec<_> = epochs
            .map(|e| (e.step, e.lr, e.train.clone(), e.valid.clone()))
            .collect();
        (bits(&self.model), bits(&self.optimizer), values)
    }

    /// The numbers of steps made op by op, recorded and replayed.
    pub(crate) fn made(&self) -> (u64, u64, u64) {
        let made = &self.report.execution;
        (made.eager, made.recorded, made.replayed)
    }
}

pub(crate) type Closure<'a, B> = &'a dyn Fn(&Sequential<B>, &LabelledOn<B>) -> Result<Output<B>>;

pub(crate) fn run<B: Backend>(
    backend: &B,
    mut model: Sequential<B>,
    mut optimizer: impl Optimizer<B>,
    data: &Loader,
    options: TrainOptions,
    closure: Closure<'_, B>,
) -> Left<B> {
    let schedule = Schedule::Cosine {
        lr: optimizer.lr(),
        min: 0.0,
        steps: 30,
    };
    let report = Trainer::new(backend, options)
        .metric(Accuracy::new())
        .metric(ConfusionMatrix::new(4))
        .schedule(schedule)
        .fit(&mut model, &mut optimizer, closure, data, Some(data))
        .unwrap_or_else(|e| panic!("{e}"));
    Left {
        model: StateDict::of(&model),
        optimizer: optimizer.state_dict().unwrap(),
        report,
    }
}

fn options(capture: bool) -> TrainOptions {
    TrainOptions {
        epochs: 4,
        log_every: 3,
        capture,
        ..Default::default()
    }
}

/// Makes a net.
type Net<B> = fn(&B) -> Sequential<B>;

/// Runs a net captured, op by op and on the CPU, and compares. (Adam's eps bounds what rounding does to an update.)
fn agree(
    net: (Net<Cuda>, Net<Cpu>),
    optimizer: (
        impl Fn() -> Box<dyn Optimizer<Cuda>>,
        impl Fn() -> Box<dyn Optimizer<Cpu>>,
    ),
    shape: [usize; 3],
    clip: Option<Clip>,
) {
    let (cuda, data) = (with(Options::default()), data(shape));
    let on_cuda = |capture| {
        let options = TrainOptions {
            clip,
            ..options(capture)
        };
        run(&cuda, net.0(&cuda), optimizer.0(), &data, options, &step)
    };
    let (captured, plain) = (on_cuda(true), on_cuda(false));
    assert_eq!(captured.bits(), plain.bits());
    // For each shape the first batch is made op by op and the second recorded; each of four epochs has five whole batches
    // and a short one.
    assert_eq!((captured.made(), plain.made()), ((2, 2, 20), (24, 0, 0)));
    let made = captured.report.execution;
    assert_eq!((made.allocations, &captured.report.not_captured), (0, &None));
    assert!(made.launches > 12, "{made:?}");

    let options = TrainOptions { clip, ..options(true) };
    let cpu = Cpu::new();
    let on_cpu = run(&cpu, net.1(&cpu), optimizer.1(), &data, options, &step);
    for ((name, a), (_, b)) in captured.model.iter().zip(on_cpu.model.iter()) {
        match (a, b) {
            (Value::Float(a), Value::Float(b)) => {
                for (a, b) in a.to_f64().unwrap().into_iter().zip(b.to_f64().unwrap()) {
                    assert!((a - b).abs() <= 2e-3 + 2e-3 * b.abs(), "{name}: {a}, on the CPU {b}");
                }
            }
            (Value::Int(a), Value::Int(b)) => assert_eq!(a.to_vec::<i32>(), b.to_vec::<i32>(), "{name}"),
            _ => panic!("{name}"),
        }
    }
}

#[test]
fn a_net_with_dropout_and_batch_norm_is_replayed() {
    let groups = || Group::new(|n| n.ends_with("bias")).lr_factor(2.0).weight_decay(0.0);
    agree(
        (digits, digits),
        (
            move || Box::new(Adam::new(1e-2).eps(1e-3).weight_decay(1e-3).group(groups())),
            move || Box::new(Adam::new(1e-2).eps(1e-3).weight_decay(1e-3).group(groups())),
        ),
        [10, 10, 1],
        Some(Clip::Norm(0.5)),
    );
}

#[test]
fn a_net_with_momentum_is_replayed() {
    agree(
        (lenet, lenet),
        (
            || Box::new(Sgd::new(0.05).momentum(0.9)),
            || Box::new(Sgd::new(0.05).momentum(0.9)),
        ),
        [14, 14, 2],
        Some(Clip::Value(0.05)),
    );
}

#[test]
fn mixed_precision_is_replayed() {
    let (cuda, data, cpu) = (with(Options::default()), data([10, 10, 1]), Cpu::new());
    // With f16 two steps overflow, and are skipped, until the scale fits.
    for (autocast, steps) in [(DType::BF16, 5), (DType::F16, 3)] {
        let options = |capture| TrainOptions {
            max_steps: Some(5),
            autocast: Some(autocast),
            ..options(capture)
        };
        fn adam<B: Backend>() -> Adam<B> {
            Adam::new(1e-2).eps(1e-3)
        }
        let on_cuda = |capture| run(&cuda, digits(&cuda), adam(), &data, options(capture), &step);
        let (captured, plain) = (on_cuda(true), on_cuda(false));
        assert_eq!(captured.bits(), plain.bits(), "{autocast}");
        assert_eq!(
            (captured.made(), captured.report.steps),
            ((1, 1, 3), steps),
            "{autocast}"
        );
        assert_eq!(plain.report.steps, steps, "{autocast}");
        assert_eq!(captured.report.not_captured, None, "{autocast}");
        let on_cpu = run(&cpu, digits(&cpu), adam(), &data, options(true), &step);
        assert_eq!(on_cpu.report.steps, captured.report.steps, "{autocast}");
        for ((name, a), (_, b)) in captured.model.iter().zip(on_cpu.model.iter()) {
            let (Value::Float(a), Value::Float(b)) = (a, b) else {
                continue;
            };
            for (a, b) in a.to_f64().unwrap().into_iter().zip(b.to_f64().unwrap()) {
                assert!(
                    (a - b).abs() <= 0.02 + 0.02 * b.abs(),
                    "{autocast} {name}: {a}, on the CPU {b}"
                );
            }
        }
    }
}

/// The first step casts weights and biases; its update leaves the new ones in half precision for the second.
#[test]
fn a_fused_update_spares_the_launches_that_cast_weights() -> Result<()> {
    let cuda = with(Options::default());
    let x = Tensor::rand(&cuda, &[4, 14, 14, 2], DType::F32, &mut Rng::new(1))?;
    let labels = Indices::from_slice(&cuda, &[0i32, 1, 2, 3], &[4])?;
    let mut model = lenet(&cuda);
    let mut launches = |optimizer: &mut dyn Optimizer<Cuda>| {
        let before = cuda.launches();
        let loss = autocast(DType::BF16, || model.forward(&x)?.cross_entropy(&labels))?;
        optimizer.step(&mut model, &loss.backward()?)?;
        Ok::<_, Error>(cuda.launches() - before)
    };
    let (mut sgd, mut lion) = (Sgd::new(0.1), Lion::new(1e-3));
    let [first, second, third] = [launches(&mut sgd)?, launches(&mut sgd)?, launches(&mut sgd)?];
    // Two convolutions and two dense layers, each with weight and bias.
    assert_eq!((first - second, second), (8, third));
    // An update of tensor ops leaves no copies.
    let [_, second, third] = [launches(&mut lion)?, launches(&mut lion)?, launches(&mut lion)?];
    assert_eq!(second, third);
    Ok(())
}

#[test]
fn other_optimizers_are_replayed() {
    let (cuda, data) = (with(Options::default()), data([14, 14, 2]));
    let one = |capture| TrainOptions {
        max_steps: Some(5),
        ..options(capture)
    };
    let both = |optimizer: &dyn Fn() -> Box<dyn Optimizer<Cuda>>| {
        let run = |capture| run(&cuda, lenet(&cuda), optimizer(), &data, one(capture), &step);
        let (captured, plain) = (run(true), run(false));
        assert_eq!(captured.bits(), plain.bits());
        assert_eq!(captured.made(), (1, 1, 3));
    };
    both(&|| Box::new(AdamW::new(1e-2).amsgrad(true)));
    both(&|| Box::new(Rmsprop::new(1e-3).momentum(0.5).centered(true)));
}

/// A closure that sends something to the device, which a recording cannot repeat.
#[test]
fn a_step_that_cannot_be_recorded_runs_op_by_op() {
    let (cuda, data) = (with(Options::default()), data([10, 10, 1]));
    let weighted = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
        let output = step(model, batch)?;
        let half = Tensor::from_slice(&cuda, &[0.5f32], &[])?;
        Ok(Output {
            loss: output.loss.mul(&half)?,
            ..output
        })
    };
    let one = |capture| TrainOptions {
        epochs: 1,
        ..options(capture)
    };
    let run = |capture| run(&cuda, digits(&cuda), Adam::new(1e-2), &data, one(capture), &weighted);
    let (tried, plain) = (run(true), run(false));
    assert_eq!(tried.bits(), plain.bits());
    assert_eq!(tried.made(), (6, 0, 0));
    let obstacle = tried.report.not_captured.unwrap();
    assert!(
        obstacle.contains("an upload cannot be part of a captured step"),
        "{obstacle}"
    );
}

/// A closure that keeps the model's values, so that they move when they are next written: a recording is good for one step.
#[test]
fn values_that_are_held_are_not_overwritten() {
    let (cuda, data) = (with(Options::default()), data([10, 10, 1]));
    let run = |capture| {
        let held = RefCell::new(Vec::new());
        let holding = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
            held.borrow_mut().push(StateDict::of(model));
            step(model, batch)
        };
        let left = run(&cuda, digits(&cuda), Adam::new(1e-2), &data, options(capture), &holding);
        let held: Vec<_> = held.into_inner().iter().map(bits).collect();
        (left, held)
    };
    let ((tried, kept), (plain, expected)) = (run(true), run(false));
    assert_eq!(tried.bits(), plain.bits());
    assert!(kept == expected, "a value changed while it was held");
    // After the first epoch the validation holds the values, so that the eighth attempt ends before it records anything.
    assert_eq!(tried.made(), (17, 7, 0));
    let obstacle = tried.report.not_captured.unwrap();
    assert!(obstacle.contains("moved 8 times"), "{obstacle}");
}

/// Steps of two batches: two whole pairs and a pair that ends with the short batch in every epoch.
#[test]
fn steps_of_several_batches_are_replayed() {
    let (cuda, data) = (with(Options::default()), data([10, 10, 1]));
    let run = |capture| {
        let options = TrainOptions {
            accumulate: 2,
            clip: Some(Clip::Norm(1.0)),
            ..options(capture)
        };
        run(&cuda, digits(&cuda), Adam::new(1e-2), &data, options, &step)
    };
    let (captured, plain) = (run(true), run(false));
    assert_eq!(captured.bits(), plain.bits());
    assert_eq!((captured.made(), plain.made()), ((2, 2, 8), (12, 0, 0)));
    assert_eq!(captured.report.execution.allocations, 0);
}

/// Four batches an epoch, of 4, 5, 6 and 7 samples.
struct OfFourSizes;

impl BatchSampler for OfFourSizes {
    fn batches(&self) -> usize {
        4
    }
    fn samples(&self) -> usize {
        22
    }
    fn plan(&self, _: u64, _: u64) -> kiln_data::Result<EpochPlan> {
        EpochPlan::new((0..22).collect(), vec![4, 9, 15, 22])
    }
}

/// As batches of texts that are padded to a few lengths: each shape has a recording of its own.
#[test]
fn batches_of_several_shapes_are_replayed() {
    let (cuda, data) = (with(Options::default()), data([10, 10, 1]).with_sampler(OfFourSizes));
    let run = |capture| run(&cuda, digits(&cuda), Adam::new(1e-2), &data, options(capture), &step);
    let (captured, plain) = (run(true), run(false));
    assert_eq!(captured.bits(), plain.bits());
    assert_eq!((captured.made(), plain.made()), ((4, 4, 8), (16, 0, 0)));
}

/// Images of which the fourth of six batches is NaN.
fn poisoned() -> Loader {
    let inputs = (0..24 * 100).map(|i| {
        if i / 400 == 3 {
            f32::NAN
        } else {
            (i as f32 * 0.37).sin()
        }
    });
    let classes = Labels::Classes((0..24).map(|i| i % 4).collect(), 4);
    let images = Arrays::new(Shape::new(&[10, 10, 1]).unwrap(), inputs.collect(), classes).unwrap();
    let options = LoaderOptions {
        batch_size: 4,
        ..Default::default()
    };
    Loader::new(Arc::new(images), options).unwrap()
}

/// Replayed steps whose batch is NaN leave parameters, state, running statistics and counters as they were, without a word to the
/// host: the bits are those of steps that run op by op. With an optimizer of its own kernel and with one of tensor ops. To find the
/// first NaN, the host makes the step again once it has read the losses; parameters have moved then, and the next step is recorded anew.
#[test]
fn skipped_steps_are_replayed() {
    let (cuda, data) = (with(Options::default()), poisoned());
    let left = |capture, accumulate, optimizer: Box<dyn Optimizer<Cuda>>| {
        let options = TrainOptions {
            non_finite: NonFinite::Skip { in_a_row: 1 },
            clip: Some(Clip::Norm(0.5)),
            epochs: 2,
            accumulate,
            ..options(capture)
        };
        let left = run(&cuda, digits(&cuda), optimizer, &data, options, &step);
        let skipped: Vec<u64> = left.report.history.epochs().iter().map(|e| e.skipped).collect();
        assert_eq!(skipped, [1, 1]);
        left
    };
    // The loss of a validation with a NaN is one, which is not equal to itself.
    let shown = |left: &Left<Cuda>| format!("{:?}", left.bits());
    for (accumulate, made, steps) in [(1, (1, 2, 9), 10), (2, (1, 3, 2), 4)] {
        let adam = |capture| left(capture, accumulate, Box::new(Adam::new(1e-2)));
        let (captured, plain) = (adam(true), adam(false));
        assert_eq!(shown(&captured), shown(&plain));
        assert_eq!((captured.made(), captured.report.steps), (made, steps));
        assert_eq!((plain.report.steps, captured.report.execution.allocations), (steps, 0));
    }
    let nadam = |capture| left(capture, 1, Box::new(NAdam::new(1e-2)));
    let (captured, plain) = (nadam(true), nadam(false));
    assert_eq!(shown(&captured), shown(&plain));
    assert_eq!(captured.made(), (1, 2, 9));
}

/// More skipped steps in a row than are allowed end a replayed run, when the losses are read.
#[test]
fn too_many_skipped_steps_end_a_replayed_run() {
    let cuda = with(Options::default());
    let options = TrainOptions {
        non_finite: NonFinite::Skip { in_a_row: 2 },
        ..options(true)
    };
    let overflowing = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
        Ok(Output::new(step(model, batch)?.loss.mul_scalar(f64::INFINITY)?))
    };
    let (mut model, data) = (lenet(&cuda), data([14, 14, 2]));
    let error = Trainer::new(&cuda, options)
        .fit(&mut model, &mut Sgd::new(0.1), overflowing, &data, None)
        .unwrap_err();
    let TrainError::TooManySkipped { step, count, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((step, count), (3, 3));
}

/// A bad label in a replayed step, which only a kernel sees, ends the run with an error.
#[test]
fn a_bad_label_ends_a_replayed_run() {
    let cuda = with(Options::default());
    let data = data([10, 10, 1]);
    let init = &mut Init::new(&cuda, 0);
    let mut model = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 100, 3).unwrap());
    let shifted = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
        let logits = model.forward(&batch.inputs)?;
        logits.cross_entropy(&batch.labels).map(Output::new)
    };
    let options = TrainOptions {
        epochs: 4,
        ..TrainOptions::default()
    };
    let error = Trainer::new(&cuda, options)
        .fit(&mut model, &mut Sgd::new(0.1), shifted, &data, None)
        .unwrap_err();
    assert!(error.to_string().contains("index 3"), "{error}");
    // The device stays usable.
    let labels = Indices::from_slice(&cuda, &[2i32], &[1]).unwrap();
    assert_eq!(labels.to_vec::<i32>(), Ok(vec![2]));
    assert!(model.named_parameters().iter().all(|(_, p)| p.to_f64().is_ok()));
}

#[test]
fn the_example_learns_by_replays() {
    let cuda = with(Options::default());
    let [first, last] = crate::cuda_graph::run(&cuda, 60).unwrap();
    assert!(last < 0.8 * first, "{first}, {last}");
}

/// A generator and its critic, with noise that is drawn on the device.
#[derive(Module)]
struct Gan<B: Backend> {
    noise: Noise<B>,
    generator: Linear<B>,
    critic: Linear<B>,
}

impl<B: Backend> Gan<B> {
    fn new(backend: &B) -> Self {
        let init = &mut Init::new(backend, 3);
        Gan {
            noise: Noise::new(init).unwrap(),
            generator: Linear::new(init, 4, 25).unwrap(),
            critic: Linear::new(init, 25, 1).unwrap(),
        }
    }

    /// The mean score of generated images.
    fn score(&self, count: usize) -> Result<Tensor<B>> {
        let fakes = self.generator.forward(&self.noise.randn(&[count, 4], DType::F32)?)?;
        self.critic.forward(&fakes)?.mean(&[], false)
    }
}

/// Every phase of a step has recordings of its own, which draw new noise each time.
#[test]
fn phases_are_replayed() {
    let (cuda, data) = (with(Options::default()), data([5, 5, 1]));
    let run = |capture| {
        let mut gan = Gan::new(&cuda);
        let (mut of_critic, mut of_generator) = (Adam::new(1e-2), Sgd::new(0.1).momentum(0.9));
        let phases = vec![
            Phase::new("critic", &mut of_critic, |gan: &Gan<Cuda>, batch: &LabelledOn<Cuda>| {
                let images = batch.inputs.flatten(1, -1)?;
                let real = gan.critic.forward(&images)?.mean(&[], false)?;
                let fake = gan.score(batch.labels.size())?;
                let output = Output::new(fake.sub(&real)?);
                Ok(output.part("real", &real).part("fake", &fake))
            })
            .trains(|name| name.starts_with("critic.")),
            Phase::new(
                "generator",
                &mut of_generator,
                |gan: &Gan<Cuda>, batch: &LabelledOn<Cuda>| {
                    Ok(Output::new(gan.score(batch.labels.size())?.mul_scalar(-1.0)?))
                },
            )
            .trains(|name| name.starts_with("generator."))
            .every(2),
        ];
        let report = Trainer::new(&cuda, options(capture))
            .fit_phases(&mut gan, phases, &data, None)
            .unwrap();
        let optimizers = (
            bits(&of_critic.state_dict().unwrap()),
            bits(&of_generator.state_dict().unwrap()),
        );
        let values: Vec<_> = report.history.epochs().iter().map(|e| e.train.clone()).collect();
        let made = (
            report.execution.eager,
            report.execution.recorded,
            report.execution.replayed,
        );
        (bits(&StateDict::of(&gan)), optimizers, values, made)
    };
    let (captured, plain) = (run(true), run(false));
    assert_eq!((&captured.0, &captured.1, &captured.2), (&plain.0, &plain.1, &plain.2));
    assert!(
        captured
            .2
            .iter()
            .all(|values| values["critic/fake"] != captured.2[0]["critic/real"])
    );
    let (eager, recorded, replayed) = captured.3;
    assert_eq!(eager + recorded + replayed, plain.3.0);
    // Each phase runs two shapes op by op and records both.
    assert_eq!((eager, recorded, plain.3.1), (4, 4, 0));
}
