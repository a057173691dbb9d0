//! Steps of several updates, parts of losses, and metrics of whatever a step hands out.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{Arrays, LabelledOn, Labels, Loader, LoaderOptions};
use kiln_nn::layers::{Flatten, Linear, Noise};
use kiln_nn::optim::{Adam, Schedule, Sgd};
use kiln_nn::{Backend, DType, Init, Layer, Module, Optimizer, Result, Sequential, Shape, Tensor};
use kiln_train::{
    Clip, Goal, Metric, Monitor, NonFinite, Output, Phase, Reduction, StopHandle, TrainError, TrainOptions, Trainer,
    Validation,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

#[derive(Clone, Module)]
struct Gan<B: Backend> {
    noise: Noise<B>,
    generator: Linear<B>,
    critic: Sequential<B>,
}

impl<B: Backend> Gan<B> {
    fn new(backend: &B) -> Self {
        let init = &mut Init::new(backend, 3);
        Gan {
            noise: Noise::new(init).unwrap(),
            generator: Linear::new(init, 4, 64).unwrap(),
            critic: Sequential::new()
                .push(Flatten::default())
                .push(Linear::new(init, 64, 1).unwrap()),
        }
    }

    fn fakes(&self, count: usize) -> Result<Tensor<B>> {
        self.generator.forward(&self.noise.randn(&[count, 4], DType::F32)?)
    }
}

fn criticise<B: Backend>(gan: &Gan<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let real = gan.critic.forward(&batch.inputs)?.mean(&[], false)?;
    let fake = gan.critic.forward(&gan.fakes(batch.labels.size())?)?.mean(&[], false)?;
    let output = Output::new(fake.sub(&real)?);
    Ok(output.part("real", &real).part("fake", &fake))
}

fn generate<B: Backend>(gan: &Gan<B>, batch: &LabelledOn<B>) -> Result<Output<B>> {
    let fake = gan.critic.forward(&gan.fakes(batch.labels.size())?)?.mean(&[], false)?;
    Ok(Output::new(fake.mul_scalar(-1.0)?))
}

/// The parameters of the last layer.
fn dense(model: &Net<Cpu>) -> Vec<f64> {
    let named = model.named_parameters();
    let dense = named.iter().filter(|(name, _)| name.starts_with("dense"));
    dense.flat_map(|(_, p)| p.to_f64().unwrap()).collect()
}

fn options() -> TrainOptions {
    TrainOptions {
        epochs: 2,
        clip: Some(Clip::Value(0.5)),
        ..Default::default()
    }
}

/// The trainer's steps are those of a loop that is written out: three updates of the critic for one of the generator, each with
/// its own rate.
#[test]
fn phases_are_the_updates_of_a_loop_by_hand() {
    let (cpu, data) = (Cpu::new(), loader(images(36, 0), 4, true, 0));
    let rates = |lr| Schedule::Cosine {
        lr,
        min: 0.0,
        steps: 20,
    };
    let mut trained = Gan::new(&cpu);
    let (mut of_critic, mut of_generator) = (Adam::new(1e-2), Sgd::new(0.1));
    let phases = vec![
        Phase::new("critic", &mut of_critic, criticise)
            .trains(|name| name.starts_with("critic."))
            .schedule(rates(1e-2)),
        Phase::new("generator", &mut of_generator, generate)
            .trains(|name| name.starts_with("generator."))
            .every(3),
    ];
    let mut trainer = Trainer::new(&cpu, options()).schedule(rates(0.1));
    let report = trainer.fit_phases(&mut trained, phases, &data, None).unwrap();
    assert_eq!((report.steps, report.execution.eager), (18, 18 + 6));

    let mut by_hand = Gan::new(&cpu);
    let (mut of_critic, mut of_generator) = (Adam::new(1e-2), Sgd::new(0.1));
    let (mut number, mut generated, mut fakes) = (0, 0, 0.0);
    for epoch in 0..2 {
        for host in data.epoch(epoch).unwrap() {
            let batch = host.unwrap().to_device(&cpu).unwrap();
            by_hand.generator.freeze();
            let output = criticise(&by_hand, &batch).unwrap();
            fakes += f64::from(u8::from(epoch == 1)) * output.parts[1].1.item().unwrap();
            let mut grads = output.loss.backward().unwrap();
            grads.clip_value(by_hand.parameters(), 0.5).unwrap();
            rates(1e-2)
                .apply(number, &mut of_critic as &mut dyn Optimizer<Cpu>)
                .unwrap();
            of_critic.step(&mut by_hand, &grads).unwrap();
            by_hand.generator.unfreeze();
            number += 1;
            if number % 3 > 0 {
                continue;
            }
            by_hand.critic.freeze();
            let mut grads = generate(&by_hand, &batch).unwrap().loss.backward().unwrap();
            grads.clip_value(by_hand.parameters(), 0.5).unwrap();
            rates(0.1)
                .apply(generated, &mut of_generator as &mut dyn Optimizer<Cpu>)
                .unwrap();
            of_generator.step(&mut by_hand, &grads).unwrap();
            by_hand.critic.unfreeze();
            generated += 1;
        }
    }
    assert!(bytes(&trained) == bytes(&by_hand));
    assert!(
        trained.parameters().iter().all(|p| p.is_trainable()),
        "every parameter is as trainable as before"
    );

    let last = &report.history.epochs()[1];
    assert!((last.train["critic/fake"] - fakes / 9.0).abs() < 1e-6);
    let (loss, real) = (last.train["critic/loss"], last.train["critic/real"]);
    assert!((loss - (last.train["critic/fake"] - real)).abs() < 1e-5);
    assert!(last.train.contains_key("generator/loss") && !last.best);
    assert_eq!(last.lrs["generator"], rates(0.1).lr(5));
    assert_eq!(last.lr, last.lrs["critic"]);
}

#[test]
fn accumulated_batches_are_one_batch_to_every_phase() {
    let cpu = Cpu::new();
    let run = |batch: usize, accumulate: usize| {
        let mut model = Net::new(&cpu, 1);
        let (mut first, mut second) = (Sgd::new(0.1).momentum(0.5), Sgd::new(0.05));
        let phases = vec![
            Phase::new("first", &mut first, step).trains(|name| name.starts_with("conv")),
            Phase::new("second", &mut second, step).trains(|name| name.starts_with("dense")),
        ];
        let options = TrainOptions {
            accumulate,
            ..Default::default()
        };
        let data = loader(images(24, 0), batch, false, 0);
        Trainer::new(&cpu, options)
            .fit_phases(&mut model, phases, &data, None)
            .unwrap();
        model
            .parameters()
            .into_iter()
            .flat_map(|p| p.to_f64().unwrap())
            .collect::<Vec<_>>()
    };
    let (whole, parts) = (run(12, 1), run(4, 3));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn a_skipped_phase_leaves_its_parameters_alone() {
    let cpu = Cpu::new();
    let mut model = Net::new(&cpu, 1);
    let before = dense(&model);
    let (mut first, mut second) = (Sgd::new(0.1), Sgd::new(0.1));
    let overflowing = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        Ok(Output::new(step(model, batch)?.loss.mul_scalar(f64::INFINITY)?))
    };
    let phases = vec![
        Phase::new("good", &mut first, step).trains(|name| name.starts_with("conv")),
        Phase::new("bad", &mut second, overflowing).trains(|name| name.starts_with("dense")),
    ];
    let options = TrainOptions {
        non_finite: NonFinite::Skip { in_a_row: 10 },
        ..Default::default()
    };
    let data = loader(images(16, 0), 4, false, 0);
    let report = Trainer::new(&cpu, options)
        .fit_phases(&mut model, phases, &data, None)
        .unwrap();
    assert_eq!((report.steps, report.execution.eager), (0, 8));
    assert_eq!(report.history.epochs()[0].skipped, 4);
    assert_eq!(dense(&model), before);
}

#[test]
fn a_stop_between_phases_ends_after_a_whole_step() {
    let (cpu, stop) = (Cpu::new(), StopHandle::new());
    let (mut first, mut second) = (Sgd::new(0.1), Sgd::new(0.1));
    let ran = Cell::new(0);
    let stopping = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        stop.request();
        step(model, batch)
    };
    let counted = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        ran.set(ran.get() + 1);
        step(model, batch)
    };
    let phases = vec![
        Phase::new("a", &mut first, stopping),
        Phase::new("b", &mut second, counted),
    ];
    let mut trainer = Trainer::new(&cpu, TrainOptions::default()).stop_handle(stop.clone());
    let data = loader(images(16, 0), 4, false, 0);
    let report = trainer.fit_phases(&mut Net::new(&cpu, 1), phases, &data, None).unwrap();
    assert_eq!((report.steps, ran.get()), (1, 1));
}

