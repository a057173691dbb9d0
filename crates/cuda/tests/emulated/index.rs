//! Moving ops: every kernel and way of walking against the CPU on shapes that choose it.

use crate::both::{ALL, FLOATS, assert_same, both, indices, mixed, out, space, tensor};
use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{IndexOps, IndexParams, ViewParams};
use kiln_core::{DType, Error, Result, Runtime, Shape};
use kiln_cuda::{Cuda, CudaBuffer};

/// The fewest entries of which those of the same index are summed first (`index_add.cu`).
const SUMMED: usize = 512;

/// Small whole numbers, which every dtype holds.
fn counts(n: usize, salt: u64) -> Vec<f64> {
    mixed(n, salt).iter().map(|v| (v * 60.0 + 120.0).round()).collect()
}

/// Reads a view, and writes it back into other values, in every dtype.
fn same_view(cuda: &Cuda, elements: usize, shape: &[usize], strides: &[i64], offset: usize) {
    let size: usize = shape.iter().product();
    let p = ViewParams::new(&Shape::new(shape).unwrap(), strides, offset);
    let (x, other) = (counts(elements, 1), counts(size, 2));
    // A view that is written must not overlap itself.
    let apart = strides.iter().zip(shape).all(|(&s, &d)| s != 0 || d == 1);
    for dtype in ALL {
        let results = both!(cuda, |b| {
            let (x, mut y) = (tensor(b, dtype, &x), space(b, dtype, size));
            b.view_read(&p, &x, &mut y)?;
            let mut target = x;
            if apart {
                b.view_write(&p, &tensor(b, dtype, &other), &mut target)?;
            }
            out(b, &[&y, &target])
        });
        assert_same(&format!("{dtype} {shape:?} by {strides:?} from {offset}"), &results);
    }
}

/// Elements of every width up to 16 bytes, and the things that keep them narrow: the length, the offset, a stride.
#[test]
fn views_of_every_width() {
    let cuda = cuda();
    same_view(&cuda, 64, &[64], &[1], 0);
    same_view(&cuda, 70, &[48], &[1], 16);
    for (columns, offset, step) in [
        (16, 16, 48),
        (16, 8, 48),
        (16, 4, 48),
        (16, 2, 48),
        (16, 1, 48),
        (8, 16, 40),
        (4, 16, 36),
        (6, 2, 34),
        (5, 16, 48),
        (16, 16, 33),
    ] {
        same_view(&cuda, 3 * 48, &[2, columns], &[step, 1], offset);
    }
    same_view(&cuda, 96, &[2, 3, 16], &[48, 16, 1], 0);
}

/// Steps, flips, expansions, nothing at all.
#[test]
fn views_with_strides() {
    let cuda = cuda();
    same_view(&cuda, 40, &[13], &[3], 1);
    same_view(&cuda, 40, &[40], &[-1], 39);
    same_view(&cuda, 40, &[5, 8], &[-8, 1], 32);
    same_view(&cuda, 8, &[5, 8], &[0, 1], 0);
    same_view(&cuda, 8, &[8, 5], &[1, 0], 0);
    same_view(&cuda, 120, &[2, 3, 4, 5], &[60, 5, 15, 1], 0);
    same_view(&cuda, 120, &[5, 4, 3, 2], &[1, 5, 20, 60], 0);
    same_view(&cuda, 7, &[1], &[1], 3);
    same_view(&cuda, 7, &[], &[], 6);
    same_view(&cuda, 7, &[0, 3], &[3, 1], 0);
    for n in EDGES {
        same_view(&cuda, n, &[n], &[1], 0);
        same_view(&cuda, 2 * n, &[n], &[2], 1);
    }
}

/// Transposes: sides below, at and above a tile's, alone and in batches, and inside a larger tensor.
#[test]
fn transposes() {
    let cuda = cuda();
    let sides = [(7, 9), (8, 8), (31, 33), (32, 32), (40, 65), (100, 9)];
    let edges = EDGES.into_iter().flat_map(|n| [(n, 3), (3, n)]);
    for (h, w) in sides.into_iter().chain(edges) {
        same_view(&cuda, h * w, &[h, w], &[1, h as i64], 0);
        same_view(&cuda, 3 * h * w, &[3, h, w], &[(h * w) as i64, 1, h as i64], 0);
        same_view(&cuda, (h + 3) * w, &[h, w], &[1, h as i64 + 3], 2);
    }
}

