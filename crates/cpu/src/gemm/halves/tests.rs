//! Every kernel for halves against the definition, and what the instructions do with numbers that are not finite or tiny.

use crate::Cpu;
use crate::epilogue::Epilogue;
use crate::gemm::halves::{Half, HalfKernels, product, small_m};
use crate::gemm::plan::Algorithm;
use crate::gemm::{CTile, GemmShape, gemm_nt_small, matrix};
use half::{bf16, f16};
use kiln_core::Element;
use kiln_core::ops::Activation;
use kiln_core::philox::{Key, uniform};

/// Values of few bits, so that sums are exact in any order.
fn eighths<T: Half>(len: usize, stream: u32) -> Vec<T> {
    let key = Key::new(17, stream, 0);
    let of = |i| (f64::from(uniform(key.word(i))) * 16.0).floor() / 8.0 - 1.0;
    (0..len as u64).map(|i| T::of(of(i))).collect()
}

fn run<T: Half>(algorithm: Algorithm, s: &GemmShape, operands: [&[T]; 2], e: Epilogue<'_, f32>) -> Vec<T> {
    // Elements that stay unwritten are NaN.
    let mut c = vec![T::of(f64::NAN); s.m * s.n];
    let cpu = Cpu::poisoned();
    match algorithm {
        Algorithm::Words(kernels) => product(&cpu, kernels, s, operands, &mut c, e).unwrap(),
        Algorithm::SmallM => small_m(&cpu, s, operands, &mut c, e).unwrap(),
        other => panic!("{other:?} is none of halves"),
    }
    c
}

fn check<T: Half>([m, n, k]: [usize; 3]) {
    let (a, b) = (eighths::<T>(m * k, 1), eighths::<T>(k * n, 2));
    let bias: Vec<f32> = eighths::<T>(n, 3).into_iter().map(|x| x.to_acc()).collect();
    let e = Epilogue {
        bias: Some(&bias),
        activation: Activation::Relu,
    };
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let s = GemmShape {
            m,
            n,
            k,
            trans_a,
            trans_b,
        };
        let left = |i: usize, l: usize| a[if trans_a { l * m + i } else { i * k + l }].f64();
        let right = |l: usize, j: usize| b[if trans_b { j * k + l } else { l * n + j }].f64();
        let want: Vec<T> = (0..m * n)
            .map(|at| {
                let (i, j) = (at / n, at % n);
                let sum: f64 = (0..k).map(|l| left(i, l) * right(l, j)).sum();
                T::of((sum + f64::from(bias[j])).max(0.0))
            })
            .collect();
        let mut ran = 0;
        for algorithm in Algorithm::all(&s, T::DTYPE) {
            let got = run(algorithm, &s, [&a, &b], e);
            for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                let place = [at / n, at % n];
                assert_eq!(got.f64(), want.f64(), "{algorithm:?} of {} {s:?}: {place:?}", T::DTYPE);
            }
            ran += 1;
        }
        assert!(ran > 0, "{s:?}");
    }
}

#[test]
fn every_kernel_computes_what_it_supports() {
    for m in [1, 2, 13, 16, 17, 33] {
        for n in [1, 15, 17, 32, 70] {
            for k in [0, 1, 2, 16, 31, 65] {
                check::<bf16>([m, n, k]);
                check::<f16>([m, n, k]);
            }
        }
    }
}

/// Products that are cut into blocks of k, of rows and of columns.
#[test]
fn large_products_are_cut() {
    for sizes in [
        [2, 470, 901],
        [25, 34, 769],
        [130, 600, 33],
        [200, 70, 1030],
        [400, 1100, 70],
    ] {
        check::<bf16>(sizes);
        check::<f16>(sizes);
    }
}

