//! Products of warp groups. A device of compute capability 9.0 computes them, every other one refuses them, which is what
//! [`check`] expects there.

use super::TRANSPOSITIONS;
use super::product::{Product, check, download, upload, values};
use crate::cuda;
use kiln_core::ops::Activation;
use kiln_core::{DType, Error, Runtime};
use kiln_cuda::matmul::{Algorithm, Plan};

const VARIANTS: [Algorithm; 2] = [Algorithm::Warpgroup128x128, Algorithm::Warpgroup128x256];
const HALVES: [DType; 2] = [DType::BF16, DType::F16];

/// The end of the operands inside of a chunk of 64, a step along k, a tile; each transposition has the sides by eights that it needs.
#[test]
fn edges() {
    let cuda = cuda();
    for algorithm in VARIANTS {
        let columns = algorithm.tile()[1] as usize;
        let sizes = [
            [8, 8, 8],
            [120, 56, 32],
            [136, 72, 40],
            [16, columns + 8, 96],
            [64, 64, 64],
        ];
        for (i, trans) in TRANSPOSITIONS.into_iter().enumerate() {
            for (j, sizes) in sizes.into_iter().enumerate() {
                check(
                    &cuda,
                    Plan::new(algorithm),
                    HALVES[(i + j) % 2],
                    &Product::of(sizes, trans),
                );
            }
        }
        // Rows and columns that no operand has as a row: any number.
        check(
            &cuda,
            Plan::new(algorithm),
            DType::BF16,
            &Product::of([129, 35, 72], [false, true]),
        );
        check(
            &cuda,
            Plan::new(algorithm),
            DType::F16,
            &Product::of([67, 40, 16], [false, false]),
        );
        check(
            &cuda,
            Plan::new(algorithm),
            DType::BF16,
            &Product::of([24, 16, 33], [true, false]),
        );
    }
}

/// More steps along k than stages, so that the ring comes round, and several tiles.
#[test]
fn long_sums_of_several_tiles() {
    let cuda = cuda();
    for (i, algorithm) in VARIANTS.into_iter().enumerate() {
        for (j, trans) in TRANSPOSITIONS.into_iter().enumerate() {
            let product = Product::of([136, 264, 456], trans);
            check(&cuda, Plan::new(algorithm), HALVES[(i + j) % 2], &product);
        }
    }
}

#[test]
fn batches_parts_and_epilogues() {
    let cuda = cuda();
    for (i, algorithm) in VARIANTS.into_iter().enumerate() {
        for (j, (splits, k)) in [(1, 0), (2, 136), (3, 96), (5, 520)].into_iter().enumerate() {
            let product = Product {
                batch_a: vec![2],
                batch_b: vec![if j % 2 == 0 { 2 } else { 1 }],
                bias: j != 2,
                activation: [Activation::None, Activation::Silu, Activation::Relu, Activation::Tanh][j],
                ..Product::of([16, 72, k], TRANSPOSITIONS[(i + j) % 4])
            };
            let plan = Plan::new(algorithm).split(splits);
            check(&cuda, plan, HALVES[(i + j) % 2], &product);
        }
    }
}

/// The gradients of a linear layer in one launch: sums of products, and of the rows of the gradient, in any number of parts.
#[test]
fn weight_and_bias_gradients() {
    let cuda = cuda();
    for (i, algorithm) in VARIANTS.into_iter().enumerate() {
        for (j, (splits, [m, n, k])) in [(1, [136, 72, 72]), (2, [16, 264, 200]), (3, [24, 8, 150])]
            .into_iter()
            .enumerate()
        {
            let dtype = HALVES[(i + j) % 2];
            let (p, [sg, sx, sw]) = Product::of([m, n, k], [true, false]).params();
            let (g, x) = (values(sg.size(), 1), values(sx.size(), 2));
            let (ug, ux) = (upload(&cuda, dtype, &g), upload(&cuda, dtype, &x));
            let new = |len| cuda.alloc(dtype, len).expect("room");
            let (mut dw, mut db) = (new(sw.size()), new(m));
            let plan = Plan::new(algorithm).split(splits);
            let done = cuda.linear_weight_grad_with(plan, &p, (&ug, &ux), &mut dw, &mut db);
            if !cuda.matmul_fits(algorithm, &p, dtype) {
                assert!(matches!(done, Err(Error::InvalidArgument { .. })), "{done:?}");
                continue;
            }
            done.expect("it runs");
            let (dw, db) = (download(&cuda, &dw), download(&cuda, &db));
            // A rounding to the dtype, and k additions in f32.
            let rounding = if dtype == DType::BF16 {
                2f64.powi(-8)
            } else {
                2f64.powi(-11)
            };
            let near = |found: f64, terms: &dyn Fn(usize) -> f64, what: &str| {
                let sum: f64 = (0..k).map(terms).sum();
                let size: f64 = (0..k).map(|l| terms(l).abs()).sum();
                let bound = rounding * sum.abs() + (k + 2) as f64 * 2f64.powi(-23) * size + 2f64.powi(-25);
                assert!(
                    (found - sum).abs() <= bound,
                    "{plan:?} {dtype:?} {what}: {found}, not {sum} ± {bound:e}"
                );
            };
            for (row, &sum) in db.iter().enumerate() {
                near(sum, &|l| g[l * m + row], "db");
                for column in 0..n {
                    near(dw[row * n + column], &|l| g[l * m + row] * x[l * n + column], "dw");
                }
            }
        }
    }
}