#[test]
fn wrong_phases_are_refused() {
    let (cpu, data) = (Cpu::new(), loader(images(8, 0), 4, false, 0));
    let refused = |phases: Vec<Phase<'_, Cpu, Net<Cpu>, _>>, why: &str| {
        let error = Trainer::new(&cpu, options())
            .fit_phases(&mut Net::new(&cpu, 1), phases, &data, None)
            .unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    let (mut a, mut b) = (Sgd::new(0.1), Sgd::new(0.1));
    refused(Vec::new(), "phases = 0");
    refused(
        vec![Phase::new("x", &mut a, step), Phase::new("x", &mut b, step)],
        "`x` twice",
    );
    refused(vec![Phase::new("x", &mut a, step).every(0)], "every = 0");
    refused(
        vec![Phase::new("x", &mut a, step).trains(|_| false)],
        "no parameter in phase `x`",
    );
    // Both would follow a loss that has another name here.
    let patient = TrainOptions {
        patience: Some(1),
        ..options()
    };
    let error = Trainer::new(&cpu, patient)
        .fit_phases(&mut Net::new(&cpu, 1), vec![Phase::new("x", &mut a, step)], &data, None)
        .unwrap_err();
    assert!(matches!(error, TrainError::UnknownMetric { .. }), "{error}");
}

