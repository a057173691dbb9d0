//! Hooks of layers, models with their optimizers, and moves to another device.

use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Dropout, Hooked, Linear, Relu};
use kiln_nn::optim::{Adam, ModelOptimizer, Optimizer, Sgd};
use kiln_nn::{DType, Error, Init, Layer, Module, Result, Rng, Sequential, Tensor};
use std::sync::{Arc, Mutex};

fn input(cpu: &Cpu) -> Result<Tensor<Cpu>> {
    Tensor::randn(cpu, &[5, 4], DType::F32, &mut Rng::new(1))
}

/// Hooks run in PyTorch's order: before the layer, after it, the gradient of its output, that of its input; those of one kind in
/// the order in which they were added.
#[test]
fn hooks_run_in_order() -> Result<()> {
    let cpu = Cpu::poisoned();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let seen = Arc::clone(&seen);
        move || seen.lock().expect("no panic").push(what)
    };
    let (a, b, c, d, e, f) = (note("a"), note("b"), note("c"), note("d"), note("e"), note("f"));
    let layer = Hooked::new(Linear::new(&mut Init::new(&cpu, 0), 4, 3)?)
        .grad_input_hook(move |g| {
            f();
            g.mul_scalar(2.0)
        })
        .forward_hook(move |_, _, _| {
            c();
            Ok(None)
        })
        .forward_pre_hook(move |_, _| {
            a();
            Ok(None)
        })
        .forward_pre_hook(move |layer, x| {
            assert_eq!(layer.weight.shape().dims(), [3, 4]);
            b();
            x.mul_scalar(3.0).map(Some)
        })
        .grad_output_hook(move |g| {
            d();
            g.mul_scalar(5.0)
        })
        .grad_output_hook(move |g| {
            e();
            Ok(g.clone())
        });
    let x = input(&cpu)?.requires_grad();
    let y = layer.clone().forward(&x)?;
    let plain = layer.layer.forward(&x.detach().mul_scalar(3.0)?)?;
    assert_eq!(y.to_f64()?, plain.to_f64()?);
    let grads = y.sum(&[], false)?.backward()?;
    assert_eq!(*seen.lock().expect("no panic"), ["a", "b", "c", "d", "e", "f"]);
    let sums = layer.layer.weight.detach().sum(&[0], false)?.to_f64()?;
    let found = grads.get(&x).expect("it is tracked").to_f64()?;
    for (i, found) in found.iter().enumerate() {
        assert!((found - 30.0 * sums[i % 4]).abs() < 1e-4, "{found}");
    }
    Ok(())
}

/// A hooked layer has the names of the layer in its dictionary and in errors, and its mode.
#[test]
fn hooked_layers_keep_their_names() -> Result<()> {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 0);
    let mut net = Sequential::new()
        .push_named("fc", Hooked::new(Linear::new(init, 4, 3)?))?
        .push_named("drop", Hooked::new(Dropout::new(init, 0.5)?))?;
    assert_eq!(net.named_parameters()[0].0, "fc.weight");
    let wrong = net.forward(&Tensor::zeros(&cpu, &[1, 5], DType::F32)?).unwrap_err();
    assert!(wrong.to_string().starts_with("in `fc` (Linear)"), "{wrong}");
    net.eval();
    let x = input(&cpu)?;
    assert_eq!(net.forward(&x)?.to_f64()?, net.forward(&x)?.to_f64()?);
    Ok(())
}

/// Gradients of two halves and one step are those of the whole; a failed step keeps them.
#[test]
fn a_model_with_its_optimizer_accumulates() -> Result<()> {
    let cpu = Cpu::poisoned();
    let x = input(&cpu)?;
    let make = || Linear::new(&mut Init::new(&cpu, 0), 4, 1);
    let mut tied = ModelOptimizer::new(make()?, Sgd::new(0.1));
    assert!(matches!(tied.step(), Err(Error::MissingGradient { .. })));
    for (start, length) in [(0, 2), (2, 3)] {
        tied.backward(|model| model.forward(&x.narrow(0, start, length)?)?.sum(&[], false))?;
    }
    tied.optimizer_mut().set_lr(-1.0);
    assert!(tied.step().is_err() && tied.grads().len() == 2);
    tied.optimizer_mut().set_lr(0.1);
    tied.step()?;
    assert!(tied.grads().is_empty());
    let mut whole = make()?;
    let grads = whole.forward(&x)?.sum(&[], false)?.backward()?;
    Sgd::new(0.1).step(&mut whole, &grads)?;
    for (a, b) in tied.model().weight.to_f64()?.iter().zip(whole.weight.to_f64()?) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    Ok(())
}

/// A model on another device trains on as it would have on the first, its optimizer's state with it.
#[test]
fn a_model_moves_to_another_device() -> Result<()> {
    let (cpu, other) = (Cpu::poisoned(), Cpu::poisoned());
    let init = &mut Init::new(&cpu, 0);
    let norm = BatchNorm::new(init, 8)?;
    let mut stays = (Linear::new(init, 4, 8)?, norm, Relu, Dropout::new(init, 0.3)?);
    let mut moves = stays.clone();
    let (mut adam, mut moved_adam) = (Adam::new(0.01), Adam::new(0.01));
    let step = |model: &mut (Linear<Cpu>, BatchNorm<Cpu>, Relu, Dropout<Cpu>), adam: &mut Adam<Cpu>, on: &Cpu| {
        let grads = model.forward(&input(on)?)?.square()?.sum(&[], false)?.backward()?;
        adam.step(model, &grads)
    };
    step(&mut stays, &mut adam, &cpu)?;
    step(&mut moves, &mut moved_adam, &cpu)?;
    moves.to_device(&other)?;
    let state = moved_adam.state_dict()?.to_device(&other)?;
    let mut moved_adam = Adam::new(0.01);
    moved_adam.load_state_dict(&state)?;
    step(&mut stays, &mut adam, &cpu)?;
    step(&mut moves, &mut moved_adam, &other)?;
    for ((name, a), (_, b)) in stays.state_dict().iter().zip(moves.state_dict().iter()) {
        let (a, b) = match (a, b) {
            (kiln_nn::module::Value::Float(a), kiln_nn::module::Value::Float(b)) => (a.to_f64()?, b.to_f64()?),
            (a, b) => {
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
                continue;
            }
        };
        assert_eq!(a, b, "{name}");
    }
    Ok(())
}
