//! The casts of weights that mixed precision makes in a step.

use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_nn::layers::{Linear, Relu};
use kiln_nn::optim::{Adam, Lion, Optimizer, Sgd};
use kiln_nn::{Init, Layer, Reduction, Rng, Sequential, Tensor, autocast};
use kiln_profile::{Mark, Profiled};

type B = Profiled<Cpu>;

/// The casts of every step, and the bytes that its ops move.
fn casts(optimizer: &mut dyn Optimizer<B>, steps: usize) -> Result<Vec<(usize, u64)>> {
    let watched = Profiled::new(&Cpu::new());
    let init = &mut Init::new(&watched, 0);
    let mut model = Sequential::new()
        .push(Linear::<B>::builder(8, 64).bias(false).build(init)?)
        .push(Relu)
        .push(Linear::<B>::builder(64, 4).bias(false).build(init)?);
    let x = Tensor::randn(&watched, &[3, 8], DType::F32, &mut Rng::new(1))?;
    let y = Tensor::zeros(&watched, &[3, 4], DType::F32)?;
    for _ in 0..steps {
        watched.step(|| {
            let loss = autocast(DType::BF16, || model.forward(&x)?.mse_loss(&y, Reduction::Mean))?;
            optimizer.step(&mut model, &loss.backward()?)
        })?;
    }
    let timeline = watched.timeline();
    let of = |marks: &[Mark]| {
        let ops = marks.iter().filter_map(|mark| match mark {
            Mark::Op { name, cost, .. } => Some((*name, cost.bytes)),
            _ => None,
        });
        let (mut casts, mut bytes) = (0, 0);
        for (name, moved) in ops {
            casts += usize::from(name == "cast");
            bytes += moved;
        }
        (casts, bytes)
    };
    Ok(timeline.steps.iter().map(|step| of(&step.marks)).collect())
}

#[test]
fn a_fused_update_spares_the_casts_of_weights() -> Result<()> {
    const WEIGHTS: u64 = 8 * 64 + 64 * 4;
    // The first step fills the two states of Adam.
    for (optimizer, filled) in [
        (&mut Sgd::new(0.1) as &mut dyn Optimizer<B>, 0),
        (&mut Adam::new(0.1), 8),
    ] {
        let steps = casts(optimizer, 3)?;
        // Two weights, which the first step reads from f32 and casts.
        assert_eq!(steps[0].0, steps[1].0 + 2, "{steps:?}");
        assert_eq!(steps[1], steps[2]);
        // A cast reads four bytes of an element and writes two; the update writes two more.
        assert_eq!(steps[0].1, steps[1].1 + (6 + filled) * WEIGHTS, "{steps:?}");
    }
    let composed = casts(&mut Lion::new(0.1), 3)?;
    assert_eq!(composed[0].0, composed[2].0, "{composed:?}");
    Ok(())
}
