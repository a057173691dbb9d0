//! Elementwise ops: every function, pair and path against the CPU, special values among them.

use crate::both::{ALL, FLOATS, assert_near, assert_same, both, mixed, out, space, tensor};
use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{Binary, BroadcastParams, Compare, ElementwiseOps, Unary, UnaryParams};
use kiln_core::{DType, Shape};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Numbers that functions treat in their own ways, between others; a pack and a tail in every dtype.
const SPECIAL: [f64; 21] = [
    0.0, -0.0, NAN, 1.0, -1.0, INF, -INF, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 0.25, 7.0, -7.0, 1e-3, -1e-3, 20.0, -20.0,
    1.5,
];

/// Parameters at which a function's cases meet, beside those of core's table.
const MEETING: [(Unary, f64, f64); 7] = [
    (Unary::Softplus, 2.0, 3.0),
    (Unary::Clamp, -0.5, 1.5),
    (Unary::Clamp, 1.0, -1.0),
    (Unary::Powf, 2.0, 0.0),
    (Unary::Powf, 0.5, 0.0),
    (Unary::Powf, -1.0, 0.0),
    (Unary::Softshrink, 1.0, 0.0),
];

/// Every function with its parameters.
fn functions() -> impl Iterator<Item = (Unary, f64, f64)> {
    let tried = |f: Unary| f.function().tried.iter().map(move |t| (f, t.0, t.1));
    Unary::ALL.iter().copied().flat_map(tried).chain(MEETING)
}

#[test]
fn functions_of_special_values() {
    let cuda = cuda();
    for (f, a, b) in functions() {
        for dtype in FLOATS {
            let n = SPECIAL.len();
            let p = UnaryParams::new(f, n, a, b);
            let slopes: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -0.75 }).collect();
            let results = both!(&cuda, |b| {
                let (x, g) = (tensor(b, dtype, &SPECIAL), tensor(b, dtype, &slopes));
                let (mut y, mut dx) = (space(b, dtype, n), space(b, dtype, n));
                b.unary(&p, &x, &mut y)?;
                b.unary_grad(&p, &x, &y, &g, &mut dx)?;
                out(b, &[&y, &dx])
            });
            assert_near(&format!("{f:?} {a} {b}"), 1.0, &results);
        }
    }
}

/// Around a pack, a block and a grid.
#[test]
fn functions_of_any_length() {
    let cuda = cuda();
    for n in [0, 7, 8, 9, 2049, 2056].into_iter().chain(EDGES) {
        for dtype in FLOATS {
            for f in [Unary::Square, Unary::Sigmoid] {
                let (values, p) = (mixed(n, 3), UnaryParams::new(f, n, 0.0, 0.0));
                let results = both!(&cuda, |b| {
                    let x = tensor(b, dtype, &values);
                    let (mut y, mut dx) = (space(b, dtype, n), space(b, dtype, n));
                    b.unary(&p, &x, &mut y)?;
                    b.unary_grad(&p, &x, &y, &x, &mut dx)?;
                    out(b, &[&y, &dx])
                });
                assert_near(&format!("{f:?} of {n}"), 1.0, &results);
            }
        }
    }
}

/// Shapes that broadcast: equal, scalars, rows and columns of whole packs and not, and a division at every rank.
fn pairs() -> Vec<(Vec<usize>, Vec<usize>)> {
    let of = |a: &[usize], b: &[usize]| (a.to_vec(), b.to_vec());
    vec![
        of(&[21], &[21]),
        of(&[], &[]),
        of(&[33], &[]),
        of(&[1], &[2056]),
        of(&[5, 16], &[16]),
        of(&[5, 16], &[5, 1]),
        of(&[5, 7], &[7]),
        of(&[5, 7], &[5, 1]),
        of(&[1, 16], &[3, 1]),
        of(&[3, 4, 8], &[4, 1]),
        of(&[3, 1, 32], &[2, 1]),
        of(&[2, 3, 5, 2], &[3, 1, 2]),
        of(&[2, 1, 3, 1, 16], &[5, 1, 2, 1]),
        of(&[0, 3], &[3]),
    ]
}

#[test]
fn pairs_of_every_shape() {
    let cuda = cuda();
    for (sa, sb) in pairs() {
        let (a, b) = (Shape::new(&sa).unwrap(), Shape::new(&sb).unwrap());
        let (va, vb) = (mixed(a.size(), 1), mixed(b.size(), 2));
        for &f in Binary::ALL {
            for dtype in FLOATS {
                let (p, y) = BroadcastParams::new("binary", f as u32, &a, &b, None).unwrap();
                let results = both!(&cuda, |b| {
                    let (a, c) = (tensor(b, dtype, &va), tensor(b, dtype, &vb));
                    let mut y = space(b, dtype, y.size());
                    b.binary(&p, &a, &c, &mut y)?;
                    out(b, &[&y])
                });
                let what = format!("{f:?} of {sa:?} and {sb:?}");
                match f {
                    Binary::Pow | Binary::Div | Binary::Atan2 => assert_near(&what, 0.0, &results),
                    _ => assert_same(&what, &results),
                }
            }
        }
    }
}

