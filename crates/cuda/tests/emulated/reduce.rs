//! Reductions: every kernel and way of cutting against the CPU on shapes that choose it.

use crate::both::{FLOATS, assert_near, assert_same, both, mixed, out, space, tensor};
use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{AxisParams, Reduce, ReduceOps, ReduceParams};
use kiln_core::{DType, Shape};
use kiln_cuda::Cuda;
use kiln_cuda::reduce::Algorithm;

const OPS: [Reduce; 5] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::SumSquares];

fn same(cuda: &Cuda, shape: &[usize], axes: &[isize], ops: &[Reduce], values: &[f64]) {
    let shape = Shape::new(shape).unwrap();
    for &f in ops {
        let (p, y) = ReduceParams::new("reduce", f, &shape, axes, false).unwrap();
        for dtype in FLOATS {
            let results = both!(cuda, |b| {
                let (x, mut y) = (tensor(b, dtype, values), space(b, dtype, y.size()));
                b.reduce(&p, &x, &mut y)?;
                out(b, &[&y])
            });
            let what = format!("{f:?} of {shape} over {axes:?}");
            match f {
                Reduce::Max | Reduce::Min => assert_same(&what, &results),
                Reduce::Mean => assert_near(&what, 1.0, &results),
                _ => assert_near(&what, (p.count as f64).sqrt(), &results),
            }
        }
    }
}

/// Rows of a warp and of a block, in one run and in several; columns of one and several tiles, of few and many rows;
/// nothing reduced; no elements at all.
#[test]
fn any_axes() {
    let cuda = cuda();
    let cases: [(&[usize], &[isize]); 24] = [
        (&[], &[]),
        (&[1], &[0]),
        (&[31], &[0]),
        (&[9, 33], &[1]),
        (&[3, 512], &[1]),
        (&[3, 513], &[1]),
        (&[2, 1032], &[1]),
        (&[3, 5, 7], &[0, 2]),
        (&[2, 3, 5, 7], &[1, 3]),
        (&[20, 2, 40], &[0, 2]),
        (&[5, 1], &[0]),
        (&[33, 2], &[0]),
        (&[40, 3], &[0]),
        (&[17, 31], &[0]),
        (&[9, 33], &[0]),
        (&[300, 70], &[0]),
        (&[1200, 5], &[0]),
        (&[2, 150, 6], &[1]),
        (&[3, 2, 50, 4], &[0, 2]),
        (&[3, 2, 4, 2, 3], &[0, 2]),
        (&[4, 5], &[]),
        (&[0, 5], &[0]),
        (&[5, 0], &[0]),
        (&[2, 3, 4], &[]),
    ];
    for (shape, axes) in cases {
        let n = shape.iter().product::<usize>();
        let ops = if n == 0 { &OPS[..2] } else { &OPS };
        same(&cuda, shape, axes, ops, &mixed(n, 1));
    }
    for n in EDGES {
        same(&cuda, &[n], &[], &OPS, &mixed(n, 1));
        same(&cuda, &[2, n], &[1], &OPS, &mixed(2 * n, 2));
        same(&cuda, &[n, 2], &[0], &OPS, &mixed(2 * n, 3));
    }
}

/// Folds that are cut into segments, around a whole number of them.
#[test]
fn long_folds() {
    let cuda = cuda();
    for n in [4096, 4097, 10007] {
        same(&cuda, &[n], &[], &OPS, &mixed(n, 1));
    }
    same(&cuda, &[2, 9001], &[1], &[Reduce::Mean, Reduce::Max], &mixed(18002, 2));
    same(&cuda, &[3, 2, 3001], &[0, 2], &[Reduce::Sum], &mixed(18006, 3));
    same(&cuda, &[4500, 3], &[0], &[Reduce::Mean, Reduce::Min], &mixed(13500, 4));
}

/// NaN at either end, and infinities.
#[test]
fn special_values() {
    let cuda = cuda();
    for n in [3, 600, 5000] {
        for at in [0, n / 2, n - 1] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut values = mixed(n, 1);
                values[at] = value;
                same(&cuda, &[n], &[], &[Reduce::Max, Reduce::Min, Reduce::Sum], &values);
            }
        }
    }
    let mut values = mixed(33 * 5, 1);
    values[32 * 5 + 1] = f64::NAN;
    values[2] = f64::NEG_INFINITY;
    same(&cuda, &[33, 5], &[0], &OPS, &values);
}

/// Every kernel for sums.
#[test]
fn variants() {
    let cuda = cuda();
    for n in [0, 257, 5003].into_iter().chain(EDGES) {
        let values = mixed(n, 1);
        let sum: f64 = values.iter().sum();
        for dtype in FLOATS {
            let cpu = kiln_cpu::Cpu::new();
            let want = out(&cpu, &[&tensor(&cpu, dtype, &[sum])]);
            for algorithm in Algorithm::ALL {
                let (x, mut y) = (tensor(&cuda, dtype, &values), space(&cuda, dtype, 1));
                cuda.sum_with(algorithm, &x, &mut y).unwrap();
                let name = format!("{} of {n}", algorithm.name());
                assert_near(&name, (n as f64).sqrt(), &(out(&cuda, &[&y]), want.clone()));
            }
        }
    }
}