/// The largest prediction, gathered batch by batch.
#[derive(Default)]
struct Largest {
    seen: Vec<(Vec<f64>, Vec<usize>)>,
    training: bool,
}

impl Metric<Cpu> for Largest {
    fn name(&self) -> String {
        "largest".to_string()
    }
    fn reads(&self) -> &[&'static str] {
        &["predictions"]
    }
    fn measure(&self, output: &Output<Cpu>) -> Result<Tensor<Cpu>> {
        Ok(output.floats("predictions")?.clone())
    }
    fn reduction(&self) -> Reduction {
        Reduction::Gather
    }
    fn in_training(&self) -> bool {
        self.training
    }
    fn observe(&mut self, term: &[f64], shape: &[usize]) {
        self.seen.push((term.to_vec(), shape.to_vec()));
    }
    fn value(&mut self, _: &[f64], samples: u64) -> f64 {
        let seen = std::mem::take(&mut self.seen);
        assert_eq!(seen.iter().map(|(_, shape)| shape[0] as u64).sum::<u64>(), samples);
        seen.into_iter()
            .flat_map(|(term, _)| term)
            .fold(f64::NEG_INFINITY, f64::max)
    }
}

fn regression() -> Loader {
    let shape = Shape::new(&[1]).unwrap();
    let inputs: Vec<f32> = (0..10).map(|i| i as f32).collect();
    let targets = inputs.iter().map(|x| 2.0 * x).collect();
    let data = Arrays::new(shape, inputs, Labels::Targets(targets, 1)).unwrap();
    let options = LoaderOptions {
        batch_size: 4,
        ..Default::default()
    };
    Loader::new(Arc::new(data), options).unwrap()
}

fn regress(model: &Linear<Cpu>, batch: &LabelledOn<Cpu>) -> Result<Output<Cpu>> {
    let predictions = model.forward(&batch.inputs)?;
    let targets = batch.targets.as_ref().expect("the data has targets");
    let loss = predictions.mse_loss(targets, kiln_nn::Reduction::Mean)?;
    Ok(Output::new(loss).with_predictions(predictions, targets))
}

#[test]
fn gathered_metrics_see_every_batch() {
    let cpu = Cpu::new();
    let run = |training: bool, valid: bool| {
        let (mut model, data) = (Linear::new(&mut Init::new(&cpu, 0), 1, 1).unwrap(), regression());
        let largest = Largest {
            training,
            ..Default::default()
        };
        let mut trainer = Trainer::new(&cpu, TrainOptions::default()).metric(largest);
        trainer.fit(&mut model, &mut Sgd::new(0.0), regress, &data, valid.then_some(&data))
    };
    let record = run(true, true).unwrap().history.last().unwrap().clone();
    assert_eq!(record.train["largest"], record.valid.unwrap()["largest"]);
    let record = run(false, true).unwrap().history.last().unwrap().clone();
    assert!(!record.train.contains_key("largest") && record.valid.unwrap().contains_key("largest"));
    let error = run(false, false).unwrap_err();
    assert!(
        matches!(&error, TrainError::NotMeasured { metric, .. } if metric == "largest"),
        "{error}"
    );
}

#[test]
fn a_validation_may_have_data_and_values_of_its_own() {
    let (cpu, data, other) = (Cpu::new(), loader(images(16, 0), 4, false, 0), regression());
    let mut gan = Gan::new(&cpu);
    let modes = RefCell::new(Vec::new());
    let valid = Validation::new(&other, |gan: &Gan<Cpu>, batch: &LabelledOn<Cpu>| {
        modes.borrow_mut().push(kiln_nn::is_grad_enabled());
        let spread = gan.fakes(batch.labels.size())?.std(&[], 1, false)?;
        Ok(Output::new(spread))
    });
    let (mut a, mut b) = (Adam::new(1e-3), Adam::new(1e-3));
    let phases = vec![
        Phase::new("critic", &mut a, criticise).trains(|name| name.starts_with("critic.")),
        Phase::new("generator", &mut b, generate).trains(|name| name.starts_with("generator.")),
    ];
    let options = TrainOptions {
        epochs: 3,
        monitor: Monitor::new("loss", Goal::Max),
        patience: Some(5),
        ..Default::default()
    };
    let report = Trainer::new(&cpu, options)
        .fit_phases(&mut gan, phases, &data, Some(&valid))
        .unwrap();
    let spreads: Vec<f64> = report
        .history
        .epochs()
        .iter()
        .map(|e| e.valid.as_ref().unwrap()["loss"])
        .collect();
    assert!(spreads.iter().all(|s| s.is_finite()) && report.best().is_some());
    assert_eq!(*modes.borrow(), [false; 9]);
}
