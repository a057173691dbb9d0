//! Memory that stays in place from step to step, which a captured step relies on.

use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Dropout, Linear};
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adam, Applied, AveragedModel, Group, Sgd};
use kiln_nn::{
    Counter, DType, Error, Gradients, Indices, Init, Layer, LoadOptions, Module, Optimizer, Result, Rng, State,
    StorageSnapshot, Tensor,
};

#[derive(Clone, Module)]
struct Net<B: kiln_nn::Backend> {
    dense: Linear<B>,
    norm: BatchNorm<B>,
    dropout: Dropout<B>,
}

impl<B: kiln_nn::Backend> Layer<B> for Net<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.dropout.forward(&self.norm.forward(&self.dense.forward(x)?)?)
    }
}

fn net(cpu: &Cpu) -> Net<Cpu> {
    let init = &mut Init::new(cpu, 0);
    Net {
        dense: Linear::new(init, 5, 3).unwrap(),
        norm: BatchNorm::new(init, 3).unwrap(),
        dropout: Dropout::new(init, 0.3).unwrap(),
    }
}

fn gradients(model: &Net<Cpu>, x: &Tensor<Cpu>) -> Gradients<Cpu> {
    let y = model.forward(x).unwrap();
    y.mul(&y).unwrap().sum(&[], false).unwrap().backward().unwrap()
}

fn storage(model: &Net<Cpu>, optimizer: &dyn Optimizer<Cpu>) -> StorageSnapshot {
    let mut storage = StorageSnapshot::new();
    storage.module(model);
    optimizer.storage(&mut storage);
    storage
}

fn values(model: &Net<Cpu>) -> Vec<f64> {
    let all = model.named_parameters();
    all.iter().flat_map(|(_, p)| p.to_f64().unwrap()).collect()
}

#[test]
fn steps_stay_in_place_unless_something_shares_their_memory() {
    let cpu = Cpu::new();
    let x = Tensor::randn(&cpu, &[7, 5], DType::F32, &mut Rng::new(1)).unwrap();
    let (mut model, mut adam) = (net(&cpu), Adam::new(1e-2));
    let mut step = |model: &mut Net<Cpu>| {
        let grads = gradients(model, &x);
        adam.step(model, &grads).unwrap();
        storage(model, &adam)
    };
    let first = step(&mut model);
    assert!(first.fixed());
    assert_eq!(step(&mut model), first);

    let snapshot = StateDict::of(&model);
    let mut shared = StorageSnapshot::new();
    shared.module(&model);
    assert!(!shared.fixed());
    let moved = step(&mut model);
    assert!(moved.fixed() && moved != first);
    drop(snapshot);

    let copied = StateDict::of(&model).copy().unwrap();
    let before = copied.float("dense.weight").unwrap().to_f64().unwrap();
    assert_eq!(step(&mut model), moved);
    assert_eq!(copied.float("dense.weight").unwrap().to_f64().unwrap(), before);
    assert_ne!(model.dense.weight.to_f64().unwrap(), before);
}

#[test]
fn what_a_recording_depends_on_is_part_of_the_places() {
    let cpu = Cpu::new();
    let mut model = net(&cpu);
    let of = |model: &Net<Cpu>| {
        let mut storage = StorageSnapshot::new();
        storage.module(model);
        storage
    };
    let training = of(&model);
    model.eval();
    assert_ne!(of(&model), training);
    model.train();
    assert_eq!(of(&model), training);
    model.set_trainable(&|name| name == "dense.bias", false);
    assert_ne!(of(&model), training);
    // Memory that a step only reads may be shared.
    let held = model.dense.bias.as_ref().unwrap().tensor().clone();
    assert!(of(&model).fixed());
    drop(held);

    // New optimizer state and a group of parameters that splits change the snapshot.
    let mut sgd = Sgd::new(0.1).momentum(0.9).skip_missing_gradients();
    let x = Tensor::randn(&cpu, &[7, 5], DType::F32, &mut Rng::new(1)).unwrap();
    model.unfreeze();
    sgd.prepare(&model).unwrap();
    let before = storage(&model, &sgd);
    let mut some = gradients(&model, &x);
    some.remove(&model.dense.weight);
    let applied = sgd.apply(&mut model, &some).unwrap();
    assert_eq!(applied.names().len(), 3);
    let after = storage(&model, &sgd);
    assert_ne!(after, before);
    sgd.count(&applied);
    sgd.prepare(&model).unwrap();
    assert_ne!(storage(&model, &sgd), after);
}

#[test]
fn a_step_is_prepare_apply_and_count() {
    let cpu = Cpu::new();
    let x = Tensor::randn(&cpu, &[7, 5], DType::F32, &mut Rng::new(1)).unwrap();
    let adam = || Adam::new(1e-2).group(Group::new(|n| n.ends_with("bias")).lr_factor(3.0).weight_decay(0.1));
    let (mut whole, mut apart) = (adam(), adam());
    let (mut a, mut b) = (net(&cpu), net(&cpu));
    for step in 0..5 {
        whole.set_lr(1e-2 / f64::from(step + 1));
        apart.set_lr(1e-2 / f64::from(step + 1));
        let grads = gradients(&a, &x);
        whole.step(&mut a, &grads).unwrap();
        // The learning rate is the one at the time of `prepare`.
        apart.prepare(&b).unwrap();
        apart.set_lr(7.0);
        let grads = gradients(&b, &x);
        let applied = apart.apply(&mut b, &grads).unwrap();
        apart.count(&applied);
        assert_eq!(values(&a), values(&b));
    }
    let steps = |o: &dyn Optimizer<Cpu>| {
        o.state_dict()
            .unwrap()
            .int("dense.weight.step")
            .unwrap()
            .to_vec::<i32>()
    };
    assert_eq!((steps(&whole), steps(&apart)), (Ok(vec![5]), Ok(vec![5])));
    // A replay counts a step for the parameters that its recording updated.
    apart.count(&Applied::new(vec!["dense.weight".into(), "nowhere".into()]));
    assert_eq!(steps(&apart), Ok(vec![6]));

    let mut unprepared = adam();
    let error = unprepared.apply(&mut b, &gradients(&a, &x)).unwrap_err();
    assert!(matches!(error, Error::MissingGradient { .. }), "{error}");
    let grads = gradients(&b, &x);
    let error = unprepared.apply(&mut b, &grads).unwrap_err();
    assert!(error.to_string().contains("prepare"), "{error}");
}

