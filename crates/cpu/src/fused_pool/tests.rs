//! The micro-kernels of pooled convolutions, against the definition.

use super::*;
use crate::Cpu;
use crate::gemm::{BOperand, Epilogue, Panels};
use crate::scalar::Scalar;
use kiln_core::ops::Activation;
use kiln_core::philox::{Key, uniform};
use proptest::prelude::*;

/// The value of memory that a kernel must overwrite.
const GUARD: f64 = 1e30;

/// Values of few bits: sums are exact in any order, so results can be compared bit by bit.
fn values<A: Scalar>(len: usize, stream: u32) -> Vec<A> {
    let key = Key::new(11, stream, 0);
    let value = |i| A::of((f64::from(uniform(key.word(i))) * 16.0).floor() / 8.0 - 1.0);
    (0..len as u64).map(value).collect()
}

/// The numbers of pooled windows in a line, of lines, outputs and channels, and the convolution's kernel; an uneven line
/// has a result that no pooled window reads.
#[derive(Clone, Debug)]
struct Case {
    windows: usize,
    lines: usize,
    outputs: usize,
    channels: usize,
    kernel: [usize; 2],
    uneven: bool,
    relu: bool,
    bias: bool,
    nan: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = (
        1usize..10,
        1usize..4,
        1usize..70,
        prop::sample::select(vec![1usize, 2, 3, 7, 24]),
    );
    let flags = any::<(bool, bool, bool, bool)>();
    (sizes, 1usize..7, 1usize..6, flags).prop_map(|((windows, lines, outputs, channels), rows, across, flags)| Case {
        windows,
        lines,
        outputs,
        channels,
        // The kernel is limited so that a result's sum is one block of k.
        kernel: [rows.min(384 / (across * channels)).max(1), across],
        uneven: flags.0,
        relu: flags.1,
        bias: flags.2,
        nan: flags.3,
    })
}

/// Transposes `[rows, columns]` to `[columns, rows]`.
fn transposed<T: Copy>(x: &[T], columns: usize) -> Vec<T> {
    let of_column = |j: usize| x.iter().skip(j).step_by(columns).copied();
    (0..columns).flat_map(of_column).collect()
}

/// Compares the kernels with the definition, for numbers of windows around the kernels' own.
fn check<A: Scalar>(case: &Case) {
    let cpu = Cpu::poisoned();
    let &Case {
        windows,
        lines,
        outputs,
        channels,
        kernel,
        relu,
        bias,
        nan,
        ..
    } = case;
    let width = 2 * windows + usize::from(case.uneven);
    let line = (width + kernel[1] - 1) * channels;
    let taps: Vec<usize> = (0..kernel[0])
        .flat_map(|h| (0..kernel[1] * channels).map(move |w| h * line + w))
        .collect();
    let depth = taps.len();
    let grid = PoolGeometry {
        lines,
        windows,
        right: channels,
        below: line,
        width,
    };
    let taps_of = WindowTaps { grid, taps };
    let mut x: Vec<A> = values((2 * lines + kernel[0] - 1) * line, 1);
    if nan {
        for i in (0..x.len()).step_by(7) {
            x[i] = A::of(f64::NAN);
        }
    }
    let (w, biases): (Vec<A>, Vec<A>) = (values(depth * outputs, 2), values(outputs, 3));
    let size = lines * windows * outputs;
    let g: Vec<A> = values(size, 4);
    let (mut want, mut want_index, mut want_dw) = (vec![0.0; size], vec![0; size], vec![1.0; depth * outputs]);
    let mut want_dx = vec![1.0; x.len()];
    let (of_image, of_weight) = (&x, &w);
    for (at, (want, index)) in want.iter_mut().zip(&mut want_index).enumerate() {
        let (row, output) = (at / outputs, at % outputs);
        let (top, left) = (row / windows * 2, row % windows * 2);
        let mut best: Option<f64> = None;
        let start = |place: usize| place / width * line + place % width * channels;
        for place in [0, 1, width, width + 1].map(|p| top * width + left + p) {
            let of = |i: usize, tap: &usize| x[start(place) + tap].f64() * w[i * outputs + output].f64();
            let sum: f64 = taps_of.taps.iter().enumerate().map(|(i, tap)| of(i, tap)).sum();
            let sum = sum + if bias { biases[output].f64() } else { 0.0 };
            let sum = if relu && sum < 0.0 { 0.0 } else { sum };
            if best.is_none_or(|best| sum > best || (sum.is_nan() && !best.is_nan())) {
                best = Some(sum);
                *index = place as i32;
            }
        }
        *want = best.unwrap_or_default();
        for (i, tap) in taps_of.taps.iter().enumerate() {
            let (x, w) = (start(*index as usize) + tap, i * outputs + output);
            want_dw[w] += of_image[x].f64() * g[at].f64();
            want_dx[x] += of_weight[w].f64() * g[at].f64();
        }
    }
    let source = BOperand {
        data: &w,
        taps: &[0],
        steps: depth,
        columns: outputs,
        k_step: outputs,
        n_step: 1,
    };
    let e = Epilogue {
        bias: bias.then_some(&biases),
        activation: if relu { Activation::Relu } else { Activation::None },
    };
    let numbers = |x: &[A]| x.iter().map(|x| x.f64()).collect::<Vec<_>>();
    let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()));
    for (kernels, gemm) in A::all_pool_kernels().iter().zip(A::all_kernels()) {
        let panels = Panels::packed(&cpu, gemm, source).unwrap();
        let (mut y, mut index) = (vec![A::of(GUARD); size], vec![-1; size]);
        kernels.largest_products(&taps_of, &x, &panels, e, (&mut y, &mut index));
        assert!(same(&numbers(&y), &want), "{} {case:?}", gemm.name);
        assert_eq!(index, want_index, "{} {case:?}", gemm.name);
        let mut dw = vec![A::of(1.0); depth * outputs];
        kernels.pooled_gradient(&taps_of, &x, (&g, &index), &mut dw, outputs);
        if nan {
            continue;
        }
        assert!(same(&numbers(&dw), &want_dw), "{} {case:?}", gemm.name);
        let lines = Lines {
            count: kernel[0],
            len: kernel[1] * channels,
            step: line,
        };
        // One more line at the end, which no window reaches.
        let mut dx = vec![A::of(1.0); x.len() + line];
        let mut dw = vec![A::of(1.0); depth * outputs];
        kernels.argmax_weight_grad(&grid, lines, &x, (&g, &index), &mut dw, outputs);
        kernels.argmax_image_grad(&grid, lines, &transposed(&w, outputs), (&g, &index), &mut dx, outputs);
        let want_dw = transposed(&want_dw, outputs);
        assert!(same(&numbers(&dw), &want_dw), "{} {case:?}: weight", gemm.name);
        assert!(
            same(&numbers(&dx[..x.len()]), &want_dx),
            "{} {case:?}: image",
            gemm.name
        );
        assert!(
            dx[x.len()..].iter().all(|&v| v.f64() == 1.0),
            "{} {case:?}: beyond",
            gemm.name
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pooled_products_are_the_largest_sums(case in case()) {
        check::<f32>(&case);
        check::<f64>(&case);
    }
}
