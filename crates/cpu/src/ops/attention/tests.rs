//! Compares the fused op with plain loops, for every set of micro-kernels.

use super::{backward, forward, halves};
use crate::gemm::{Gemm, Kernels};
use crate::scalar::Scalar;
use crate::simd::real::Real;
use crate::{Cpu, CpuBuffer};
use half::bf16;
use kiln_core::ops::{AttentionMasks, AttentionOps, AttentionParams};
use kiln_core::philox::{Key, uniform};
use kiln_core::{Buffer, DType, Runtime, Shape};
use proptest::prelude::*;

/// Values between −`range` and `range`.
fn values<A: Scalar>(cpu: &Cpu, len: usize, stream: u32, range: f64) -> CpuBuffer {
    let key = Key::new(5, stream, 0);
    let of = |i| A::of((2.0 * f64::from(uniform(key.word(i))) - 1.0) * range);
    let values: Vec<A> = (0..len as u64).map(of).collect();
    cpu.upload(&values).unwrap()
}

fn params([n, t, h, d]: [usize; 4], causal: bool) -> AttentionParams {
    let shape = Shape::new(&[n, t, 3 * h * d]).unwrap();
    AttentionParams::new("test", &shape, h, causal).unwrap().0
}

/// The result, the log-sum-exps and the gradient.
type Three<A> = [Vec<A>; 3];

fn fused<A: Scalar + Real>(
    cpu: &Cpu,
    kernels: &'static Kernels<A>,
    p: &AttentionParams,
    qkv: &[A],
    g: &[A],
) -> Three<A> {
    let out = |len: usize| cpu.alloc(A::DTYPE, len).unwrap();
    let (mut y, mut lse, mut dqkv) = (out(g.len()), out(p.rows()), out(qkv.len()));
    forward::run(cpu, kernels, p, qkv, y.as_mut_slice(), lse.as_mut_slice()).unwrap();
    let given = backward::Given {
        qkv,
        y: y.as_slice(),
        lse: lse.as_slice(),
        g,
    };
    backward::run(cpu, kernels, p, &given, dqkv.as_mut_slice()).unwrap();
    [y, lse, dqkv].map(|x| x.as_slice().to_vec())
}

fn near<A: Scalar>(what: &str, got: &[A], want: &[f64], bound: f64) {
    let pairs = got.iter().zip(want).map(|(a, &b)| [a.f64(), b]);
    for (i, [a, b]) in pairs.enumerate() {
        assert!(
            (a - b).abs() <= bound * (1.0 + b.abs()),
            "{what}: element {i} is {a:e}, expected {b:e}"
        );
    }
}

fn agree<A: Scalar + Real>(dims: [usize; 4], causal: bool, range: f64, bound: f64) {
    let (cpu, p) = (Cpu::poisoned(), params(dims, causal));
    let [n, t, h, d] = dims;
    let qkv = values::<A>(&cpu, 3 * n * t * h * d, 1, range);
    let g = values::<A>(&cpu, n * t * h * d, 2, 1.0);
    let [x, g] = [qkv.as_slice::<A>(), g.as_slice()];
    let [y, logarithms, dqkv] = plain(&p, x, g);
    let bound = bound * (1.0 + range * range) * (d as f64).sqrt();
    for (i, kernels) in A::all_kernels().iter().enumerate() {
        let [got, lse, slopes] = fused(&cpu, kernels, &p, x, g);
        let what = format!("{p:?}, kernels {i}");
        near(&format!("{what}: y"), &got, &y, bound);
        near(&format!("{what}: dqkv"), &slopes, &dqkv, bound);
        near(&format!("{what}: lse"), &lse, &logarithms, bound);
    }
}

