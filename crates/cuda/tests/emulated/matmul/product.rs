//! A product as a test sees it: its operands, its value in f64, and how far a kernel may be from that.

use half::{bf16, f16};
use kiln_core::ops::{Activation, ElementwiseOps, MatmulParams, ResidualOps, ResidualParams, RowNorm, UnaryParams};
use kiln_core::{Buffer, DType, Error, Runtime, Shape};
use kiln_cuda::matmul::{Epilogue, Plan};
use kiln_cuda::{Cuda, CudaBuffer};

/// A product: its sizes, the storage of its operands, and the fused bias and activation.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) batch_a: Vec<usize>,
    pub(super) batch_b: Vec<usize>,
    pub(super) sizes: [usize; 3],
    pub(super) trans: [bool; 2],
    pub(super) bias: bool,
    pub(super) activation: Activation,
}

impl Product {
    pub(super) fn of(sizes: [usize; 3], trans: [bool; 2]) -> Self {
        Self {
            batch_a: vec![],
            batch_b: vec![],
            sizes,
            trans,
            bias: false,
            activation: Activation::None,
        }
    }

    /// The product's parameters and the shapes of A, B and C.
    pub(super) fn params(&self) -> (MatmulParams, [Shape; 3]) {
        let [m, n, k] = self.sizes;
        let shape = |batch: &[usize], r: usize, c: usize, t: bool| {
            let matrix = if t { [c, r] } else { [r, c] };
            Shape::new(&[batch, &matrix].concat()).expect("a small shape")
        };
        let a = shape(&self.batch_a, m, k, self.trans[0]);
        let b = shape(&self.batch_b, k, n, self.trans[1]);
        let (mut p, c) = MatmulParams::new("matmul", &a, &b, self.trans[0], self.trans[1]).expect("they fit");
        p.activation = self.activation as u32;
        (p, [a, b, c])
    }
}

/// Numbers in [-1, 1) with few enough bits for every dtype, different for every seed.
pub(super) fn values(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let draw = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((state >> 33) % 256) as f64 / 128.0 - 1.0
    };
    std::iter::repeat_with(draw).take(len).collect()
}

pub(super) fn upload(cuda: &Cuda, dtype: DType, x: &[f64]) -> CudaBuffer {
    let buffer = match dtype {
        DType::BF16 => cuda.upload(&x.iter().map(|&x| bf16::from_f64(x)).collect::<Vec<_>>()),
        DType::F16 => cuda.upload(&x.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>()),
        _ => cuda.upload(&x.iter().map(|&x| x as f32).collect::<Vec<_>>()),
    };
    buffer.expect("room")
}

pub(super) fn download(cuda: &Cuda, x: &CudaBuffer) -> Vec<f64> {
    let read = match x.dtype() {
        DType::BF16 => cuda.download::<bf16>(x).map(|x| x.iter().map(|x| x.to_f64()).collect()),
        DType::F16 => cuda.download::<f16>(x).map(|x| x.iter().map(|x| x.to_f64()).collect()),
        _ => cuda
            .download::<f32>(x)
            .map(|x| x.iter().map(|&x| f64::from(x)).collect()),
    };
    read.expect("the kernel ran")
}

/// One result in f64: the exact value before the activation, and the sum of absolute products.
struct Exact {
    sum: f64,
    size: f64,
}

fn exact(product: &Product, a: &[f64], b: &[f64], bias: Option<&[f64]>) -> Vec<Exact> {
    let (p, _) = product.params();
    let [m, n, k] = product.sizes;
    let start = |strides: &[i64], mut batch: usize| {
        let mut at = 0;
        for i in (0..p.batch_rank as usize).rev() {
            at += batch % p.batch[i] as usize * strides[i] as usize;
            batch /= p.batch[i] as usize;
        }
        at
    };
    let mut all = Vec::new();
    for batch in 0..p.batches() {
        let (a, b) = (&a[start(&p.a_batch, batch)..], &b[start(&p.b_batch, batch)..]);
        let (a_row, a_step) = if product.trans[0] { (1, m) } else { (k, 1) };
        let (b_column, b_step) = if product.trans[1] { (k, 1) } else { (1, n) };
        for i in 0..m {
            for j in 0..n {
                let bias = bias.map_or(0.0, |bias| bias[j]);
                let (mut sum, mut size) = (0.0, 0.0);
                // Tests are not optimised, where a loop over a range takes a call of a function for each step.
                let (mut l, mut at_a, mut at_b) = (0, i * a_row, j * b_column);
                while l < k {
                    let term = a[at_a] * b[at_b];
                    sum += term;
                    size += if term < 0.0 { -term } else { term };
                    l += 1;
                    at_a += a_step;
                    at_b += b_step;
                }
                all.push(Exact {
                    sum: sum + bias,
                    size: size + bias.abs(),
                });
            }
        }
    }
    all
}

