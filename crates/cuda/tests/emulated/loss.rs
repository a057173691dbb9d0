//! Cross-entropy: every kernel against the CPU on numbers of classes that choose it.

use crate::both::{FLOATS, assert_near, both, indices, mixed, out, space, tensor};
use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{DType, Error, Runtime};

/// Around a warp, and around what each kernel holds; the first, the last and an ignored label among others.
#[test]
fn any_number_of_classes() {
    let cuda = cuda();
    let around = [2, 10, 32, 128, 129, 512, 513, 520, 1031];
    let wide = around
        .into_iter()
        .chain(EDGES)
        .map(|n| (if n > 500 { 4 } else { 9 }, n));
    for (rows, classes) in wide.chain(EDGES.map(|n| (n, 3))) {
        let labels: Vec<i32> = (0..rows as i32)
            .map(|r| match r {
                0 => classes as i32 - 1,
                1 => -100,
                r => (r - 2) * 7 % classes as i32,
            })
            .collect();
        let (x, w) = (mixed(rows * classes, 1), mixed(classes, 2));
        let weights: Vec<f64> = w.iter().map(|w| w.abs()).collect();
        let mut upstream = mixed(rows, 3);
        if rows > 1 {
            // The factor of an ignored row does not count.
            upstream[1] = f64::NAN;
        }
        for (smoothing, weighted) in [(0.0, false), (0.1, false), (0.0, true), (0.25, true), (1.0, true)] {
            let p = CrossEntropyParams {
                rows: rows as u64,
                classes: classes as u64,
                stride: classes as u64,
                smoothing,
                ignore_index: -100,
            };
            for dtype in FLOATS {
                let results = both!(&cuda, |b| {
                    let (x, w) = (tensor(b, dtype, &x), tensor(b, dtype, &weights));
                    let labels = indices(b, &labels);
                    let (mut loss, mut weight) = (space(b, DType::F32, rows), space(b, DType::F32, rows));
                    let (g, mut dx) = (tensor(b, DType::F32, &upstream), space(b, dtype, rows * classes));
                    let w = weighted.then_some(&w);
                    b.cross_entropy(&p, &x, &labels, w, &mut loss, &mut weight)?;
                    b.cross_entropy_grad(&p, &x, &labels, w, &g, None, &mut dx)?;
                    let (mut mean, mut total) = (space(b, DType::F32, 1), space(b, DType::F32, 1));
                    let (g, mut of_mean) = (tensor(b, DType::F32, &[1.5]), space(b, dtype, rows * classes));
                    b.cross_entropy_mean(&p, &x, &labels, w, &mut mean, &mut total)?;
                    b.cross_entropy_grad(&p, &x, &labels, w, &g, Some(&total), &mut of_mean)?;
                    out(b, &[&loss, &weight, &dx, &mean, &total, &of_mean])
                });
                assert_near(&format!("{p:?}"), 8.0, &results);
                // Rows apart, with padding that must stay: losses and gradients by one kernel.
                let p = CrossEntropyParams {
                    stride: classes as u64 + 3,
                    ..p
                };
                let results = both!(&cuda, |b| {
                    let padded = mixed(rows * (classes + 3), 4);
                    let (mut x, w) = (tensor(b, dtype, &padded), tensor(b, dtype, &weights));
                    let labels = indices(b, &labels);
                    let (mut loss, mut weight) = (space(b, DType::F32, rows), space(b, DType::F32, rows));
                    let w = weighted.then_some(&w);
                    b.cross_entropy_with_grad(&p, &mut x, &labels, w, &mut loss, &mut weight)?;
                    out(b, &[&loss, &weight, &x])
                });
                assert_near(&format!("{p:?}"), 8.0, &results);
            }
        }
    }
}

/// A label that is no class is found by every kernel, names its place, and leaves the device in order.
#[test]
fn labels_out_of_range() {
    let cuda = cuda();
    for classes in [3usize, 40, 300, 600] {
        for bad in [-1, classes as i32, i32::MAX, i32::MIN] {
            let p = CrossEntropyParams {
                rows: 3,
                classes: classes as u64,
                stride: classes as u64,
                smoothing: 0.1,
                ignore_index: -100,
            };
            let x = tensor(&cuda, DType::F32, &mixed(3 * classes, 1));
            let labels = indices(&cuda, &[0, 2, bad]);
            let [mut loss, mut weight] = [3, 3].map(|n| space(&cuda, DType::F32, n));
            let (g, mut dx) = (
                tensor(&cuda, DType::F32, &[1.0; 3]),
                space(&cuda, DType::F32, 3 * classes),
            );
            let loss = cuda.cross_entropy(&p, &x, &labels, None, &mut loss, &mut weight);
            let gradient = cuda.cross_entropy_grad(&p, &x, &labels, None, &g, None, &mut dx);
            let want = Error::IndexOutOfRange {
                op: "cross_entropy",
                index: i64::from(bad),
                position: 2,
                size: classes,
            };
            assert_eq!(loss, Err(want.clone()));
            assert_eq!(gradient, Err(want));
            assert_eq!(cuda.sync(), Ok(()));
        }
    }
}
