//! Lion and LAMB, which PyTorch does not have, compared with their formulas.

use kiln_cpu::Cpu;
use kiln_nn::optim::{Lamb, Lion};
use kiln_nn::{Backend, DType, Gradients, Module, Optimizer, Param, Tensor};
use kiln_testkit::Reference;

#[derive(Module)]
struct Net<B: Backend> {
    weight: Param<B>,
}

const START: [f64; 4] = [1.0, -2.0, 0.5, 0.0];

fn gradient(step: usize) -> Vec<f64> {
    (0..START.len())
        .map(|i| ((step * 7 + i * 3 + 1) as f64).sin())
        .collect()
}

/// The parameter after ten steps with a changing learning rate, in `dtype`.
fn steps<B: Backend>(backend: &B, dtype: DType, optimizer: &mut dyn Optimizer<B>) -> Vec<f64> {
    let tensor = |values: &[f64]| Tensor::from_f64(backend, values, &[4], dtype).unwrap();
    let mut net = Net {
        weight: Param::new(tensor(&START)),
    };
    for step in 0..10 {
        optimizer.set_lr(0.1 / (step + 1) as f64);
        let mut grads = Gradients::default();
        grads.insert(&net.weight, tensor(&gradient(step))).unwrap();
        optimizer.step(&mut net, &grads).unwrap();
    }
    let state = optimizer.state_dict().unwrap();
    assert!(
        state
            .float("weight.exp_avg")
            .is_some_and(|m| m.dtype() == DType::F64 || m.dtype() == DType::F32)
    );
    net.weight.to_f64().unwrap()
}

/// Compares ten steps in several dtypes and on two backends with `want`.
macro_rules! follows {
    ($optimizer:expr, $want:expr) => {{
        let near = |got: Vec<f64>, bound: f64| {
            for (g, w) in got.iter().zip($want) {
                assert!((g - w).abs() <= bound, "{got:?}, expected {:?}", $want);
            }
        };
        let cpu = Cpu::poisoned();
        near(steps(&cpu, DType::F64, &mut $optimizer), 1e-13);
        near(steps(&cpu, DType::F32, &mut $optimizer), 2e-6);
        // Rounded to 8 bits at each of the ten steps.
        near(steps(&cpu, DType::BF16, &mut $optimizer), 10.0 * 2.0 * 2f64.powi(-8));
        near(steps(&Reference, DType::F32, &mut $optimizer), 2e-6);
    }};
}

#[test]
fn lion_follows_its_formula() {
    let (mut p, mut m) = (START, [0.0; 4]);
    for step in 0..10 {
        let lr = 0.1 / (step + 1) as f64;
        for (i, g) in gradient(step).into_iter().enumerate() {
            p[i] -= lr * ((0.8 * m[i] + 0.2 * g).signum() + 0.1 * p[i]);
            m[i] = 0.95 * m[i] + 0.05 * g;
        }
    }
    follows!(Lion::new(0.1).betas(0.8, 0.95).weight_decay(0.1), p);
}

#[test]
fn lamb_follows_its_formula() {
    let norm = |v: &[f64; 4]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (mut p, mut m, mut v) = (START, [0.0; 4], [0.0; 4]);
    for step in 0..10 {
        let (lr, t) = (0.1 / (step + 1) as f64, step as i32 + 1);
        let mut direction = [0.0; 4];
        for (i, g) in gradient(step).into_iter().enumerate() {
            m[i] = 0.8 * m[i] + 0.2 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            let (mean, square) = (m[i] / (1.0 - 0.8f64.powi(t)), v[i] / (1.0 - 0.95f64.powi(t)));
            direction[i] = mean / (square.sqrt() + 1e-3) + 0.1 * p[i];
        }
        let trust = norm(&p) / norm(&direction);
        p.iter_mut().zip(direction).for_each(|(p, d)| *p -= lr * trust * d);
    }
    follows!(Lamb::new(0.1).betas(0.8, 0.95).eps(1e-3).weight_decay(0.1), p);
}

/// A parameter of zeros moves by the rate, and one without a gradient stays.
#[test]
fn lamb_has_no_ratio_of_zeros() {
    let cpu = Cpu::poisoned();
    for (start, grad) in [(0.0, 1.0), (1.0, 0.0)] {
        let of = |v: f64| Tensor::from_f64(&cpu, &[v], &[1], DType::F64).unwrap();
        let mut net = Net {
            weight: Param::new(of(start)),
        };
        let mut grads = Gradients::default();
        grads.insert(&net.weight, of(grad)).unwrap();
        Lamb::new(0.1).eps(1e-14).step(&mut net, &grads).unwrap();
        let moved = net.weight.item().unwrap() - start;
        assert!((moved + 0.1 * grad).abs() < 1e-12, "{start} {grad}: {moved}");
    }
}

#[test]
fn options_outside_their_domain_are_refused() {
    let refused = |mut lion: Lion<Cpu>| {
        let net = Net {
            weight: Param::new(Tensor::zeros(&Cpu::new(), &[1], DType::F32).unwrap()),
        };
        lion.prepare(&net).is_err()
    };
    assert!(refused(Lion::new(0.1).betas(1.0, 0.99)) && refused(Lion::new(0.1).betas(0.9, -0.1)));
    assert!(refused(Lion::new(0.1).weight_decay(-1.0)) && refused(Lion::new(f64::NAN)));
    assert!(!refused(Lion::new(0.1)));
}