fn activate(f: Activation, x: f64) -> f64 {
    match f {
        Activation::Relu => x.max(0.0),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        _ => x,
    }
}

/// Half of the distance between neighbours of 1.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// Runs a product by a plan, twice, and compares it with f64; a plan that does not fit the product must say so.
///
/// A sum of k products and a bias in f32, in any order and cut off instead of rounded at each addition, is off by at most
/// (k + 2)·2⁻²³ of the sum of their absolute values. The operands are exact in every dtype, TF32 included. An activation
/// amplifies that by at most 1.2, and is itself good to 8 units of f32; then comes one rounding to the dtype (or to one
/// of its subnormals), and before it one of the activation's input where its gradient reads that.
pub(super) fn check(cuda: &Cuda, plan: Plan, dtype: DType, product: &Product) {
    let (p, [sa, sb, sc]) = product.params();
    let what = || format!("{plan:?} {dtype:?} {product:?}");
    let (a, b) = (values(sa.size(), 1), values(sb.size(), 2));
    let bias = product.bias.then(|| values(product.sizes[1], 3));
    let (ua, ub) = (upload(cuda, dtype, &a), upload(cuda, dtype, &b));
    let ubias = bias.as_ref().map(|bias| upload(cuda, dtype, bias));
    let run = || {
        let mut c = cuda.alloc(dtype, sc.size()).expect("room");
        cuda.matmul_with(plan, &p, &ua, &ub, ubias.as_ref(), &mut c)
            .unwrap_or_else(|e| panic!("{}: {e}", what()));
        download(cuda, &c)
    };
    if !cuda.matmul_fits(plan.algorithm(), &p, dtype) {
        let mut c = cuda.alloc(dtype, sc.size()).expect("room");
        let refused = cuda.matmul_with(plan, &p, &ua, &ub, ubias.as_ref(), &mut c);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{}", what());
        return;
    }
    let found = run();
    let expected = exact(product, &a, &b, bias.as_deref());
    assert_eq!(found.len(), expected.len());
    let unit = (product.sizes[2] + 2) as f64 * 2f64.powi(-23);
    for (i, (found, exact)) in found.iter().zip(&expected).enumerate() {
        let y = activate(product.activation, exact.sum);
        let input = if product.activation.reads_input() {
            1.2 * exact.sum.abs()
        } else {
            0.0
        };
        let bound = 1.2 * unit * exact.size
            + 8.0 * 2f64.powi(-24) * y.abs()
            + rounding(dtype) * (y.abs() + input)
            + 2f64.powi(-25);
        assert!(
            (found - y).abs() <= bound,
            "{}: element {i} is {found}, not {y} ± {bound:e}",
            what()
        );
    }
    let again = run();
    let same = found.iter().zip(&again).all(|(x, y)| x.to_bits() == y.to_bits());
    assert!(same, "{}: another run gave other bits", what());
    check_epilogues(cuda, plan, product, (&ua, &ub), ubias.as_ref(), sc.size());
}

/// The bits of a buffer's values, where all NaN are one.
fn bits(cuda: &Cuda, x: &CudaBuffer) -> Vec<u64> {
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    download(cuda, x).into_iter().map(bits).collect()
}

