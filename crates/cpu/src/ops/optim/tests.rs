use crate::{Cpu, CpuBuffer};
use half::bf16;
use kiln_core::ops::{AdagradParams, AdamParams, OptimOps, OptimSlot, RmspropParams, SgdParams};
use kiln_core::{DType, Float, Runtime};

const SCALARS: [f64; 4] = [0.05, 0.3, 0.7, 0.5];

/// A reference update: takes a parameter, its gradient and its state, updates the state and returns the new parameter.
type Reference<'a> = &'a dyn Fn(f64, f64, &mut [f64]) -> f64;

fn value(i: usize, salt: u64) -> f64 {
    let w = kiln_core::philox::Key::new(salt, 0, 0).word(i as u64);
    f64::from(w) / f64::from(u32::MAX) * 2.0 - 1.0
}

/// Compares three updates of parameters of several sizes with the reference.
fn check<T: Float>(
    states: usize,
    last: usize,
    update: impl Fn(&Cpu, &CpuBuffer, &mut [OptimSlot<'_, CpuBuffer>]),
    reference: Reference<'_>,
) {
    let cpu = Cpu::poisoned();
    let acc = <T::Acc as kiln_core::Element>::DTYPE;
    let scalars = match acc {
        DType::F64 => cpu.upload(&SCALARS),
        _ => cpu.upload(&SCALARS.map(|v| v as f32)),
    }
    .unwrap();
    // Half the distance between neighbouring values near 1, and the rounding errors of f32 arithmetic.
    let tolerance = match T::DTYPE {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        _ => 3.0 * 2f64.powi(-8),
    };
    let sizes = [1, 0, 33, 4096, 4097, last];
    let make = |n: usize, salt: u64| {
        cpu.upload(&(0..n).map(|i| T::of(value(i, salt))).collect::<Vec<T>>())
            .unwrap()
    };
    let mut params: Vec<CpuBuffer> = sizes.map(|n| make(n, 1)).into();
    let grads: Vec<CpuBuffer> = sizes.map(|n| make(n, 2)).into();
    let mut state: Vec<Vec<CpuBuffer>> = sizes
        .iter()
        .map(|&n| {
            let zeros = |_| match acc {
                DType::F64 => cpu.upload(&vec![0f64; n]).unwrap(),
                _ => cpu.upload(&vec![0f32; n]).unwrap(),
            };
            (0..states).map(zeros).collect()
        })
        .collect();
    for _ in 0..3 {
        let mut slots: Vec<_> = params
            .iter_mut()
            .zip(&grads)
            .zip(&mut state)
            .map(|((param, grad), state)| OptimSlot {
                param,
                half: None,
                grad,
                state: state.iter_mut().collect(),
            })
            .collect();
        update(&cpu, &scalars, &mut slots);
    }
    for (param, n) in params.iter().zip(sizes) {
        for (i, got) in param.as_slice::<T>().iter().enumerate() {
            let (mut want, mut s) = (T::of(value(i, 1)).f64(), vec![0.0; states]);
            for _ in 0..3 {
                want = reference(want, T::of(value(i, 2)).f64() * SCALARS[3], &mut s);
            }
            let error = (got.f64() - want).abs();
            assert!(
                error <= tolerance,
                "{} of {n}, element {i}: {got:?}, expected {want}",
                T::DTYPE
            );
        }
    }
}

fn every_dtype(
    states: usize,
    update: impl Fn(&Cpu, &CpuBuffer, &mut [OptimSlot<'_, CpuBuffer>]),
    reference: Reference<'_>,
) {
    // Sizes updated by one thread, and cut into tasks.
    for last in [20_011, super::SERIAL_THRESHOLD + 7] {
        check::<f64>(states, last, &update, reference);
        check::<f32>(states, last, &update, reference);
        check::<bf16>(states, last, &update, reference);
    }
}

#[test]
fn sgd_follows_its_formula() {
    let [lr, first, _, _] = SCALARS;
    for (momentum, nesterov) in [(0.0, 0), (0.9, 0), (0.9, 1)] {
        let p = SgdParams {
            momentum,
            dampening: 0.1,
            weight_decay: 0.02,
            nesterov,
            pad: 0,
        };
        let states = usize::from(momentum != 0.0);
        every_dtype(states, |cpu, s, slots| cpu.sgd(&p, s, slots).unwrap(), &|w, g, s| {
            let g = g + 0.02 * w;
            assert_ne!(first, 1.0);
            let step = match s {
                [v] => {
                    *v = momentum * *v + 0.9 * g;
                    if nesterov == 1 { g + momentum * *v } else { *v }
                }
                _ => g,
            };
            w - lr * step
        });
    }
}

/// At the first step the momentum buffer is the gradient itself, without dampening.
#[test]
fn momentum_begins_with_the_gradient() {
    let cpu = Cpu::new();
    let p = SgdParams {
        momentum: 0.9,
        dampening: 0.5,
        weight_decay: 0.0,
        nesterov: 0,
        pad: 0,
    };
    let (mut w, g) = (cpu.upload(&[1f64]).unwrap(), cpu.upload(&[2f64]).unwrap());
    let mut v = cpu.upload(&[f64::NAN]).unwrap();
    let scalars = cpu.upload(&[0.1, 1.0, 0.0, 1.0]).unwrap();
    cpu.sgd(
        &p,
        &scalars,
        &mut [OptimSlot {
            param: &mut w,
            half: None,
            grad: &g,
            state: vec![&mut v],
        }],
    )
    .unwrap();
    assert_eq!((w.as_slice::<f64>(), v.as_slice::<f64>()), (&[0.8][..], &[2.0][..]));
}

#[test]
fn adam_follows_its_formula() {
    let [lr, c1, c2, _] = SCALARS;
    for (decoupled, amsgrad) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let p = AdamParams {
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-3,
            weight_decay: 0.02,
            decoupled,
            amsgrad,
        };
        let states = 2 + amsgrad as usize;
        every_dtype(states, |cpu, s, slots| cpu.adam(&p, s, slots).unwrap(), &|w, g, s| {
            let (w, g) = if decoupled == 1 {
                (w - lr * 0.02 * w, g)
            } else {
                (w, g + 0.02 * w)
            };
            s[0] = 0.9 * s[0] + (1.0 - 0.9) * g;
            s[1] = 0.99 * s[1] + (1.0 - 0.99) * g * g;
            let v = if amsgrad == 1 {
                s[2] = s[2].max(s[1]);
                s[2]
            } else {
                s[1]
            };
            w - lr / c1 * s[0] / (v.sqrt() / c2 + 1e-3)
        });
    }
}

#[test]
fn rmsprop_follows_its_formula() {
    let lr = SCALARS[0];
    for (momentum, centered) in [(0.0, 0), (0.8, 0), (0.0, 1), (0.8, 1)] {
        let p = RmspropParams {
            alpha: 0.9,
            eps: 1e-2,
            weight_decay: 0.02,
            momentum,
            centered,
            pad: 0,
        };
        let states = 1 + usize::from(momentum != 0.0) + centered as usize;
        every_dtype(
            states,
            |cpu, s, slots| cpu.rmsprop(&p, s, slots).unwrap(),
            &|w, g, s| {
                let g = g + 0.02 * w;
                s[0] = 0.9 * s[0] + (1.0 - 0.9) * g * g;
                let mut mean = 0.0;
                if let (1, Some(a)) = (centered, s.last_mut()) {
                    *a = 0.9 * *a + (1.0 - 0.9) * g;
                    mean = *a;
                }
                let step = g / ((s[0] - mean * mean).sqrt() + 1e-2);
                if momentum == 0.0 {
                    return w - lr * step;
                }
                s[1] = momentum * s[1] + step;
                w - lr * s[1]
            },
        );
    }
}

/// A constant gradient has no variance, and `s − a²` is rounded to either side of zero.
#[test]
fn centered_rmsprop_stays_finite_under_a_constant_gradient() {
    let cpu = Cpu::new();
    let grads = [0.1f32, -0.3, 0.7, 1.0, 13.7, 1e-3];
    let scalars = cpu.upload(&[1e-3f32, 0.0, 0.0, 1.0]).unwrap();
    for momentum in [0.0, 0.9] {
        let p = RmspropParams {
            alpha: 0.99,
            eps: 1e-2,
            weight_decay: 0.0,
            momentum,
            centered: 1,
            pad: 0,
        };
        let (mut param, grad) = (cpu.upload(&[0f32; 6]).unwrap(), cpu.upload(&grads).unwrap());
        let states = 2 + usize::from(momentum != 0.0);
        let mut state: Vec<_> = (0..states).map(|_| cpu.upload(&[0f32; 6]).unwrap()).collect();
        let mut negative = false;
        for _ in 0..2000 {
            cpu.rmsprop(
                &p,
                &scalars,
                &mut [OptimSlot {
                    param: &mut param,
                    half: None,
                    grad: &grad,
                    state: state.iter_mut().collect(),
                }],
            )
            .unwrap();
            let (s, a) = (state[0].as_slice::<f32>(), state[states - 1].as_slice::<f32>());
            negative |= s.iter().zip(a).any(|(s, a)| s - a * a < 0.0);
        }
        assert!(negative, "no difference was below zero: the clamp is not tested");
        for (w, g) in param.as_slice::<f32>().iter().zip(grads) {
            assert!(
                w.is_finite() && w * g < 0.0,
                "momentum {momentum}, gradient {g}: parameter {w}"
            );
        }
    }
}

#[test]
fn adagrad_follows_its_formula() {
    let p = AdagradParams {
        eps: 1e-3,
        weight_decay: 0.02,
    };
    every_dtype(1, |cpu, s, slots| cpu.adagrad(&p, s, slots).unwrap(), &|w, g, s| {
        let g = g + 0.02 * w;
        s[0] += g * g;
        w - SCALARS[0] * g / (s[0].sqrt() + 1e-3)
    });
}

#[test]
fn no_parameters_are_no_work() {
    let cpu = Cpu::new();
    let scalars = cpu.upload(&[0.1f32, 1.0, 1.0, 1.0]).unwrap();
    assert!(
        cpu.adagrad(
            &AdagradParams {
                eps: 1e-8,
                weight_decay: 0.0
            },
            &scalars,
            &mut []
        )
        .is_ok()
    );
}
