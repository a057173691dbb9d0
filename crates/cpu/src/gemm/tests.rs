//! Compares every set of micro-kernels of this machine with sums of one product at a time.

use super::*;
use crate::Cpu;
use crate::scalar::Scalar;
use kiln_core::ops::Activation;
use kiln_core::philox::{Key, uniform};
use proptest::prelude::*;

fn values<A: Scalar>(len: usize, stream: u32) -> Vec<A> {
    let key = Key::new(11, stream, 0);
    // Values of few bits: sums are exact in any order, so results can be compared bit by bit.
    (0..len as u64)
        .map(|i| A::of((f64::from(uniform(key.word(i))) * 16.0).floor() / 8.0 - 1.0))
        .collect()
}

#[derive(Clone, Debug)]
struct Case {
    m: usize,
    n: usize,
    taps: usize,
    steps: usize,
    relu: bool,
    bias: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let m = prop_oneof![1usize..30, Just(49usize)];
    let n = prop_oneof![1usize..40, prop::sample::select(vec![48usize, 63, 64, 65, 100])];
    let k = prop_oneof![3 => (1usize..12, 1usize..40), 1 => (Just(1usize), 380usize..900), 1 => Just((0, 5))];
    (m, n, k, any::<(bool, bool)>()).prop_map(|(m, n, (taps, steps), (relu, bias))| Case {
        m,
        n,
        taps,
        steps,
        relu,
        bias,
    })
}

/// The value of C where no sum is stored.
const GUARD: f64 = 77.0;

fn check<A: Scalar>(case: &Case) {
    let cpu = Cpu::poisoned();
    let &Case {
        m,
        n,
        taps,
        steps,
        relu,
        bias,
    } = case;
    let k = taps * steps;
    let (a, b, biases): (Vec<A>, Vec<A>, Vec<A>) = (values(m * k, 1), values(k * n, 2), values(n, 3));
    // Rows of A are in order, in turned pairs or in reverse order, a dozen each: at equal distances, at others, at negative ones.
    let row = |i: usize| match i / 12 % 4 {
        1 if i ^ 1 < m => i ^ 1,
        3 if i / 12 * 12 + 12 <= m => i / 12 * 12 + 11 - i % 12,
        _ => i,
    };
    let want = |i: usize, j: usize| {
        let sum: f64 = (0..k).map(|l| a[row(i) * k + l].f64() * b[l * n + j].f64()).sum();
        let sum = sum + if bias { biases[j].f64() } else { 0.0 };
        if relu { sum.max(0.0) } else { sum }
    };
    let starts: Vec<usize> = (0..taps).map(|t| t * steps * n).collect();
    let source = BOperand {
        data: &b,
        taps: &starts,
        steps,
        columns: n,
        k_step: n,
        n_step: 1,
    };
    let e = Epilogue {
        bias: bias.then_some(&biases),
        activation: if relu { Activation::Relu } else { Activation::None },
    };
    for kernels in A::all_kernels() {
        let packed = Panels::packed(&cpu, kernels, source).unwrap();
        for panels in [Some(packed), Panels::direct(kernels, source)].into_iter().flatten() {
            // Rows of C are twice as far apart as necessary, and in reverse order.
            let mut c = vec![A::of(GUARD); m * 2 * n];
            let view = matrix(&mut c, m, 2 * n);
            let view = view.split_at(Axis(1), n).0;
            let mut fill = |tile: std::ops::Range<usize>, unit: &KBlock, to: &mut Pointers<'_, A>| {
                let (start, first) = (|i: usize| row(tile.start + i) * k, unit.steps.start);
                if tile.start.is_multiple_of(24) {
                    let starts: Vec<isize> = (0..tile.len()).map(|i| start(i) as isize).collect();
                    let mut taps = Taps::default();
                    for (number, tap) in unit.taps.clone().enumerate() {
                        taps.push(number, (tap * steps) as isize);
                    }
                    to.taps(&starts, first, &taps);
                } else {
                    for (t, tap) in unit.taps.clone().enumerate() {
                        to.tap(t, tile.len(), |i| Some(start(i) + first + tap * steps));
                    }
                }
            };
            let turned: Vec<usize> = (0..m).rev().collect();
            gemm_indirect(
                kernels,
                &a,
                &mut fill,
                &panels,
                0,
                CTile::new(view),
                RowMap::Listed(&turned),
                e,
            );
            for (at, got) in c.iter().enumerate() {
                let (i, j) = (m - 1 - at / (2 * n), at % (2 * n));
                let want = if j < n { want(i, j) } else { GUARD };
                assert_eq!(got.f64(), want, "{} {case:?}: [{i}, {j}]", kernels.name);
            }
        }
    }
}