/// The same call gives the same bits.
#[test]
fn repeatable() {
    let cuda = cuda();
    let shape = Shape::new(&[10007]).unwrap();
    let (p, _) = ReduceParams::new("reduce", Reduce::Sum, &shape, &[], false).unwrap();
    let values: Vec<f64> = mixed(10007, 1).iter().map(|v| v * 1.0e-3 + 0.1).collect();
    let x = tensor(&cuda, DType::F32, &values);
    let sums = [(); 3].map(|()| {
        let mut y = space(&cuda, DType::F32, 1);
        cuda.reduce(&p, &x, &mut y).unwrap();
        out(&cuda, &[&y]).remove(0).bytes
    });
    assert!(sums.iter().all(|s| *s == sums[0]), "{sums:?}");
}

fn axis([outer, n, inner]: [usize; 3], k: usize, reverse: bool) -> AxisParams {
    AxisParams {
        outer: outer as u64,
        n: n as u64,
        inner: inner as u64,
        k: k as u64,
        reverse: u32::from(reverse),
        pad: 0,
    }
}

/// Few distinct values, so that there are ties; NaN, both zeros and both infinities among them.
fn ties(n: usize, salt: u64) -> Vec<f64> {
    let special = [f64::NAN, 0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY];
    let pick = |v: &f64| match (v * 64.0) as i64 {
        i if i % 13 == 0 => special[(i.unsigned_abs() / 13) as usize % 5],
        _ => v.round(),
    };
    mixed(n, salt).iter().map(pick).collect()
}

const LINES: [[usize; 3]; 6] = [
    [2, 512, 1],
    [2, 513, 1],
    [3, 1, 5],
    [2, 33, 3],
    [1, 200, 2],
    [2, 5, 129],
];

/// The shapes of `LINES`, and lines of every size in `EDGES`.
fn lines() -> impl Iterator<Item = [usize; 3]> {
    LINES.into_iter().chain(EDGES.map(|n| [3, n, 1]))
}

#[test]
fn places_of_extremes() {
    let cuda = cuda();
    for shape in lines() {
        let [outer, n, inner] = shape;
        for (values, reverse) in [ties(outer * n * inner, 1), mixed(outer * n * inner, 2)]
            .iter()
            .flat_map(|v| [(v, false), (v, true)])
        {
            let p = axis(shape, 0, reverse);
            for dtype in FLOATS {
                let results = both!(&cuda, |b| {
                    let (x, mut y) = (tensor(b, dtype, values), space(b, DType::I32, outer * inner));
                    b.arg_reduce(&p, &x, &mut y)?;
                    out(b, &[&y])
                });
                assert_same(&format!("{dtype} {shape:?} reverse {reverse}"), &results);
            }
        }
    }
}

#[test]
fn running_sums() {
    let cuda = cuda();
    for shape in lines().chain([[1, 1024, 1], [2, 2500, 1], [0, 3, 1], [3, 0, 2]]) {
        let size = shape.iter().product();
        let values = mixed(size, 1);
        for reverse in [false, true] {
            let p = axis(shape, 0, reverse);
            for dtype in FLOATS {
                let results = both!(&cuda, |b| {
                    let (x, mut y) = (tensor(b, dtype, &values), space(b, dtype, size));
                    b.cumsum(&p, &x, &mut y)?;
                    out(b, &[&y])
                });
                let scale = (shape[1] as f64).sqrt() * 2.0;
                assert_near(&format!("{shape:?} reverse {reverse}"), scale, &results);
            }
        }
    }
}

/// Top-k of short and long rows: one element, a few, whole rows, buffers that fill, and more than shared memory holds.
#[test]
fn first_of_each_row() {
    let cuda = cuda();
    let few = lines().flat_map(|s| [(s, 1), (s, s[1].min(3)), (s, s[1])]).chain([
        ([1, 2048, 1], 2048),
        ([1, 5000, 1], 5),
        ([1, 4500, 1], 1024),
    ]);
    for (shape, k) in few.chain([([2, 2500, 1], 1100), ([1, 2100, 2], 2100)]) {
        let [outer, n, inner] = shape;
        let values = ties(outer * n * inner, 3);
        for reverse in [false, true] {
            let p = axis(shape, k, reverse);
            let dtypes = if n > 1000 { &FLOATS[..1] } else { &FLOATS };
            for &dtype in dtypes {
                let results = both!(&cuda, |b| {
                    let x = tensor(b, dtype, &values);
                    let mut y = space(b, dtype, outer * k * inner);
                    let mut index = space(b, DType::I32, outer * k * inner);
                    b.top_k(&p, &x, &mut y, &mut index)?;
                    out(b, &[&y, &index])
                });
                assert_same(&format!("{dtype} {k} of {shape:?} reverse {reverse}"), &results);
            }
        }
    }
}
