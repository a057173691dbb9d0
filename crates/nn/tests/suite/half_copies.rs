//! Copies of parameters in half precision, which updates write for mixed precision: they have the bits of a cast, whatever else happens
//! to the parameters.

use kiln_core::philox::Key;
use kiln_cpu::Cpu;
use kiln_nn::layers::{LayerNorm, Linear, Relu};
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adagrad, Adam, AdamW, AveragedModel, Lion, Optimizer, Rmsprop, Sgd};
use kiln_nn::weights::{Metadata, write};
use kiln_nn::{
    DType, Indices, Init, Layer, LoadOptions, Module, Result, Rng, Sequential, StorageSnapshot, Tensor, autocast,
    no_grad,
};

type Net = Sequential<Cpu>;
type AnyOptimizer = Box<dyn Optimizer<Cpu>>;
/// An optimizer by name.
type Named = (&'static str, fn() -> AnyOptimizer);

const HALVES: [DType; 2] = [DType::BF16, DType::F16];

fn net(cpu: &Cpu) -> Result<Net> {
    let init = &mut Init::new(cpu, 3);
    Ok(Sequential::new()
        .push(Linear::new(init, 5, 9)?)
        .push(LayerNorm::new(init, &[9])?)
        .push(Relu)
        .push(Linear::new(init, 9, 4)?))
}

fn inputs(cpu: &Cpu) -> Result<Tensor<Cpu>> {
    Tensor::randn(cpu, &[6, 5], DType::F32, &mut Rng::new(7))
}

/// Makes a step in mixed precision; with `found_inf` the device decides about it.
fn step(model: &mut Net, optimizer: &mut dyn Optimizer<Cpu>, half: DType, found_inf: Option<i32>) -> Result<()> {
    let x = inputs(&Cpu::new())?;
    let labels = Indices::from_slice(x.backend(), &[0i32, 1, 2, 3, 1, 0], &[6])?;
    let loss = autocast(half, || model.forward(&x)?.cross_entropy(&labels))?;
    let grads = loss.backward()?;
    optimizer.prepare(model)?;
    let applied = match found_inf {
        Some(found) => optimizer.apply_if_finite(model, &grads, &Indices::from_slice(x.backend(), &[found], &[1])?)?,
        None => optimizer.apply(model, &grads)?,
    };
    optimizer.count(&applied);
    Ok(())
}

/// Writes every parameter with its own values, which no copy survives.
fn rewrite(model: &mut Net) -> Result<()> {
    for (_, p) in model.named_parameters_mut() {
        let same = p.detach().copy()?;
        p.assign(&same)?;
    }
    Ok(())
}

fn bits(model: &Net) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for (_, p) in model.named_parameters() {
        all.extend(p.to_vec::<f32>()?.into_iter().map(f32::to_bits));
    }
    Ok(all)
}

fn optimizers() -> Vec<Named> {
    vec![
        ("sgd", || Box::new(Sgd::new(0.1))),
        ("momentum", || Box::new(Sgd::new(0.1).momentum(0.9).nesterov(true))),
        ("adam", || Box::new(Adam::new(0.02))),
        ("amsgrad", || Box::new(Adam::new(0.02).amsgrad(true))),
        ("adamw", || Box::new(AdamW::new(0.02))),
        ("rmsprop", || Box::new(Rmsprop::new(0.02))),
        ("centered", || Box::new(Rmsprop::new(0.02).momentum(0.9).centered(true))),
        ("adagrad", || Box::new(Adagrad::new(0.1))),
        ("lion", || Box::new(Lion::new(0.01))),
    ]
}

#[test]
fn steps_have_the_bits_that_they_have_when_every_weight_is_cast() -> Result<()> {
    let cpu = Cpu::poisoned();
    for (name, optimizer) in optimizers() {
        for half in HALVES {
            for decided in [None, Some([1, 0, 0, 1, 1, 0])] {
                let (mut kept, mut cast) = (net(&cpu)?, net(&cpu)?);
                let (mut a, mut b) = (optimizer(), optimizer());
                for i in 0..6 {
                    let found_inf = decided.map(|found| found[i]);
                    rewrite(&mut cast)?;
                    step(&mut kept, &mut *a, half, found_inf)?;
                    step(&mut cast, &mut *b, half, found_inf)?;
                    assert_eq!(bits(&kept)?, bits(&cast)?, "{name} {half} {decided:?}, step {i}");
                }
                assert_ne!(bits(&kept)?, bits(&net(&cpu)?)?, "{name} {half} {decided:?}");
            }
        }
    }
    Ok(())
}

/// The outputs of the model, and those of a model that has never been changed and has the same values.
fn outputs(model: &Net, half: DType) -> Result<[Vec<u32>; 2]> {
    let x = inputs(&Cpu::new())?;
    let mut fresh = net(&Cpu::new())?;
    for ((_, to), (_, from)) in fresh.named_parameters_mut().into_iter().zip(model.named_parameters()) {
        to.assign(&from.detach().copy()?)?;
    }
    let of = |model: &Net| {
        let y = autocast(half, || no_grad(|| model.forward(&x)))?;
        Ok(y.to_dtype(DType::F32)?
            .to_vec::<f32>()?
            .into_iter()
            .map(f32::to_bits)
            .collect())
    };
    Ok([of(model)?, of(&fresh)?])
}

