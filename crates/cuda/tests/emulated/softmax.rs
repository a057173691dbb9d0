//! Softmax: every kernel against the CPU on sizes that choose it.

use crate::both::{FLOATS, assert_near, both, mixed, out, space, tensor};
use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_cpu::Cpu;
use kiln_cuda::softmax::Algorithm;

fn same(cuda: &kiln_cuda::Cuda, [outer, n, inner]: [usize; 3], values: &[f64]) {
    for log in [0, 1] {
        let p = SoftmaxParams {
            outer: outer as u64,
            n: n as u64,
            inner: inner as u64,
            log,
            pad: 0,
        };
        let size = outer * n * inner;
        let slopes = mixed(size, 9);
        for dtype in FLOATS {
            let results = both!(cuda, |b| {
                let (x, g) = (tensor(b, dtype, values), tensor(b, dtype, &slopes));
                let (mut y, mut dx) = (space(b, dtype, size), space(b, dtype, size));
                b.softmax(&p, &x, &mut y)?;
                // The gradient from the same y on both sides.
                let fixed = tensor(b, dtype, &slopes.iter().map(|v| v / 4.0 - 0.6).collect::<Vec<_>>());
                b.softmax_grad(&p, &fixed, &g, &mut dx)?;
                out(b, &[&y, &dx])
            });
            assert_near(
                &format!("[{outer}, {n}, {inner}] log {log}"),
                (n as f64).sqrt(),
                &results,
            );
        }
    }
}

/// Around a warp, and around what each kernel holds.
#[test]
fn rows_of_any_length() {
    let cuda = cuda();
    for n in [2, 32, 40, 128, 129, 256, 264, 1000, 1024, 1032, 2050]
        .into_iter()
        .chain(EDGES)
    {
        let outer = if n > 500 { 2 } else { 9 };
        same(&cuda, [outer, n, 1], &mixed(outer * n, n as u64));
    }
}

#[test]
fn columns_of_any_length() {
    let cuda = cuda();
    let shapes = [(1, 1, 2), (3, 5, 7), (2, 129, 3), (1, 33, 40), (300, 2, 2)];
    let edges = EDGES.into_iter().flat_map(|n| [(1, n, 2), (1, 2, n)]);
    for (outer, n, inner) in shapes.into_iter().chain(edges) {
        same(&cuda, [outer, n, inner], &mixed(outer * n * inner, n as u64));
    }
}

/// Every kernel, on rows that it takes and on others.
#[test]
fn variants() {
    let cuda = cuda();
    for (outer, n, inner) in [
        (1, 1, 1),
        (300, 3, 1),
        (5, 33, 1),
        (3, 129, 1),
        (9, 40, 1),
        (3, 264, 1),
        (2, 1030, 1),
        (2, 5, 3),
        (0, 4, 1),
    ] {
        let size = outer * n * inner;
        let values = mixed(size, 3);
        for (algorithm, log) in Algorithm::ALL.into_iter().flat_map(|a| [(a, 0), (a, 1)]) {
            let p = SoftmaxParams {
                outer: outer as u64,
                n: n as u64,
                inner: inner as u64,
                log,
                pad: 0,
            };
            for dtype in FLOATS {
                let (x, mut y) = (tensor(&cuda, dtype, &values), space(&cuda, dtype, size));
                cuda.softmax_with(algorithm, &p, &x, &mut y).unwrap();
                let cpu = Cpu::poisoned();
                let (x, mut want) = (tensor(&cpu, dtype, &values), space(&cpu, dtype, size));
                cpu.softmax(&p, &x, &mut want).unwrap();
                let results = (out(&cuda, &[&y]), out(&cpu, &[&want]));
                assert_near(&format!("{} {p:?}", algorithm.name()), 1.0, &results);
            }
        }
    }
}

/// Rows with NaN, with infinities, of nothing but −∞, and with one or several of them first: in each kernel.
#[test]
fn infinities() {
    let cuda = cuda();
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for n in [3, 40, 200, 1030] {
        let mut values = mixed(7 * n, 4);
        values[1] = nan;
        values[n + 2] = inf;
        values[2 * n..3 * n].fill(-inf);
        values[3 * n..3 * n + 2].fill(-inf);
        values[5 * n - 1] = -inf;
        values[5 * n..6 * n - 1].fill(-inf);
        values[6 * n..7 * n].fill(1e4);
        same(&cuda, [7, n, 1], &values);
        if n < 100 {
            same(&cuda, [1, 7, n], &values);
        }
    }
}
