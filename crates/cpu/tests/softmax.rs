//! Softmax and log-softmax against f64 loops.

mod common;

use common::{at_threads, close, random};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{DType, Runtime, Shape};
use kiln_cpu::Cpu;
use proptest::prelude::*;

/// The output and the gradient that `g` gives.
fn run(x: &[f32], g: &[f32], dims: [usize; 3], log: bool) -> (Vec<f32>, Vec<f32>) {
    let cpu = Cpu::poisoned();
    let p = SoftmaxParams::new("test", &Shape::new(&dims).unwrap(), 1, log).unwrap();
    let mut y = cpu.alloc(DType::F32, x.len()).unwrap();
    cpu.softmax(&p, &cpu.upload(x).unwrap(), &mut y).unwrap();
    let mut dx = cpu.alloc(DType::F32, x.len()).unwrap();
    cpu.softmax_grad(&p, &y, &cpu.upload(g).unwrap(), &mut dx).unwrap();
    (cpu.download(&y).unwrap(), cpu.download(&dx).unwrap())
}

fn oracle(x: &[f32], g: &[f32], [outer, n, inner]: [usize; 3], log: bool) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for o in 0..outer {
        for i in 0..inner {
            let at = |j: usize| (o * n + j) * inner + i;
            let m = (0..n).map(|j| f64::from(x[at(j)])).fold(f64::NEG_INFINITY, f64::max);
            let s: f64 = (0..n).map(|j| (f64::from(x[at(j)]) - m).exp()).sum();
            let p = |j: usize| (f64::from(x[at(j)]) - m).exp() / s;
            let total: f64 = (0..n).map(|j| f64::from(g[at(j)]) * if log { 1.0 } else { p(j) }).sum();
            for j in 0..n {
                let g = f64::from(g[at(j)]);
                y[at(j)] = if log { f64::from(x[at(j)]) - m - s.ln() } else { p(j) };
                dx[at(j)] = if log { g - p(j) * total } else { p(j) * (g - total) };
            }
        }
    }
    (y, dx)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_loops(
        outer in 0usize..6, n in prop::sample::select(vec![0usize, 1, 2, 10, 15, 16, 17, 127, 129]),
        inner in prop::sample::select(vec![1usize, 1, 2, 7, 127, 129]), log in any::<bool>(), scale in 0.1f32..40.0,
    ) {
        let dims = [outer, n, inner];
        let x: Vec<f32> = random(outer * n * inner, 1).into_iter().map(|v| v * scale).collect();
        let g = random(x.len(), 2);
        let ((y, dx), (want, dwant)) = (run(&x, &g, dims, log), oracle(&x, &g, dims, log));
        close(&y, &want, 2e-6, 1e-6);
        close(&dx, &dwant, 1e-5, 2e-5);
    }
}

#[test]
fn large_tensors_agree_at_any_number_of_threads() {
    for dims in [[3000, 10, 1], [3, 50_000, 1], [2, 300, 131]] {
        for log in [false, true] {
            let x = random(dims.iter().product(), 1);
            let g = random(x.len(), 2);
            let (want, dwant) = oracle(&x, &g, dims, log);
            close(&at_threads(|| run(&x, &g, dims, log).0), &want, 2e-6, 1e-6);
            close(&at_threads(|| run(&x, &g, dims, log).1), &dwant, 1e-5, 1e-5);
        }
    }
}

#[test]
fn extremes_stay_finite_and_masked_entries_vanish() {
    let x = [1e30, -1e30, 1e30, f32::NEG_INFINITY];
    let (y, _) = run(&x, &[1.0; 4], [1, 4, 1], false);
    assert_eq!(y, [0.5, 0.0, 0.5, 0.0]);
    let (y, _) = run(&x, &[1.0; 4], [1, 4, 1], true);
    close(&y[..1], &[-(2.0f64.ln())], 1e-6, 0.0);
    assert_eq!(y[3], f32::NEG_INFINITY);
    assert!(run(&[1.0, f32::NAN], &[1.0; 2], [1, 2, 1], false).0[0].is_nan());
    assert!(run(&[1.0, f32::NAN], &[1.0; 2], [1, 2, 1], true).0[0].is_nan());
}

#[test]
fn halves_round_once() {
    let cpu = Cpu::poisoned();
    let x: Vec<half::f16> = random(300, 4).into_iter().map(half::f16::from_f32).collect();
    let p = SoftmaxParams::new("test", &Shape::new(&[300]).unwrap(), 0, false).unwrap();
    let mut y = cpu.alloc(DType::F16, 300).unwrap();
    cpu.softmax(&p, &cpu.upload(&x).unwrap(), &mut y).unwrap();
    let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
    let (want, _) = oracle(&wide, &wide, [1, 300, 1], false);
    for (got, want) in cpu.download::<half::f16>(&y).unwrap().into_iter().zip(want) {
        // Half a unit in the last place, or of the smallest subnormal.
        let bound = want * 4.9e-4 + 2f64.powi(-25) * 1.01;
        assert!((got.to_f64() - want).abs() <= bound, "{got} against {want}");
    }
}