#[test]
fn whatever_changes_a_parameter_its_copy_is_not_out_of_date() -> Result<(), Box<dyn std::error::Error>> {
    let cpu = Cpu::poisoned();
    let path = std::env::temp_dir().join(format!("kiln-half-copies-{}.safetensors", std::process::id()));
    write(&path, &StateDict::of(&net(&cpu)?), &Metadata::new())?;
    for seed in 0..12 {
        let key = Key::new(seed, 0, 0);
        let mut draw = (0u64..).map(|i| key.word(i));
        let mut draw = |n: u32| draw.next().unwrap_or(0) % n;
        let mut model = net(&cpu)?;
        let (mut adam, mut lion) = (
            Adam::new(0.05).skip_missing_gradients(),
            Lion::new(0.05).skip_missing_gradients(),
        );
        let mut average = AveragedModel::ema(&model, 0.5)?;
        let (mut dicts, mut graphs, mut half) = (Vec::new(), Vec::new(), HALVES[0]);
        let mut done = Vec::new();
        for _ in 0..40 {
            let action = draw(14);
            done.push(action);
            match action {
                0..4 => step(&mut model, &mut adam, half, None)?,
                4 => step(&mut model, &mut adam, half, Some(draw(2) as i32))?,
                5 => step(&mut model, &mut lion, half, None)?,
                6 => {
                    let (_, p) = model.named_parameters_mut().remove(draw(3) as usize);
                    let other = p.detach().mul_scalar(-1.5)?;
                    p.assign(&other)?;
                }
                7 => drop(model.load(&path, LoadOptions::strict())?),
                8 => {
                    average.update(&model)?;
                    average.copy_to(&mut model)?;
                }
                9 => {
                    let saved = StateDict::of(&model);
                    step(&mut model, &mut adam, half, None)?;
                    model.load_state_dict(&saved, LoadOptions::strict())?;
                    dicts.push(saved);
                }
                10 => {
                    let (_, p) = model.named_parameters_mut().remove(draw(2) as usize);
                    let trains = p.is_trainable();
                    p.set_trainable(!trains);
                }
                11 => {
                    let mut copy = model.clone();
                    step(&mut copy, &mut Sgd::new(0.1).skip_missing_gradients(), half, None)?;
                    assert_eq!(
                        outputs(&copy, half)?[0],
                        outputs(&copy, half)?[1],
                        "a copy, {seed}: {done:?}"
                    );
                }
                12 => graphs.push(autocast(half, || model.forward(&inputs(&cpu)?))?),
                _ => {
                    half = HALVES[draw(2) as usize];
                    dicts.clear();
                    graphs.clear();
                }
            }
            for half in [half, HALVES[0], half] {
                let [found, expected] = outputs(&model, half)?;
                assert_eq!(found, expected, "{half}, seed {seed}: {done:?}");
            }
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

#[test]
fn a_recorded_step_finds_a_copy_where_it_was() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (mut model, mut adam) = (net(&cpu)?, Adam::new(0.05));
    let storage = |model: &Net| {
        let mut storage = StorageSnapshot::new();
        storage.module(model);
        storage
    };
    let before = storage(&model);
    step(&mut model, &mut adam, DType::BF16, None)?;
    let first = storage(&model);
    assert!(first.fixed() && first != before, "the copies are new");
    step(&mut model, &mut adam, DType::BF16, None)?;
    assert!(storage(&model) == first && first.fixed());
    // Values from elsewhere: out of date until the next step is prepared.
    rewrite(&mut model)?;
    assert!(storage(&model) != first);
    adam.prepare(&model)?;
    assert!(storage(&model) == first);
    // A replay would write what this graph holds.
    let held = autocast(DType::BF16, || model.forward(&inputs(&cpu)?))?;
    assert!(!storage(&model).fixed());
    drop(held);
    assert!(storage(&model).fixed());
    // Without mixed precision the copies go.
    let x = inputs(&cpu)?;
    for _ in 0..2 {
        let grads = model.forward(&x)?.square()?.sum(&[], false)?.backward()?;
        adam.step(&mut model, &grads)?;
    }
    assert!(storage(&model) == before);
    Ok(())
}

/// The copy of a frozen parameter is made where no step is recorded, stays where it is, and follows its parameter.
#[test]
fn a_recorded_step_finds_the_copy_of_a_frozen_parameter() -> Result<()> {
    let cpu = Cpu::poisoned();
    let (mut model, mut adam) = (net(&cpu)?, Adam::new(0.05));
    model.set_trainable(&|name| name == "3.weight", false);
    let storage = |model: &Net| {
        let mut storage = StorageSnapshot::new();
        storage.module(model);
        storage
    };
    (0..2).try_for_each(|_| step(&mut model, &mut adam, DType::BF16, None))?;
    let first = storage(&model);
    step(&mut model, &mut adam, DType::BF16, None)?;
    assert!(storage(&model) == first && first.fixed());
    rewrite(&mut model)?;
    assert!(storage(&model) != first);
    adam.prepare(&model)?;
    assert!(storage(&model) == first);
    // A graph keeps the values that it was made with.
    let held = autocast(DType::BF16, || model.forward(&inputs(&cpu)?))?;
    let (_, weight) = model.named_parameters_mut().remove(4);
    let other = weight.detach().mul_scalar(2.0)?;
    weight.assign(&other)?;
    adam.prepare(&model)?;
    assert!(storage(&model) != first);
    drop(held);
    for half in HALVES {
        let [found, expected] = outputs(&model, half)?;
        assert_eq!(found, expected, "{half}");
    }
    Ok(())
}
