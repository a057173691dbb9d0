//! Matrix products: every kernel variant against f64.

mod product;
mod warp_groups;

use crate::cuda;
use crate::twin::EDGES;
use kiln_core::ops::{Activation, MatmulOps};
use kiln_core::{DType, Runtime};
use kiln_cuda::CudaBuffer;
use kiln_cuda::matmul::{Algorithm, Plan};
use product::{Product, check, download, upload, values};
use proptest::prelude::*;

const TRANSPOSITIONS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];
const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// Sizes on both sides of the tile of a variant, of a warp and of a step along k; rows of every alignment; empty sums.
fn sizes(algorithm: Algorithm) -> Vec<[usize; 3]> {
    let mut sizes = vec![
        [1, 1, 1],
        [31, 33, 31],
        [33, 65, 37],
        [8, 12, 36],
        [7, 64, 0],
        [48, 24, 72],
    ];
    let [rows, columns] = algorithm.tile();
    if columns >= 64 {
        sizes.extend([[63, 66, 34], [65, 63, 64], [1, 127, 129]]);
    }
    if rows == 128 {
        sizes.extend([[127, 129, 33], [129, 40, 100]]);
    }
    // Rows of multiples of 16 bytes, inside of a tile and past it along both.
    if algorithm.is_tensor() {
        sizes.extend([[8, 8, 8], [120, 56, 32], [136, 72, 40], [16, columns as usize + 8, 96]]);
    }
    sizes
}

/// Every variant of one dtype.
fn variants(dtype: DType) {
    let cuda = cuda();
    for algorithm in Algorithm::ALL {
        for trans in TRANSPOSITIONS {
            for sizes in sizes(algorithm) {
                check(&cuda, Plan::new(algorithm), dtype, &Product::of(sizes, trans));
            }
        }
    }
}

#[test]
fn variants_f32() {
    variants(DType::F32);
}

#[test]
fn variants_bf16() {
    variants(DType::BF16);
}

#[test]
fn variants_f16() {
    variants(DType::F16);
}

/// Every edge along m, n and k, the other two small.
#[test]
fn variants_at_the_edges() {
    let cuda = cuda();
    for (i, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (j, edge) in EDGES.into_iter().enumerate() {
            for side in 0..3 {
                let mut sizes = [5, 7, 9];
                sizes[side] = edge;
                let product = Product::of(sizes, TRANSPOSITIONS[(i + j) % 4]);
                check(&cuda, Plan::new(algorithm), FLOATS[(i + j + side) % 3], &product);
            }
        }
    }
}

#[test]
fn variants_take_batches_that_broadcast() {
    let cuda = cuda();
    let batches: [(&[usize], &[usize]); 5] = [
        (&[3], &[3]),
        (&[], &[2]),
        (&[2, 1], &[1, 3]),
        (&[2], &[1]),
        (&[0], &[1]),
    ];
    for (i, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (j, (a, b)) in batches.iter().enumerate() {
            let product = Product {
                batch_a: a.to_vec(),
                batch_b: b.to_vec(),
                ..Product::of([5, 35, 9], TRANSPOSITIONS[(i + j) % 4])
            };
            check(&cuda, Plan::new(algorithm), FLOATS[(i + j) % 3], &product);
        }
    }
}

#[test]
fn variants_fuse_bias_and_activation() {
    let cuda = cuda();
    let functions = [
        Activation::None,
        Activation::Relu,
        Activation::Silu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];
    for (i, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        for (j, activation) in functions.into_iter().enumerate() {
            for splits in [1, 2] {
                let product = Product {
                    bias: j != 1,
                    activation,
                    ..Product::of([9, 34 + j % 3, 40], [false, true])
                };
                check(&cuda, Plan::new(algorithm).split(splits), FLOATS[(i + j) % 3], &product);
            }
        }
    }
}