fn params(outer: usize, size: usize, inner: usize, count: usize) -> IndexParams {
    IndexParams {
        outer: outer as u64,
        size: size as u64,
        inner: inner as u64,
        count: count as u64,
    }
}

/// `n` indices below `size`, some more common than others.
fn places(n: usize, size: usize) -> Vec<i32> {
    mixed(n, 7)
        .iter()
        .enumerate()
        .map(|(i, v)| match i % 3 {
            0 => (size / 2) as i32,
            _ => ((v.abs() * 64.0) as usize * 37 % size) as i32,
        })
        .collect()
}

#[test]
fn reading_by_index() {
    let cuda = cuda();
    let shapes = [
        (1, 5, 1, 9),
        (2, 7, 3, 4),
        (3, 4, 2, 33),
        (1, 9, 16, 5),
        (2, 3, 8, 5),
        (1, 3, 20, 2),
        (0, 3, 4, 2),
        (2, 3, 4, 0),
    ];
    let edges = EDGES.into_iter().flat_map(|n| [(1, 5, 1, n), (1, 3, n, 2)]);
    for (outer, size, inner, count) in shapes.into_iter().chain(edges) {
        let p = params(outer, size, inner, count);
        let x = counts(outer * size * inner, 1);
        let (one, each) = (places(count, size), places(outer * count * inner, size));
        for dtype in ALL {
            let n = outer * count * inner;
            let results = both!(&cuda, |b| {
                let x = tensor(b, dtype, &x);
                let (mut y, mut z) = (space(b, dtype, n), space(b, dtype, n));
                b.gather(&p, &x, &indices(b, &each), &mut y)?;
                b.index_select(&p, &x, &indices(b, &one), &mut z)?;
                out(b, &[&y, &z])
            });
            assert_same(&format!("{dtype} {p:?}"), &results);
        }
    }
}

#[test]
fn rows_of_one() {
    let cuda = cuda();
    let edges = EDGES.into_iter().flat_map(|n| [(n, 3), (2, n)]);
    for (rows, classes) in [(1, 1), (5, 3), (33, 10), (4, 129), (0, 3)].into_iter().chain(edges) {
        let p = params(rows, classes, 1, 1);
        for dtype in ALL {
            let results = both!(&cuda, |b| {
                let mut y = space(b, dtype, rows * classes);
                b.one_hot(&p, &indices(b, &places(rows, classes)), &mut y)?;
                out(b, &[&y])
            });
            assert_same(&format!("{dtype} {rows} of {classes}"), &results);
        }
    }
}

/// Adding by heads and by owners, with rows of several blocks and columns of one block and of several; as the additions are
/// in order, the bits are the CPU's.
#[test]
fn adding_by_index() {
    let cuda = cuda();
    let shapes = [
        (1, 5, 1, 9),
        (2, 7, 3, 33),
        (1, 3, 5, 64),
        (1, 3, 5, 65),
        (2, 40, 1, 70),
        (1, 9000, 1, 500),
        (2, 70, 129, 66),
        (1, 100, 257, 300),
        (3, 1, 2, 100),
        (0, 3, 4, 2),
        (2, 3, 4, 0),
    ];
    let edges = EDGES
        .into_iter()
        .flat_map(|n| [(1, 5, 1, n.min(SUMMED - 1)), (1, 3, n, 2)]);
    for (outer, size, inner, count) in shapes.into_iter().chain(edges) {
        let p = params(outer, size, inner, count);
        let n = outer * count * inner;
        // Sums that round, so that their order shows.
        let x: Vec<f64> = mixed(n, 1).iter().map(|v| v * 1.37).collect();
        let y: Vec<f64> = mixed(outer * size * inner, 2).iter().map(|v| v * 3.1).collect();
        let (one, each) = (places(count, size), places(n, size));
        for dtype in FLOATS {
            let results = both!(&cuda, |b| {
                let x = tensor(b, dtype, &x);
                let (mut s, mut a) = (tensor(b, dtype, &y), tensor(b, dtype, &y));
                b.scatter_add(&p, &x, &indices(b, &each), &mut s)?;
                b.index_add(&p, &x, &indices(b, &one), &mut a)?;
                out(b, &[&s, &a])
            });
            assert_same(&format!("{dtype} {p:?}"), &results);
        }
    }
}