#[test]
fn gradients_of_a_scaled_loss_are_scaled_back() {
    let cpu = Cpu::new();
    let x = Tensor::randn(&cpu, &[7, 5], DType::F32, &mut Rng::new(1)).unwrap();
    let train = |factor: f64| {
        let (mut model, mut sgd) = (net(&cpu), Sgd::new(0.1).momentum(0.9).weight_decay(0.01));
        sgd.set_grad_scale(1.0 / factor);
        for _ in 0..3 {
            let mut grads = gradients(&model, &x);
            // The factors are powers of two, so that nothing rounds.
            grads.scale(factor).unwrap();
            sgd.step(&mut model, &grads).unwrap();
        }
        values(&model)
    };
    assert_eq!(train(1024.0), train(1.0));
    let mut sgd = Sgd::new(0.1);
    sgd.set_grad_scale(f64::NAN);
    let mut model = net(&cpu);
    let grads = gradients(&model, &x);
    let error = sgd.step(&mut model, &grads).unwrap_err();
    assert!(error.to_string().contains("grad_scale"), "{error}");
}

#[test]
fn inputs_are_written_in_place() {
    let cpu = Cpu::new();
    let mut x = Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2]).unwrap();
    let mut labels = Indices::from_slice(&cpu, &[1i32, 2, 3], &[3]).unwrap();
    let of = |x: &Tensor<Cpu>, labels: &Indices<Cpu>| {
        let mut storage = StorageSnapshot::new();
        storage.tensor(x);
        storage.indices(labels);
        storage
    };
    let before = of(&x, &labels);
    x.write(&[3.0f32, 4.0]).unwrap();
    labels.write(&[4i32, 5, 6]).unwrap();
    assert_eq!(of(&x, &labels), before);
    assert_eq!(x.to_vec::<f32>(), Ok(vec![3.0, 4.0]));
    assert_eq!(labels.to_vec::<i32>(), Ok(vec![4, 5, 6]));
    for error in [
        x.write(&[1.0f64, 2.0]).unwrap_err(),
        x.write(&[1.0f32]).unwrap_err(),
        labels.write(&[1u8, 2, 3]).unwrap_err(),
        labels.write::<i32>(&[]).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("write: "), "{error}");
    }
    // Tensors that share the memory keep the old values.
    let (kept, copy) = (x.clone(), x.copy().unwrap());
    x.write(&[5.0f32, 6.0]).unwrap();
    assert_eq!(
        (kept.to_vec::<f32>(), copy.to_vec::<f32>()),
        (Ok(vec![3.0, 4.0]), Ok(vec![3.0, 4.0]))
    );
}

#[test]
fn a_running_sum_stays_in_place() {
    let cpu = Cpu::poisoned();
    let term = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0], &[3]).unwrap();
    let sum = State::new(term.copy().unwrap());
    let of = |sum: &State<Cpu>| {
        let mut storage = StorageSnapshot::new();
        storage.state(sum);
        storage
    };
    let before = of(&sum);
    sum.add(&term).unwrap();
    assert_eq!(sum.get().to_vec::<f32>(), Ok(vec![2.0, 4.0, 6.0]));
    sum.fill(0.0).unwrap();
    assert_eq!(sum.get().to_vec::<f32>(), Ok(vec![0.0; 3]));
    assert_eq!(of(&sum), before);
    assert!(sum.add(&Tensor::ones(&cpu, &[2], DType::F32).unwrap()).is_err());
    assert!(sum.add(&Tensor::ones(&cpu, &[3], DType::F64).unwrap()).is_err());
    let counter = Counter::new(&cpu).unwrap();
    counter.tick().unwrap();
    assert_eq!(counter.get().to_vec::<i32>(), Ok(vec![1]));
}

/// Averages that a model takes for a while, and its own values after them, come into the memory of its parameters and buffers.
#[test]
fn values_that_are_loaded_stay_in_place() {
    let cpu = Cpu::new();
    let mut model = net(&cpu);
    let first = storage(&model, &Sgd::new(0.1));
    let mut average = AveragedModel::ema(&model, 0.5).unwrap().use_buffers();
    let own = StateDict::of(&model).copy().unwrap();
    for _ in 0..2 {
        average.update(&model).unwrap();
        average.copy_to(&mut model).unwrap();
        assert!(storage(&model, &Sgd::new(0.1)) == first);
        model.load_state_dict(&own, LoadOptions::strict()).unwrap();
        assert!(first.fixed() && storage(&model, &Sgd::new(0.1)) == first);
    }
}
