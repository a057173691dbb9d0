//! Matrix products, by every kernel variant and by the backend's choice.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{Activation, MatmulOps, MatmulParams};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::Cuda;
use kiln_cuda::matmul::{Algorithm, Plan};

/// m, k, n of C[m, n] = A[m, k] B[k, n], as in benches/peers/torch_cuda.py.
const SIZES: [(usize, usize, usize); 9] = [
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (512, 576, 64),
    (64, 512, 576),
    (8192, 768, 3072),
];

/// Products with few results and long sums, and the numbers of parts of k for split-K.
const LONG: [(usize, usize, usize); 2] = [(64, 8192, 64), (128, 60000, 784)];
const PARTS: [u32; 5] = [1, 4, 16, 64, 256];
/// Dense layers: rows, inputs and outputs.
const LAYERS: [(usize, usize, usize); 3] = [(128, 64, 10), (512, 576, 64), (8192, 768, 3072)];

pub(crate) fn run(bench: &Bench, exact: &Cuda, tf32: &Cuda) -> Result<()> {
    let kinds = [
        ("f32", DType::F32, exact),
        ("tf32", DType::F32, tf32),
        ("bf16", DType::BF16, exact),
        ("f16", DType::F16, exact),
    ];
    for (name, dtype, cuda) in kinds {
        for (m, k, n) in SIZES {
            let id = format!("gemm/{name}/{m}x{k}x{n}");
            let cost = Cost {
                flops: 2 * (m * k * n) as u64,
                bytes: ((m * k + k * n + m * n) * dtype.size()) as u64,
                ..Cost::default()
            };
            if !bench.wants(&id, cost) {
                continue;
            }
            let (p, shape) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&[k, n])?, false, false)?;
            let (a, b) = (random(cuda, 0, dtype, m * k)?, random(cuda, 1, dtype, k * n)?);
            let mut c = cuda.alloc(dtype, shape.size())?;
            bench.measure(cuda, &id, "auto", cost, || cuda.matmul(&p, &a, &b, &mut c))?;
            for algorithm in variants(name, cost.flops).filter(|&a| cuda.matmul_fits(a, &p, dtype)) {
                let plan = Plan::new(algorithm);
                bench.measure(cuda, &id, algorithm.name(), cost, || {
                    cuda.matmul_with(plan, &p, &a, &b, None, &mut c)
                })?;
            }
        }
        for size in LONG {
            split(bench, cuda, dtype, name, size)?;
        }
        for size in LAYERS {
            layer(bench, cuda, dtype, name, size)?;
        }
    }
    Ok(())
}

/// Products with few results and long sums, with k in one part and in several; `auto` is the backend's choice.
fn split(bench: &Bench, cuda: &Cuda, dtype: DType, kind: &str, (m, k, n): (usize, usize, usize)) -> Result<()> {
    let id = format!("gemm-split/{kind}/{m}x{k}x{n}");
    let cost = Cost {
        flops: 2 * (m * k * n) as u64,
        bytes: ((m * k + k * n + m * n) * dtype.size()) as u64,
        ..Cost::default()
    };
    if !bench.wants(&id, cost) {
        return Ok(());
    }
    let (p, shape) = MatmulParams::new("matmul", &Shape::new(&[m, k])?, &Shape::new(&[k, n])?, false, false)?;
    let (a, b) = (random(cuda, 0, dtype, m * k)?, random(cuda, 1, dtype, k * n)?);
    let mut c = cuda.alloc(dtype, shape.size())?;
    bench.measure(cuda, &id, "auto", cost, || cuda.matmul(&p, &a, &b, &mut c))?;
    let algorithm = if kind == "f32" {
        Algorithm::Registers64
    } else {
        Algorithm::Tensor64x64
    };
    for parts in PARTS {
        let variant = format!("{} split {parts}", algorithm.name());
        let plan = Plan::new(algorithm).split(parts);
        bench.measure(cuda, &id, &variant, cost, || {
            cuda.matmul_with(plan, &p, &a, &b, None, &mut c)
        })?;
    }
    Ok(())
}

/// A dense layer: the product with its bias and activation in one launch.
fn layer(bench: &Bench, cuda: &Cuda, dtype: DType, kind: &str, (m, k, n): (usize, usize, usize)) -> Result<()> {
    let id = format!("linear-relu/{kind}/{m}x{k}x{n}");
    let cost = Cost {
        flops: 2 * (m * k * n) as u64,
        bytes: ((m * k + k * n + n + m * n) * dtype.size()) as u64,
        ..Cost::default()
    };
    if !bench.wants(&id, cost) {
        return Ok(());
    }
    let (mut p, shape) = MatmulParams::new("linear", &Shape::new(&[m, k])?, &Shape::new(&[n, k])?, false, true)?;
    p.activation = Activation::Relu as u32;
    let (x, w) = (random(cuda, 0, dtype, m * k)?, random(cuda, 1, dtype, n * k)?);
    let (bias, mut y) = (random(cuda, 2, dtype, n)?, cuda.alloc(dtype, shape.size())?);
    bench.measure(cuda, &id, "auto", cost, || {
        cuda.linear(&p, &x, &w, Some(&bias), None, &mut y)
    })
}

/// The variants with the precision of `kind`, with k in one part. The two slowest are measured only up to 2·2048³ operations,
/// where they take milliseconds.
fn variants(kind: &str, flops: u64) -> impl Iterator<Item = Algorithm> {
    let tensor = match kind {
        "f32" => [false, false],
        "tf32" => [true, true],
        _ => [false, true],
    };
    let patient = flops <= 2 * 2048 * 2048 * 2048;
    Algorithm::ALL.into_iter().filter(move |&a| match a {
        Algorithm::Naive | Algorithm::Tiled => patient && !tensor[0],
        Algorithm::Registers64 | Algorithm::Registers128 => !tensor[0],
        _ => tensor[1],
    })
}