/// Of many entries those of the same index among 256 neighbours are summed first, in order, and then the sums, in order: the bits are those of
/// the same sums on the host.
#[test]
fn adding_sums_by_index() {
    let cuda = cuda();
    let shapes = [
        (1, 9000, 1, 600),
        (2, 5, 3, SUMMED),
        (1, 40, 300, 1030),
        (1, 13, 257, 770),
        (2, 700, 129, SUMMED + 1),
    ];
    let edges = EDGES.into_iter().map(|n| (1, 5, 1, n.max(SUMMED)));
    for (outer, size, inner, count) in shapes.into_iter().chain(edges) {
        let p = params(outer, size, inner, count);
        let x: Vec<f64> = mixed(outer * count * inner, 1).iter().map(|v| v * 1.37).collect();
        let y: Vec<f64> = mixed(outer * size * inner, 2).iter().map(|v| v * 3.1).collect();
        let places = places(count, size);
        for dtype in FLOATS {
            let (given, mut sum) = (tensor(&cuda, dtype, &x), tensor(&cuda, dtype, &y));
            let before = out(&cuda, &[&given, &sum]);
            let added = cuda.index_add(&p, &given, &indices(&cuda, &places), &mut sum);
            assert_eq!(added, Ok(()));
            let got = out(&cuda, &[&sum]);
            let (x, mut want) = (before[0].numbers(), before[1].numbers());
            for o in 0..outer {
                for (i, (first, chunk)) in (0..inner).flat_map(|i| places.chunks(256).enumerate().map(move |c| (i, c)))
                {
                    let mut sums = std::collections::BTreeMap::<i32, f32>::new();
                    for (j, &at) in chunk.iter().enumerate() {
                        let value = x[(o * count + 256 * first + j) * inner + i] as f32;
                        sums.entry(at).and_modify(|sum| *sum += value).or_insert(value);
                    }
                    for (at, sum) in sums {
                        let to = &mut want[(o * size + at as usize) * inner + i];
                        *to = f64::from(*to as f32 + sum);
                    }
                }
            }
            let want = out(&cuda, &[&tensor(&cuda, dtype, &want)]);
            assert_same(&format!("{dtype} {p:?}"), &(got, want));
        }
    }
}

/// Every op finds an index out of its range by every kernel, also where there is nothing to write, and names its place.
#[test]
fn indices_out_of_range() {
    let cuda = cuda();
    type Op = fn(&Cuda, &IndexParams, [&CudaBuffer; 2], &mut CudaBuffer) -> Result<()>;
    let ops: [(&'static str, Op); 5] = [
        ("gather", |c, p, [x, i], y| c.gather(p, x, i, y)),
        ("scatter_add", |c, p, [x, i], y| c.scatter_add(p, x, i, y)),
        ("index_select", |c, p, [x, i], y| c.index_select(p, x, i, y)),
        ("index_add", |c, p, [x, i], y| c.index_add(p, x, i, y)),
        ("one_hot", |c, p, [_, i], y| c.one_hot(p, i, y)),
    ];
    for (op, call) in ops {
        for (size, inner, count) in [(4, 3, 5), (4, 1, 100), (40, 3, 70), (40, 3, 600), (0, 2, 1), (5, 0, 3)] {
            let each = matches!(op, "gather" | "scatter_add");
            let adds = matches!(op, "scatter_add" | "index_add");
            let inner = if op == "one_hot" { 1 } else { inner };
            // Where every index is wrong, any of several may be found first.
            if each && (inner == 0 || size == 0) {
                continue;
            }
            for bad in [-1, size, i32::MAX, i32::MIN] {
                let p = match op {
                    "one_hot" => params(count, size as usize, 1, 1),
                    _ => params(1, size as usize, inner, count),
                };
                let n = if each { count * inner } else { count };
                let mut index = vec![0; n];
                index[n - 1] = bad;
                let index = indices(&cuda, &index);
                let (source, result) = (size as usize * inner, count * inner);
                let (from, to) = match op {
                    "one_hot" => (0, count * size as usize),
                    _ if adds => (result, source),
                    _ => (source, result),
                };
                let x = tensor(&cuda, DType::F32, &counts(from, 1));
                let mut y = tensor(&cuda, DType::F32, &counts(to, 2));
                let error = call(&cuda, &p, [&x, &index], &mut y);
                let want = Error::IndexOutOfRange {
                    op,
                    index: i64::from(bad),
                    position: n - 1,
                    size: size as usize,
                };
                assert_eq!(error, Err(want), "{op} {p:?}");
                assert_eq!(cuda.sync(), Ok(()));
            }
        }
    }
}