/// The result, the log-sum-exps and the gradient by their definitions, in f64.
fn plain<A: Scalar>(p: &AttentionParams, qkv: &[A], g: &[A]) -> [Vec<f64>; 3] {
    let [n, t, h, d] = [p.batch, p.positions, p.heads, p.width].map(|d| d as usize);
    let (mut y, mut lse, mut dqkv) = (vec![0.0; n * t * h * d], vec![], vec![0.0; n * t * 3 * h * d]);
    for (n, head, i) in (0..n * h * t).map(|r| (r / t / h, r / t % h, r % t)) {
        // The vector of a position in part 0, 1 or 2: query, key or value.
        let at = |j: usize, part: usize| (((n * t) + j) * 3 + part) * h * d + head * d;
        let vector = |j, part| qkv[at(j, part)..at(j, part) + d].iter().map(|x| x.f64());
        let dot = |a: &[f64], j, part| a.iter().zip(vector(j, part)).map(|(a, b)| a * b).sum::<f64>();
        let seen = 0..if p.causal == 1 { i + 1 } else { t };
        let query: Vec<f64> = vector(i, 0).collect();
        let scores: Vec<f64> = seen.clone().map(|j| p.scale * dot(&query, j, 1)).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = scores.iter().map(|s| (s - most).exp()).sum::<f64>();
        lse.push(most + total.ln());
        let shares: Vec<f64> = scores.iter().map(|s| (s - most).exp() / total).collect();
        let row = ((n * t) + i) * h * d + head * d;
        let slope: Vec<f64> = g[row..row + d].iter().map(|g| g.f64()).collect();
        let gains: Vec<f64> = seen.clone().map(|j| dot(&slope, j, 2)).collect();
        let mean = shares.iter().zip(&gains).map(|(p, gain)| p * gain).sum::<f64>();
        for j in seen {
            let of_score = p.scale * shares[j] * (gains[j] - mean);
            for c in 0..d {
                y[row + c] += shares[j] * qkv[at(j, 2) + c].f64();
                dqkv[at(j, 2) + c] += shares[j] * slope[c];
                dqkv[at(j, 1) + c] += of_score * query[c];
                dqkv[at(i, 0) + c] += of_score * qkv[at(j, 1) + c].f64();
            }
        }
    }
    [y, lse, dqkv]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn both_forms_agree(
        n in 1usize..3, t in 1usize..200, h in 1usize..4,
        d in prop::sample::select(vec![1usize, 3, 8, 15, 16, 17, 31, 33, 40, 64, 70]),
        causal in any::<bool>(), range in 0.3f64..3.0,
    ) {
        agree::<f32>([n, t, h, d], causal, range, 4e-6);
        agree::<f64>([n, t, h, d], causal, range, 1e-14);
    }
}

/// bf16 by the tiles of a matrix unit, where there is one, against plain loops over the same operands.
fn halves_agree(dims: [usize; 4], causal: bool, range: f64) {
    let (cpu, p) = (Cpu::poisoned(), params(dims, causal));
    let [n, t, h, d] = dims;
    if !halves::is_supported(DType::BF16, &p) {
        return;
    }
    let rounded = |len, stream, range| -> Vec<bf16> {
        let values = values::<f32>(&cpu, len, stream, range);
        values.as_slice::<f32>().iter().map(|&x| bf16::from_f32(x)).collect()
    };
    let (x, g) = (rounded(3 * n * t * h * d, 1, range), rounded(n * t * h * d, 2, 1.0));
    let wide = |x: &[bf16]| x.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
    let [y, logarithms, dqkv] = plain(&p, &wide(&x), &wide(&g));
    let out = |dtype, len| cpu.alloc(dtype, len).unwrap();
    let (mut got, mut lse) = (out(DType::BF16, g.len()), out(DType::F32, p.rows()));
    halves::forward(&cpu, &p, &x, got.as_mut_slice(), lse.as_mut_slice()).unwrap();
    let mut slopes = out(DType::BF16, x.len());
    let given = halves::Given {
        qkv: &x,
        lse: lse.as_slice(),
        g: &g,
    };
    halves::backward(&cpu, &p, &given, slopes.as_mut_slice()).unwrap();
    // One rounding to eight bits, and what two bf16 leave out of a weight.
    let bound = 4e-5 * (1.0 + range * range) * (d as f64).sqrt();
    let check = |what: &str, got: &[bf16], want: &[f64]| {
        for (i, (a, &b)) in got.iter().zip(want).enumerate() {
            let a = f64::from(a.to_f32());
            let near = (a - b).abs() <= b.abs() / 256.0 + bound;
            assert!(near, "{p:?}: element {i} of {what} is {a:e}, expected {b:e}");
        }
    };
    check("y", got.as_slice(), &y);
    near("lse", lse.as_slice::<f32>(), &logarithms, bound);
    let slopes: &[bf16] = slopes.as_slice();
    check("dqkv", slopes, &dqkv);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn halves_agree_with_plain_loops(
        n in 1usize..3, t in 1usize..200, h in 1usize..4,
        d in prop::sample::select(vec![1usize, 3, 8, 15, 16, 17, 31, 33, 40, 64, 70]),
        causal in any::<bool>(), range in 0.3f64..3.0,
    ) {
        halves_agree([n, t, h, d], causal, range);
    }
}

/// More keys than a block of k, and more entries.
#[test]
fn long_sequences_of_halves_agree() {
    for causal in [false, true] {
        halves_agree([1, 1100, 1, 16], causal, 1.0);
        halves_agree([1, 40, 1, 600], causal, 0.3);
    }
}

/// Sequences with more scores than a block of the gradient, and with more keys than a block of k.
#[test]
fn long_sequences_agree() {
    for causal in [false, true] {
        agree::<f32>([1, 1100, 1, 16], causal, 1.0, 4e-6);
    }
}