#[test]
fn splits_add_up_in_order() {
    let cuda = cuda();
    let variants = Algorithm::ALL.into_iter().filter(|a| a.splits());
    for (i, algorithm) in variants.enumerate() {
        for (j, (splits, k)) in [(2, 33), (3, 96), (5, 131), (4, 32), (9, 0)].into_iter().enumerate() {
            let product = Product {
                batch_a: vec![2],
                batch_b: vec![1],
                ..Product::of([10, 67, k], TRANSPOSITIONS[(i + j) % 4])
            };
            check(&cuda, Plan::new(algorithm).split(splits), FLOATS[(i + j) % 3], &product);
        }
    }
}

/// A product in parts of more tiles than there are counters is two kernels, and has the bits of one kernel that adds up its own parts.
#[test]
fn both_ways_to_add_up_parts_have_the_same_bits() {
    let (cuda, plan) = (cuda(), Plan::new(Algorithm::Registers64).split(2));
    let run = |batches: usize| {
        let product = Product {
            batch_a: vec![batches],
            batch_b: vec![batches],
            activation: Activation::Silu,
            ..Product::of([2, 3, 41], TRANSPOSITIONS[0])
        };
        let (p, [a, b, c]) = product.params();
        let of = |len: usize, seed| upload(&cuda, DType::F32, &values(len, seed));
        let (a, b, bias, mut y) = (of(a.size(), 1), of(b.size(), 2), of(3, 3), of(c.size(), 4));
        let before = cuda.launches();
        cuda.matmul_with(plan, &p, &a, &b, Some(&bias), &mut y)
            .expect("it fits");
        (cuda.launches() - before, download(&cuda, &y))
    };
    let ((one, few), (two, many)) = (run(512), run(4097));
    assert_eq!((one, two), (1, 2));
    assert_eq!(few, many[..few.len()]);
}

/// Rows whose bytes are multiples of 16, 8, 4 and 2: every width of copy, in a pipeline that is full and drains, with
/// the end of the operand inside a copy and inside a tile.
#[test]
fn rows_of_every_alignment() {
    let cuda = cuda();
    for algorithm in Algorithm::ALL {
        for trans in TRANSPOSITIONS {
            for (i, rows) in [[16, 104], [72, 100], [36, 102], [70, 101]].into_iter().enumerate() {
                let [m, n] = if i % 2 == 0 { rows } else { [rows[1], rows[0]] };
                for k in [rows[1], rows[0] + 64] {
                    check(
                        &cuda,
                        Plan::new(algorithm),
                        FLOATS[(i + k) % 3],
                        &Product::of([m, n, k], trans),
                    );
                }
            }
        }
    }
}

/// Any product, by any variant, in any number of parts.
fn any_product() -> impl Strategy<Value = (Algorithm, u32, DType, Product)> {
    let side = || {
        prop::sample::select(vec![
            1usize, 2, 6, 8, 17, 31, 32, 33, 40, 63, 64, 65, 66, 72, 101, 127, 128, 129, 136, 264,
        ])
    };
    let depth = prop_oneof![1 => Just(0usize), 16 => side(), 1 => Just(257usize)];
    let batches: Vec<[&[usize]; 2]> = vec![[&[], &[]], [&[], &[]], [&[], &[]], [&[2], &[]], [&[1, 2], &[2, 1]]];
    let plan = (
        prop::sample::select(Algorithm::ALL.to_vec()),
        prop_oneof![2 => Just(1u32), 1 => 2u32..6],
        prop::sample::select(FLOATS.to_vec()),
    );
    let activation = prop::sample::select(vec![
        Activation::None,
        Activation::Relu,
        Activation::Silu,
        Activation::Tanh,
    ]);
    (
        plan,
        (side(), side(), depth),
        any::<[bool; 3]>(),
        prop::sample::select(batches),
        activation,
    )
        .prop_map(
            |((algorithm, splits, dtype), (m, n, k), [trans_a, trans_b, bias], [a, b], activation)| {
                let product = Product {
                    batch_a: a.to_vec(),
                    batch_b: b.to_vec(),
                    bias,
                    activation,
                    ..Product::of([m, n, k], [trans_a, trans_b])
                };
                (algorithm, splits, dtype, product)
            },
        )
}

#[test]
fn every_variant_computes_any_product() {
    let cuda = cuda();
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |((algorithm, splits, dtype, product) in any_product())| {
        check(&cuda, Plan::new(algorithm).split(splits), dtype, &product);
    });
}