/// Every special value with every other: one axis against the other.
#[test]
fn pairs_of_special_values() {
    let cuda = cuda();
    let n = SPECIAL.len();
    let (a, c) = (Shape::new(&[n, 1]).unwrap(), Shape::new(&[n]).unwrap());
    for dtype in FLOATS {
        for &f in &Binary::ALL[3..] {
            let (p, _) = BroadcastParams::new("binary", f as u32, &a, &c, None).unwrap();
            let results = both!(&cuda, |b| {
                let (x, mut y) = (tensor(b, dtype, &SPECIAL), space(b, dtype, n * n));
                b.binary(&p, &x, &x, &mut y)?;
                out(b, &[&y])
            });
            assert_near(&format!("{f:?}"), 0.0, &results);
        }
        for f in COMPARISONS {
            let (p, _) = BroadcastParams::new("compare", f as u32, &a, &c, None).unwrap();
            let results = both!(&cuda, |b| {
                let (x, mut y) = (tensor(b, dtype, &SPECIAL), space(b, DType::U8, n * n));
                b.compare(&p, &x, &x, &mut y)?;
                out(b, &[&y])
            });
            assert_same(&format!("{f:?}"), &results);
        }
    }
}

const COMPARISONS: [Compare; 6] = [
    Compare::Eq,
    Compare::Ne,
    Compare::Lt,
    Compare::Le,
    Compare::Gt,
    Compare::Ge,
];

/// Comparison and selection in every dtype, over every kind of broadcast.
#[test]
fn masks() {
    let cuda = cuda();
    for (sa, sb) in pairs() {
        let (a, b) = (Shape::new(&sa).unwrap(), Shape::new(&sb).unwrap());
        for (dtype, f) in ALL.into_iter().zip(COMPARISONS.into_iter().cycle().skip(sa.len())) {
            let few = |n: usize, salt: u64| mixed(n, salt).iter().map(|v| v.round() + 2.0).collect::<Vec<_>>();
            let (va, vb) = (few(a.size(), 1), few(b.size(), 2));
            let (p, y) = BroadcastParams::new("compare", f as u32, &a, &b, None).unwrap();
            // The mask is the second operand's shape, and 0 or not.
            let vm: Vec<f64> = vb.iter().map(|v| (v - 2.0).abs()).collect();
            let (q, _) = BroadcastParams::new("select", 0, &a, &b, Some(&b)).unwrap();
            let results = both!(&cuda, |b| {
                let (a, c, m) = (tensor(b, dtype, &va), tensor(b, dtype, &vb), tensor(b, DType::U8, &vm));
                let (mut mask, mut chosen) = (space(b, DType::U8, y.size()), space(b, dtype, y.size()));
                b.compare(&p, &a, &c, &mut mask)?;
                b.select(&q, &m, &a, &c, &mut chosen)?;
                out(b, &[&mask, &chosen])
            });
            assert_same(&format!("{dtype} {f:?} of {sa:?} and {sb:?}"), &results);
        }
    }
}

/// Every pair of dtypes: ties of rounding, ends of ranges, NaN, and integers that no float of 24 bits holds.
#[test]
fn conversions() {
    let cuda = cuda();
    let floats = [
        0.0,
        -0.0,
        NAN,
        INF,
        -INF,
        0.5,
        -0.5,
        0.999,
        1.5,
        2.5,
        -1.5,
        127.5,
        255.0,
        255.5,
        256.0,
        -1.0,
        65504.0,
        65519.9,
        65520.0,
        3e9,
        -3e9,
        2147483520.0,
        1.00390625,
        1.001953125,
        1.0029296875,
        3.0e38,
        3.4e38,
        1e-8,
        6e-8,
        1e-40,
    ];
    let integers = [
        0.0,
        1.0,
        -1.0,
        255.0,
        256.0,
        -5.0,
        2147483647.0,
        -2147483648.0,
        16777217.0,
        16777219.0,
        -16777217.0,
        16842753.0,
        16842752.0,
        -16908287.0,
        2139095041.0,
        65519.0,
        65520.0,
        2049.0,
        2051.0,
        257.0,
        259.0,
    ];
    let bytes = [0.0, 1.0, 2.0, 127.0, 128.0, 254.0, 255.0];
    for from in ALL {
        let values: &[f64] = match from {
            DType::I32 => &integers,
            DType::U8 => &bytes,
            _ => &floats,
        };
        // Long enough for packs, and with a tail.
        let values: Vec<f64> = values.iter().copied().cycle().take(67).collect();
        for to in ALL {
            let results = both!(&cuda, |b| {
                let (x, mut y) = (tensor(b, from, &values), space(b, to, values.len()));
                b.cast(&x, &mut y)?;
                out(b, &[&y])
            });
            assert_same(&format!("{from} to {to}"), &results);
        }
    }
}

#[test]
fn filling_and_accumulating() {
    let cuda = cuda();
    for n in [0, 3, 15, 16, 17].into_iter().chain(EDGES) {
        for dtype in ALL {
            for value in [0.0, 1.0, -2.7, 300.0, 0.1, NAN, INF] {
                let results = both!(&cuda, |b| {
                    let mut y = space(b, dtype, n);
                    b.fill(value, &mut y)?;
                    out(b, &[&y])
                });
                assert_same(&format!("{n} {dtype} of {value}"), &results);
            }
        }
        for dtype in FLOATS {
            let (x, y) = (mixed(n, 5), mixed(n, 6).iter().map(|v| v * 100.0).collect::<Vec<_>>());
            let results = both!(&cuda, |b| {
                let (x, mut y) = (tensor(b, dtype, &x), tensor(b, dtype, &y));
                b.accumulate(&x, &mut y)?;
                out(b, &[&y])
            });
            assert_same(&format!("accumulate {n}"), &results);
        }
    }
}
