//! The casts of weights that mixed precision makes in a step.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_nn::layers::{Linear, Relu};
use kiln_nn::optim::{Adam, Lion, Optimizer, Sgd};
use kiln_nn::{Init, Layer, Module, Reduction, Rng, Sequential, Tensor, autocast, no_grad};
use kiln_profile::{Mark, Profiled};

type B = Profiled<Cpu>;

fn net(watched: &B) -> Result<Sequential<B>> {
    let init = &mut Init::new(watched, 0);
    Ok(Sequential::new()
        .push(Linear::<B>::builder(8, 64).bias(false).build(init)?)
        .push(Relu)
        .push(Linear::<B>::builder(64, 4).bias(false).build(init)?))
}

/// The casts of every step, and the bytes that its ops move; with `frozen` the first weight is not trained.
fn casts(optimizer: &mut dyn Optimizer<B>, steps: usize, frozen: bool) -> Result<Vec<(usize, u64)>> {
    let watched = Profiled::new(&Cpu::new());
    let mut model = net(&watched)?;
    model.set_trainable(&|name| name == "0.weight", !frozen);
    let x = Tensor::randn(&watched, &[3, 8], DType::F32, &mut Rng::new(1))?;
    let y = Tensor::zeros(&watched, &[3, 4], DType::F32)?;
    for _ in 0..steps {
        watched.step(|| {
            let loss = autocast(DType::BF16, || model.forward(&x)?.mse_loss(&y, Reduction::Mean))?;
            optimizer.step(&mut model, &loss.backward()?)
        })?;
    }
    Ok(watched
        .timeline()
        .steps
        .iter()
        .map(|step| counted(&step.marks))
        .collect())
}

/// The casts, and the bytes that all ops move.
fn counted(marks: &[Mark]) -> (usize, u64) {
    let ops = marks.iter().filter_map(|mark| match mark {
        Mark::Op { name, cost, .. } => Some((*name, cost.bytes)),
        _ => None,
    });
    ops.fold((0, 0), |(casts, bytes), (name, moved)| {
        (casts + usize::from(name == "cast"), bytes + moved)
    })
}

#[test]
fn a_fused_update_spares_the_casts_of_weights() -> Result<()> {
    const WEIGHTS: u64 = 8 * 64 + 64 * 4;
    // The first step fills the two states of Adam.
    for (optimizer, filled) in [
        (&mut Sgd::new(0.1) as &mut dyn Optimizer<B>, 0),
        (&mut Adam::new(0.1), 8),
    ] {
        let steps = casts(optimizer, 3, false)?;
        // Two weights, which the first step reads from f32 and casts.
        assert_eq!(steps[0].0, steps[1].0 + 2, "{steps:?}");
        assert_eq!(steps[1], steps[2]);
        // A cast reads four bytes of an element and writes two; the update writes two more.
        assert_eq!(steps[0].1, steps[1].1 + (6 + filled) * WEIGHTS, "{steps:?}");
    }
    let composed = casts(&mut Lion::new(0.1), 3, false)?;
    assert_eq!(composed[0].0, composed[2].0, "{composed:?}");
    Ok(())
}

/// A weight that no update changes is cast once, whichever way others are updated.
#[test]
fn a_frozen_weight_is_cast_once() -> Result<()> {
    for (optimizer, updated) in [
        (&mut Sgd::new(0.1) as &mut dyn Optimizer<B>, 0),
        (&mut Lion::new(0.1), 1),
    ] {
        let steps = casts(optimizer, 3, true)?;
        // The first step casts both weights as it reads them, and keeps the frozen one's cast by another.
        assert_eq!(steps[0].0, steps[1].0 + 3 - updated, "{steps:?}");
        assert_eq!(steps[1], steps[2]);
    }
    Ok(())
}

/// In a region of mixed precision without gradients a weight is cast once, as with them; it is cast anew where it leads to its gradient.
#[test]
fn a_weight_is_cast_once_in_a_region_without_gradients() -> Result<()> {
    let watched = Profiled::new(&Cpu::new());
    let model = net(&watched)?;
    let x = Tensor::randn(&watched, &[3, 8], DType::BF16, &mut Rng::new(1))?;
    let forwards = |times: usize| {
        watched.step(|| {
            autocast(DType::BF16, || {
                no_grad(|| (0..times).try_for_each(|_| model.forward(&x).map(drop)))
            })
        })
    };
    forwards(1)?;
    forwards(5)?;
    let counts: Vec<usize> = watched.timeline().steps.iter().map(|s| counted(&s.marks).0).collect();
    assert_eq!(counts, [2, 2]);
    let loss = autocast(DType::BF16, || {
        no_grad(|| model.forward(&x))?;
        model.forward(&x)?.square()?.sum(&[], false)
    })?;
    let grads = loss.backward()?;
    assert!(model.parameters().iter().all(|p| grads.get(p).is_some()));
    Ok(())
}