/// NaN and infinity reach the results that they belong to, and no others: padding is never multiplied into a result.
#[test]
fn variants_keep_what_is_not_finite_where_it_belongs() {
    let cuda = cuda();
    for (dtype, [m, n, k]) in FLOATS.into_iter().flat_map(|d| [(d, [35, 37, 41]), (d, [35, 40, 48])]) {
        let (p, [_, _, c]) = Product::of([m, n, k], [false, false]).params();
        let mut a = values(m * k, 1);
        a[2 * k + 3] = f64::NAN;
        a[34 * k + 40] = f64::INFINITY;
        let (a, b) = (upload(&cuda, dtype, &a), upload(&cuda, dtype, &vec![1.0; k * n]));
        for algorithm in Algorithm::ALL.into_iter().filter(|&a| cuda.matmul_fits(a, &p, dtype)) {
            let mut c = cuda.alloc(dtype, c.size()).expect("room");
            cuda.matmul_with(Plan::new(algorithm), &p, &a, &b, None, &mut c)
                .expect("it runs");
            for (i, y) in download(&cuda, &c).into_iter().enumerate() {
                let right = match i / n {
                    2 => y.is_nan(),
                    34 => y == f64::INFINITY,
                    _ => y.is_finite(),
                };
                assert!(right, "{algorithm:?} {dtype:?}: element {i} is {y}");
            }
        }
    }
}

/// TF32 keeps 10 bits of fraction: a variant on tensor cores rounds operands of f32, to nearest; the others do not.
#[test]
fn tf32_rounds_and_f32_does_not() {
    // Rows of 16 bytes, for every variant.
    let (p, _) = Product::of([1, 4, 4], [false, false]).params();
    let cuda = cuda();
    let just_below = 1.0 + 2f32.powi(-10) - 2f32.powi(-20);
    let (a, b) = (
        cuda.upload(&[just_below, 0.0, 0.0, 0.0]).expect("room"),
        cuda.upload(&[1.0f32; 16]).expect("room"),
    );
    for algorithm in Algorithm::ALL
        .into_iter()
        .filter(|&a| cuda.matmul_fits(a, &p, DType::F32))
    {
        let mut c = cuda.alloc(DType::F32, 4).expect("room");
        cuda.matmul_with(Plan::new(algorithm), &p, &a, &b, None, &mut c)
            .expect("it runs");
        let expected = if algorithm.is_tensor() {
            1.0 + 2f32.powi(-10)
        } else {
            just_below
        };
        assert_eq!(cuda.download::<f32>(&c), Ok(vec![expected; 4]), "{algorithm:?}");
    }
    let mut c = cuda.alloc(DType::F32, 4).expect("room");
    cuda.matmul(&p, &a, &b, &mut c).expect("it runs");
    assert_eq!(cuda.download::<f32>(&c), Ok(vec![just_below; 4]), "f32 means f32");
}

/// The backend's result is that of the variant which its plan names, bit for bit.
#[test]
fn the_backend_follows_its_plan() {
    let cuda = cuda();
    for (sizes, dtype) in [
        ([40, 30, 600], DType::F32),
        ([3, 70, 9], DType::BF16),
        ([12, 5, 520], DType::F16),
    ] {
        let product = Product::of(sizes, [true, false]);
        let (p, [sa, sb, sc]) = product.params();
        let (a, b) = (
            upload(&cuda, dtype, &values(sa.size(), 1)),
            upload(&cuda, dtype, &values(sb.size(), 2)),
        );
        let plan = cuda.matmul_plan(&p, dtype);
        check(&cuda, plan, dtype, &product);
        let run = |f: &dyn Fn(&mut CudaBuffer)| {
            let mut c = cuda.alloc(dtype, sc.size()).expect("room");
            f(&mut c);
            download(&cuda, &c)
        };
        let chosen = run(&|c| cuda.matmul(&p, &a, &b, c).expect("it runs"));
        let asked = run(&|c| cuda.matmul_with(plan, &p, &a, &b, None, c).expect("it runs"));
        assert_eq!(chosen, asked, "{plan:?}");
    }
}