/// The same with evenly spaced rows of A: adjacent ones, and ones that share a set of an L1 cache.
fn check_matrix<A: Scalar>(case: &Case) {
    let cpu = Cpu::poisoned();
    let &Case { m, n, relu, bias, .. } = case;
    let k = case.taps * case.steps;
    let (b, biases): (Vec<A>, Vec<A>) = (values(k * n, 2), values(n, 3));
    let source = BOperand {
        data: &b,
        taps: &[0],
        steps: k,
        columns: n,
        k_step: n,
        n_step: 1,
    };
    let e = Epilogue {
        bias: bias.then_some(&biases),
        activation: if relu { Activation::Relu } else { Activation::None },
    };
    for a_step in [k, 1024] {
        // The slice ends with the last row.
        let a: Vec<A> = values((m - 1) * a_step + k, 1);
        let want = |i: usize, j: usize| {
            let sum: f64 = (0..k).map(|l| a[i * a_step + l].f64() * b[l * n + j].f64()).sum();
            let sum = sum + if bias { biases[j].f64() } else { 0.0 };
            if relu { sum.max(0.0) } else { sum }
        };
        for kernels in A::all_kernels() {
            let packed = Panels::packed(&cpu, kernels, source).unwrap();
            for panels in [Some(packed), Panels::direct(kernels, source)].into_iter().flatten() {
                // From the second panel on, if there is one.
                let first = if n > kernels.panel() { kernels.panel() } else { 0 };
                let width = n - first;
                let mut c = vec![A::of(GUARD); m * (width + 3)];
                let view = matrix(&mut c, m, width + 3);
                let target = CTile::new(view.split_at(Axis(1), width).0);
                gemm_nn(kernels, (&a, a_step), &panels, first, target, e, false);
                for (at, got) in c.iter().enumerate() {
                    let (i, j) = (at / (width + 3), at % (width + 3));
                    let want = if j < width { want(i, first + j) } else { GUARD };
                    assert_eq!(
                        got.f64(),
                        want,
                        "{} {case:?}, rows {a_step} apart: [{i}, {j}]",
                        kernels.name
                    );
                }
            }
        }
    }
}

/// The same with A stored by columns, in segments and in panels.
fn check_columns<A: Scalar>(case: &Case) {
    let cpu = Cpu::poisoned();
    let &Case { m, n, taps, steps, .. } = case;
    let k = taps * steps;
    let (a, b): (Vec<A>, Vec<A>) = (values(m * k, 1), values(k * n, 2));
    let want = |i: usize, j: usize| (0..k).map(|l| a[l * m + i].f64() * b[l * n + j].f64()).sum::<f64>();
    let segments: Vec<Segment> = (0..taps)
        .map(|t| Segment {
            a: t * steps * m,
            b: t * steps * n,
            len: steps,
        })
        .collect();
    let (left, right) = (AOperand { data: &a, step: m }, AOperand { data: &b, step: n });
    for kernels in A::all_kernels() {
        let mut c = vec![A::of(1.0); m * n];
        gemm_tn_segmented(kernels, &segments, left, right, CTile::new(matrix(&mut c, m, n)), true);
        for (at, got) in c.iter().enumerate() {
            assert_eq!(got.f64(), 1.0 + want(at / n, at % n), "{} {case:?}: {at}", kernels.name);
        }
        gemm_tn_segmented(kernels, &segments, left, right, CTile::new(matrix(&mut c, m, n)), false);
        for (at, got) in c.iter().enumerate() {
            assert_eq!(got.f64(), want(at / n, at % n), "{} {case:?}: {at}", kernels.name);
        }
        let source = BOperand {
            data: &b,
            taps: &[0],
            steps: k,
            columns: n,
            k_step: n,
            n_step: 1,
        };
        let panels = Panels::packed(&cpu, kernels, source).unwrap();
        c.fill(A::of(GUARD));
        gemm_tn(kernels, left, &panels, 0, CTile::new(matrix(&mut c, m, n)), false);
        for (at, got) in c.iter().enumerate() {
            assert_eq!(
                got.f64(),
                want(at / n, at % n),
                "{} {case:?}: {at} of panels",
                kernels.name
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn kernels_sum_every_product_once(case in case()) {
        check::<f32>(&case);
        check::<f64>(&case);
        check_matrix::<f32>(&case);
        check_matrix::<f64>(&case);
        check_columns::<f32>(&case);
        check_columns::<f64>(&case);
    }
}

#[test]
fn relu_keeps_nan() {
    for kernels in f32::all_kernels() {
        let source = BOperand {
            data: &[1f32; 40],
            taps: &[0],
            steps: 1,
            columns: 40,
            k_step: 40,
            n_step: 1,
        };
        let panels = Panels::direct(kernels, source).unwrap();
        let mut c = [0f32; 40];
        let mut fill = |_: std::ops::Range<usize>, _: &KBlock, to: &mut Pointers<'_, f32>| {
            to.tap(0, 1, |_| Some(0));
        };
        let e = Epilogue {
            bias: None,
            activation: Activation::Relu,
        };
        gemm_indirect(
            kernels,
            &[f32::NAN],
            &mut fill,
            &panels,
            0,
            CTile::new(matrix(&mut c, 1, 40)),
            RowMap::First(1),
            e,
        );
        assert!(c.iter().all(|c| c.is_nan()), "{}", kernels.name);
    }
}

fn check_dots<A: Scalar>(m: usize, n: usize, k: usize) {
    let (a, b, biases): (Vec<A>, Vec<A>, Vec<A>) = (values(m * k, 1), values(n * k, 2), values(n, 3));
    // The last columns, as the second of two blocks.
    let first = n / 2;
    for kernels in A::all_kernels() {
        let mut c = vec![A::of(GUARD); m * (n - first)];
        let e = Epilogue {
            bias: Some(&biases),
            activation: Activation::Relu,
        };
        let target = CTile::new(matrix(&mut c, m, n - first));
        gemm_nt_small(&kernels.dots, (&a, k), (&b, k), first, k, target, e);
        for (at, got) in c.iter().enumerate() {
            let (i, j) = (at / (n - first), first + at % (n - first));
            let sum: f64 = (0..k).map(|l| a[i * k + l].f64() * b[j * k + l].f64()).sum();
            let want = (sum + biases[j].f64()).max(0.0);
            assert_eq!(got.f64(), want, "{} {m}x{n}x{k}: element {i}, {j}", kernels.name);
        }
    }
}

#[test]
fn dots_sum_every_product_once() {
    for m in [1, 2, 4, 5, 16] {
        for n in [1, 3, 8, 21] {
            for k in [0, 1, 15, 16, 40, 129] {
                check_dots::<f32>(m, n, k);
                check_dots::<f64>(m, n, k);
            }
        }
    }
}
