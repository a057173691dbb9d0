//! Lion, for which no backend has a fused op, compared with its formula.

use kiln_cpu::Cpu;
use kiln_nn::optim::Lion;
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
fn steps<B: Backend>(backend: &B, dtype: DType) -> Vec<f64> {
    let tensor = |values: &[f64]| Tensor::from_f64(backend, values, &[4], dtype).unwrap();
    let mut net = Net {
        weight: Param::new(tensor(&START)),
    };
    let mut optimizer = Lion::new(0.1).betas(0.8, 0.95).weight_decay(0.1);
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

#[test]
fn ten_steps_follow_the_formula() {
    let (mut p, mut m) = (START, [0.0; 4]);
    for step in 0..10 {
        let lr = 0.1 / (step + 1) as f64;
        for (i, g) in gradient(step).into_iter().enumerate() {
            p[i] -= lr * ((0.8 * m[i] + 0.2 * g).signum() + 0.1 * p[i]);
            m[i] = 0.95 * m[i] + 0.05 * g;
        }
    }
    let near = |got: Vec<f64>, bound: f64| {
        for (g, w) in got.iter().zip(p) {
            assert!((g - w).abs() <= bound, "{got:?}, expected {p:?}");
        }
    };
    near(steps(&Cpu::poisoned(), DType::F64), 1e-14);
    near(steps(&Cpu::poisoned(), DType::F32), 1e-6);
    // bf16 rounds to 8 bits at each of the ten steps.
    near(steps(&Cpu::poisoned(), DType::BF16), 10.0 * 2.0 * 2f64.powi(-8));
    near(steps(&Reference, DType::F32), 1e-6);
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