/// A layer norm that is made beside a product has the bits of the op, of streams and vectors of the same dtype and of f32, and the product
/// its own.
fn check_norm(cuda: &Cuda, dtype: DType, [m, n, _]: [usize; 3], run: &mut dyn FnMut(Epilogue<'_>) -> CudaBuffer) {
    let shape = Shape::new(&[m, n]).expect("a small shape");
    let p = ResidualParams::new("residual_norm", &shape, 1e-5).expect("rows with elements");
    let sums = run(Epilogue::default());
    for (stream, vectors) in [(dtype, dtype), (dtype, DType::F32), (DType::F32, DType::F32)] {
        let s = upload(cuda, stream, &values(m * n, 5));
        let [scale, shift] = [6, 7].map(|seed| upload(cuda, vectors, &values(n, seed)));
        let new = |dtype, len| cuda.alloc(dtype, len).expect("room");
        let (mut y, mut kept) = (new(dtype, m * n), new(dtype, m * n));
        let (mut mean, mut rstd) = (new(DType::F32, m), new(DType::F32, m));
        cuda.residual_norm(&p, &s, None, None, &scale, &shift, &mut y, &mut mean, &mut rstd)
            .expect("it runs");
        let norm = RowNorm {
            p,
            s: &s,
            mean: &mean,
            rstd: &rstd,
            scale: &scale,
            shift: &shift,
        };
        let c = run(Epilogue {
            kept: Some(&mut kept),
            norm: Some(&norm),
            ..Epilogue::default()
        });
        let what = || format!("{stream} {vectors} {dtype} {m}×{n}");
        assert_eq!(bits(cuda, &kept), bits(cuda, &y), "{}: norm", what());
        assert_eq!(bits(cuda, &c), bits(cuda, &sums), "{}: product", what());
    }
}

/// What an epilogue keeps and the slopes by which it multiplies have the bits of a product and an elementwise op after it.
fn check_epilogues(
    cuda: &Cuda,
    plan: Plan,
    product: &Product,
    of: (&CudaBuffer, &CudaBuffer),
    bias: Option<&CudaBuffer>,
    len: usize,
) {
    // Each activation has its turn.
    let f = Activation::ALL[1 + product.sizes.iter().sum::<usize>() % (Activation::ALL.len() - 1)];
    let function = f.function().expect("not the identity");
    let dtype = of.0.dtype();
    let with = |f: Activation| MatmulParams {
        activation: f as u32,
        ..product.params().0
    };
    let new = || cuda.alloc(dtype, len).expect("room");
    let what = || format!("{plan:?} {dtype:?} {product:?} {f:?}");
    let run = |f: Activation, epilogue: Epilogue<'_>| {
        let mut c = new();
        cuda.product_with(plan, &with(f), of, epilogue, &mut c)
            .unwrap_or_else(|e| panic!("{}: {e}", what()));
        c
    };
    let plain = |bias| {
        let epilogue = Epilogue {
            bias,
            ..Epilogue::default()
        };
        run(Activation::None, epilogue)
    };
    let params = UnaryParams::new(function, len, 0.0, 0.0);
    if f.reads_input() {
        let (sums, mut kept, mut values) = (plain(bias), new(), new());
        let c = run(
            f,
            Epilogue {
                bias,
                kept: Some(&mut kept),
                ..Epilogue::default()
            },
        );
        cuda.unary(&params, &sums, &mut values).expect("it runs");
        assert_eq!(bits(cuda, &kept), bits(cuda, &sums), "{}: kept", what());
        assert_eq!(bits(cuda, &c), bits(cuda, &values), "{}: values", what());
    }
    let at = upload(cuda, dtype, &values(len, 4));
    let (sums, mut slopes, mut kept, mut values) = (plain(None), new(), new(), new());
    cuda.unary_grad(&params, &at, &at, &sums, &mut slopes).expect("it runs");
    cuda.unary(&params, &at, &mut values).expect("it runs");
    for kept in [None, Some(&mut kept)] {
        let epilogue = Epilogue {
            kept,
            slope_at: Some(&at),
            ..Epilogue::default()
        };
        let c = run(f, epilogue);
        assert_eq!(bits(cuda, &c), bits(cuda, &slopes), "{}: slopes", what());
    }
    assert_eq!(bits(cuda, &kept), bits(cuda, &values), "{}: values", what());
    if with(f).batch_rank == 0 && len > 0 {
        check_norm(cuda, dtype, product.sizes, &mut |epilogue| {
            run(Activation::None, epilogue)
        });
    }
}