#[test]
fn nothing_gives_nothing() {
    let cpu = Cpu::poisoned();
    for dims in [[0, 5, 2, 3], [2, 0, 2, 3], [2, 5, 2, 0]] {
        let [y, _, dqkv] = fused::<f32>(&cpu, f32::kernels(), &params(dims, true), &[], &[]);
        assert!(y.is_empty() && dqkv.is_empty());
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let (cpu, p) = (Cpu::poisoned(), params([2, 150, 3, 40], true));
    assert!(
        p.flops() > 2 * crate::gemm::BLOCK_WORK as u64,
        "large enough for threads"
    );
    let (qkv, g) = (
        values::<f32>(&cpu, 2 * 150 * 360, 1, 1.0),
        values::<f32>(&cpu, 2 * 150 * 120, 2, 1.0),
    );
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let three = pool.install(|| fused(&cpu, f32::kernels(), &p, qkv.as_slice(), g.as_slice()));
        three.map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let one = run(1);
    for threads in [2, 3, 4] {
        assert!(run(threads) == one, "{threads} threads give other bits");
    }
}

/// Scores of several thousand: the largest is subtracted before the exponential.
#[test]
fn large_scores_do_not_overflow() {
    let (cpu, p) = (Cpu::poisoned(), params([1, 40, 2, 16], true));
    let (qkv, g) = (
        values::<f32>(&cpu, 40 * 96, 1, 60.0),
        values::<f32>(&cpu, 40 * 32, 2, 1.0),
    );
    let three = fused(&cpu, f32::kernels(), &p, qkv.as_slice(), g.as_slice());
    assert!(three[1].iter().any(|l| l.abs() > 1000.0));
    assert!(three.iter().flatten().all(|x| x.is_finite()));
}

/// A value that is not finite reaches the same results as in plain loops; earlier positions do not attend to it.
#[test]
fn a_nan_reaches_those_that_see_it() {
    const DIMS: [usize; 4] = [1, 60, 2, 8];
    let (cpu, p) = (Cpu::poisoned(), params(DIMS, true));
    let clean = values::<f32>(&cpu, 60 * 48, 1, 1.0).as_slice::<f32>().to_vec();
    let g = values::<f32>(&cpu, 60 * 16, 2, 1.0);
    let run = |qkv: &[f32]| fused(&cpu, f32::kernels(), &p, qkv, g.as_slice())[0].clone();
    let want = run(&clean);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for part in 0..3 {
            // The value is in the first head, at position 50: a query affects its own row, a key or value later ones too.
            let mut qkv = clean.clone();
            qkv[50 * 48 + part * 16 + 3] = bad;
            let [y, ..] = plain(&p, &qkv, g.as_slice::<f32>());
            let got = run(&qkv);
            for (i, (&got, &plain)) in got.iter().zip(&y).enumerate() {
                let (t, column) = (i / 16, i % 16);
                if column >= 8 || t < 48 {
                    assert_eq!(
                        got.to_bits(),
                        want[i].to_bits(),
                        "part {part}, element {i} of another head or block"
                    );
                } else if t >= 50 && part < 2 {
                    let same = got.is_nan() == plain.is_nan();
                    assert!(same, "part {part}, element {i} is {got}, in plain loops {plain}");
                } else if t >= 50 && column == 3 {
                    assert!(!got.is_finite(), "element {i} is {got}");
                }
            }
        }
    }
}

/// Halves are computed in f32 and rounded once: within half of a unit in the last place, and the difference of sums in two orders.
#[test]
fn halves_round_once() {
    use kiln_core::ops::ElementwiseOps;
    let (cpu, p) = (Cpu::poisoned(), params([1, 30, 2, 8], true));
    let qkv = values::<f32>(&cpu, 30 * 48, 1, 1.0);
    let run = |dtype: DType| {
        let mut x = cpu.alloc(dtype, qkv.len()).unwrap();
        let mut y = cpu.alloc(dtype, 30 * 16).unwrap();
        let mut lse = cpu.alloc(DType::F32, p.rows()).unwrap();
        let mut rounded = cpu.alloc(DType::BF16, qkv.len()).unwrap();
        cpu.cast(&qkv, &mut rounded).unwrap();
        cpu.cast(&rounded, &mut x).unwrap();
        cpu.attention(&p, &x, AttentionMasks::default(), &mut y, &mut lse)
            .unwrap();
        let mut wide = cpu.alloc(DType::F32, y.len()).unwrap();
        cpu.cast(&y, &mut wide).unwrap();
        wide.as_slice::<f32>().to_vec()
    };
    for (half, wide) in run(DType::BF16).into_iter().zip(run(DType::F32)) {
        assert!(
            (half - wide).abs() <= wide.abs() / 256.0 + 1e-5,
            "{half:e}, expected {wide:e}"
        );
    }
}