/// Every bit pattern is widened to its value by every instruction set, in whole vectors and in the rest of a row.
fn check_widening<T: Half>(bits: impl Fn(u16) -> T) {
    for (set, dots) in T::all_dots().iter().enumerate() {
        for (m, len) in [(1, 1), (1, 8), (4, 16), (1, 19), (4, 19)] {
            for first in (0..=u16::MAX).step_by(4 * len) {
                let b: Vec<T> = (0..4 * len).map(|i| bits(first.wrapping_add(i as u16))).collect();
                for place in 0..len {
                    // A row of A is one at a place and zero elsewhere, so its products with B are B's elements at that place.
                    let places: Vec<usize> = (0..m).map(|i| (place + i) % len).collect();
                    let at = |i: usize| f32::from(u8::from(places[i / len] == i % len));
                    let a: Vec<f32> = (0..m * len).map(at).collect();
                    let mut c = vec![f32::NAN; m * 4];
                    let target = CTile::new(matrix(&mut c, m, 4));
                    gemm_nt_small(dots, (&a, len), (&b, len), 0, len, target, Epilogue::NONE);
                    for (i, &got) in c.iter().enumerate() {
                        let row = &b[i % 4 * len..][..len];
                        let want = row[places[i / 4]].f64();
                        // Zero times what is not finite is NaN.
                        let finite = row.iter().all(|x| x.f64().is_finite());
                        let same = f64::from(got) == want || !finite && !got.is_finite();
                        assert!(
                            same,
                            "set {set}, {} {m}x{len} from {first:x}: {got} for {want}",
                            T::DTYPE
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn halves_are_widened_in_registers() {
    check_widening::<bf16>(bf16::from_bits);
    check_widening::<f16>(f16::from_bits);
}

/// The kernels that multiply bf16 on this machine.
fn kernels() -> impl Iterator<Item = HalfKernels> {
    HalfKernels::ALL.into_iter().filter(|k| k.supports(bf16::DTYPE))
}

fn dot(kernels: HalfKernels, a: &[f32], b: &[f32]) -> f32 {
    let of = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>();
    let s = GemmShape {
        m: 1,
        n: 1,
        k: a.len(),
        trans_a: false,
        trans_b: true,
    };
    let (a, b) = (of(a), of(b));
    run(Algorithm::Words(kernels), &s, [&a, &b], Epilogue::NONE)[0].to_f32()
}

#[test]
fn what_is_not_finite_stays_so() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for kernels in kernels() {
        assert_eq!(dot(kernels, &[1.0, inf, 2.0], &[1.0, 2.0, 3.0]), inf, "{kernels:?}");
        assert_eq!(dot(kernels, &[1.0, -inf], &[1.0, 2.0]), -inf, "{kernels:?}");
        assert_eq!(dot(kernels, &[3e38, 3e38, 3e38], &[1.0; 3]), inf, "{kernels:?}");
        for (a, b) in [
            ([nan, 0.0], [1.0, 1.0]),
            ([inf, 0.0], [0.0, 1.0]),
            ([inf, inf], [1.0, -1.0]),
        ] {
            assert!(dot(kernels, &a, &b).is_nan(), "{kernels:?}: {a:?} {b:?}");
        }
    }
}

/// Products whose sums cancel, and differ by many orders of magnitude.
#[test]
fn sums_are_kept_in_f32() {
    for kernels in kernels() {
        assert_eq!(
            dot(kernels, &[4096.0, 1.0, -4096.0], &[1.0, 1.0, 1.0]),
            1.0,
            "{kernels:?}"
        );
        // A product of two bf16 has sixteen bits, of which none is lost before the end.
        let (x, y) = (1.0 + 1.0 / 128.0, 1.0 + 3.0 / 128.0);
        assert_eq!(dot(kernels, &[x, -1.0], &[y, 1.03125]), x * y - 1.03125, "{kernels:?}");
    }
}

/// The instructions for bf16 take operands and results below the smallest normal number of f32 for zero.
#[test]
fn subnormal_numbers_are_kept_or_are_zero() {
    let tiny = f32::MIN_POSITIVE / 4.0;
    for kernels in kernels() {
        let sum = dot(kernels, &[tiny, tiny], &[1.0, 1.0]);
        let want = if kernels.pairs() { 0.0 } else { 2.0 * tiny };
        assert_eq!(sum, want, "{kernels:?}");
        let product = dot(kernels, &[2f32.powi(-70)], &[2f32.powi(-60)]);
        let want = if kernels.pairs() { 0.0 } else { 2f32.powi(-130) };
        assert_eq!(product, want, "{kernels:?}");
        assert_eq!(
            dot(kernels, &[2f32.powi(-66)], &[2f32.powi(-60)]),
            2f32.powi(-126),
            "{kernels:?}"
        );
    }
}
