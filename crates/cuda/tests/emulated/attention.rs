//! Attention: both kinds of kernels against the CPU in f32, around the edges of their tiles, and a recording of it.

use crate::both::{FLOATS, space, tensor};
use crate::{cuda, full};
use half::{bf16, f16};
use kiln_core::ops::{AttentionMasks, AttentionOperands, AttentionOps, AttentionParams, DotProductAttentionParams};
use kiln_core::philox::Key;
use kiln_core::{Backend, DType, Float, Result, Runtime, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::Cuda;
use kiln_cuda::attention::Algorithm;
use kiln_nn::Tensor;

const SHAPE: [usize; 3] = [2, 17, 24];

/// The result of attention and its gradient.
fn run(x: &Tensor<Cuda>, g: &Tensor<Cuda>) -> Result<[Tensor<Cuda>; 2]> {
    let y = x.self_attention(2, true)?;
    let dx = y.backward_with(g)?.remove(x).expect("x is tracked");
    Ok([y.detach(), dx])
}

/// A recording follows changes of its input.
#[test]
fn a_recording_repeats_it() {
    let cuda = cuda();
    let values = |n: usize, of: fn(f64) -> f64| (0..n).map(|i| of(i as f64)).collect::<Vec<_>>();
    for dtype in FLOATS {
        let g = Tensor::from_f64(&cuda, &values(2 * 17 * 8, f64::cos), &[2, 17, 8], dtype).unwrap();
        let mut x = Tensor::from_f64(&cuda, &values(2 * 17 * 24, f64::sin), &SHAPE, dtype)
            .unwrap()
            .requires_grad();
        // The first call loads the kernels, which no capture can.
        drop(run(&x, &g).unwrap());
        let mut recorded = None;
        let graph = cuda.capture(&mut || {
            recorded = Some(run(&x, &g)?);
            Ok(())
        });
        let mut graph = graph.unwrap().expect("CUDA captures");
        assert_eq!(graph.launches(), 4, "one launch forward, three for the gradient");
        let other = Tensor::from_f64(&cuda, &values(2 * 17 * 24, |x| (x * 0.7).sin()), &SHAPE, dtype).unwrap();
        x.assign(&other).unwrap();
        cuda.replay(&mut graph).unwrap();
        let numbers = |of: &[Tensor<Cuda>; 2]| of.each_ref().map(|t| t.to_f64().unwrap());
        let replayed = numbers(&recorded.expect("the capture ran"));
        assert_eq!(replayed, numbers(&run(&x, &g).unwrap()));
        assert!(replayed.iter().flatten().all(|x| x.is_finite()));
    }
}

/// Values between −`range` and `range` that `salt` chooses, as `dtype` rounds them.
fn rounded(dtype: DType, n: usize, salt: u64, range: f64) -> Vec<f64> {
    let key = Key::new(salt, 0, 0);
    let of = |i| (f64::from(key.word(i)) / f64::from(u32::MAX) * 2.0 - 1.0) * range;
    let round = |v: f64| match dtype {
        DType::BF16 => <bf16 as Float>::of(v).f64(),
        DType::F16 => <f16 as Float>::of(v).f64(),
        _ => f64::from(v as f32),
    };
    (0..n as u64).map(|i| round(of(i))).collect()
}

fn params([n, t, h, d]: [usize; 4], causal: bool) -> AttentionParams {
    let shape = Shape::new(&[n, t, 3 * h * d]).unwrap();
    AttentionParams::new("test", &shape, h, causal).unwrap().0
}

fn numbers<B: Backend>(b: &B, dtype: DType, of: &B::Buffer) -> Vec<f64> {
    match dtype {
        DType::BF16 => b.download::<bf16>(of).unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::F16 => b.download::<f16>(of).unwrap().iter().map(|x| x.to_f64()).collect(),
        _ => b.download::<f32>(of).unwrap().iter().map(|&x| x.into()).collect(),
    }
}

/// The result, the log-sum-exps and the gradient of the input, by the two calls in `of`.
fn three<B: Backend>(
    b: &B,
    dtype: DType,
    p: &AttentionParams,
    [qkv, g]: [&[f64]; 2],
    forward: impl Fn(&B::Buffer, &mut B::Buffer, &mut B::Buffer) -> Result<()>,
    backward: impl Fn([&B::Buffer; 4], &mut B::Buffer) -> Result<()>,
) -> [Vec<f64>; 3] {
    let (x, slopes) = (tensor(b, dtype, qkv), tensor(b, dtype, g));
    let (mut y, mut lse) = (space(b, dtype, g.len()), space(b, DType::F32, p.rows()));
    let mut dx = space(b, dtype, qkv.len());
    forward(&x, &mut y, &mut lse).unwrap();
    backward([&x, &y, &lse, &slopes], &mut dx).unwrap();
    [
        numbers(b, dtype, &y),
        numbers(b, DType::F32, &lse),
        numbers(b, dtype, &dx),
    ]
}

/// Asserts that the difference is small beside `want`, as a whole and in each element: `eps` of the root of the mean square, and eight
/// times that of the largest. Half precision rounds weights, slopes, delta and results once each, which is a quarter of the first bound
/// for each where the errors add up as independent ones do.
fn near(what: &str, got: &[f64], want: &[f64], eps: f64) {
    let largest = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let (mut error, mut size) = (0.0, 0.0);
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!(
            (a - b).abs() <= 8.0 * eps * (largest + 1e-3),
            "{what}: element {i} is {a:e}, expected {b:e}"
        );
        error += (a - b) * (a - b);
        size += b * b;
    }
    assert!(
        error.sqrt() <= eps * (size.sqrt() + 1e-3),
        "{what}: an error of {:e} of the whole",
        (error / size).sqrt()
    );
}

/// Each kind of kernels against the CPU in f32, on the same rounded operands; both write every element.
fn agree(cuda: &Cuda, dims: [usize; 4], causal: bool, dtypes: &[DType]) {
    let (cpu, p, [n, t, h, d]) = (Cpu::poisoned(), params(dims, causal), dims);
    for &dtype in dtypes {
        let qkv = rounded(dtype, 3 * n * t * h * d, 1, 1.5);
        let g = rounded(dtype, n * t * h * d, 2, 1.0);
        let want = three(
            &cpu,
            DType::F32,
            &p,
            [&qkv, &g],
            |x, y, lse| cpu.attention(&p, x, AttentionMasks::default(), y, lse),
            |[x, y, lse, g], dx| cpu.attention_grad(&p, x, AttentionMasks::default(), y, lse, g, dx),
        );
        for algorithm in Algorithm::ALL.into_iter().filter(|a| a.computes(&p, dtype)) {
            let got = three(
                cuda,
                dtype,
                &p,
                [&qkv, &g],
                |x, y, lse| cuda.attention_with(algorithm, &p, x, AttentionMasks::default(), y, lse),
                |[x, y, lse, g], dx| {
                    cuda.attention_grad_with(algorithm, &p, x, AttentionMasks::default(), [y, lse, g], dx)
                },
            );
            let eps = match dtype {
                DType::BF16 => 2f64.powi(-7),
                DType::F16 => 2f64.powi(-10),
                _ => 2f64.powi(-18),
            };
            let of = |what: &str| format!("{what} of {} {dtype} {dims:?} causal {causal}", algorithm.name());
            near(&of("y"), &got[0], &want[0], eps);
            near(&of("lse"), &got[1], &want[1], 2f64.powi(-18));
            near(&of("dqkv"), &got[2], &want[2], eps);
        }
    }
}

/// Widths that are a kernel's, and between: numbers of positions around tiles of 64 and 128.
#[test]
fn tiles_of_any_size_agree() {
    let cuda = cuda();
    let halves = [DType::BF16, DType::F16];
    for (t, d) in [
        (1, 8),
        (15, 40),
        (65, 32),
        (63, 64),
        (129, 64),
        (64, 80),
        (33, 128),
        (70, 136),
        (65, 256),
    ] {
        for causal in [false, true] {
            agree(&cuda, [1, t, 2, d], causal, &halves[..if full() { 2 } else { 1 }]);
        }
    }
    agree(&cuda, [2, 130, 1, 64], true, &halves[1..]);
    agree(&cuda, [1, 200, 1, 32], false, &halves[1..]);
}

/// Calls that the tensor kernels do not take: f32, odd widths, wide heads.
#[test]
fn plain_kernels_agree() {
    let cuda = cuda();
    for (t, d) in [(1, 1), (7, 33), (65, 3), (64, 64), (130, 5), (9, 70)] {
        for causal in [false, true] {
            agree(&cuda, [2, t, 1, d], causal, &FLOATS[..if full() { 3 } else { 1 }]);
        }
    }
    agree(&cuda, [1, 20, 2, 257], true, &[DType::BF16]);
    agree(&cuda, [1, 20, 1, 264], false, &[DType::F16]);
}

/// Keys with scores of −∞, more of them than a tile has, have no weight; a row of nothing else is NaN, as the formula says.
#[test]
fn scores_may_be_minus_infinity() {
    let (cuda, cpu) = (cuda(), Cpu::poisoned());
    let (t, d) = (150, 16);
    let p = params([1, t, 1, d], false);
    for (dtype, lowest) in FLOATS.into_iter().flat_map(|dtype| [(dtype, 130), (dtype, t)]) {
        let mut qkv = rounded(dtype, 3 * t * d, 3, 1.0);
        for i in 0..t {
            qkv[i * 3 * d] = 1.0;
            if i < lowest {
                qkv[i * 3 * d + d] = f64::NEG_INFINITY;
            }
        }
        for algorithm in Algorithm::ALL.into_iter().filter(|a| a.computes(&p, dtype)) {
            let (x, mut y) = (tensor(&cuda, dtype, &qkv), space(&cuda, dtype, t * d));
            let mut lse = space(&cuda, DType::F32, t);
            let none = AttentionMasks::default();
            cuda.attention_with(algorithm, &p, &x, none, &mut y, &mut lse).unwrap();
            let got = numbers(&cuda, dtype, &y);
            if lowest == t {
                assert!(got.iter().all(|x| x.is_nan()), "{} {dtype}", algorithm.name());
                continue;
            }
            let (x, mut y) = (tensor(&cpu, DType::F32, &qkv), space(&cpu, DType::F32, t * d));
            let mut lse = space(&cpu, DType::F32, t);
            cpu.attention(&p, &x, AttentionMasks::default(), &mut y, &mut lse)
                .unwrap();
            near(algorithm.name(), &got, &numbers(&cpu, DType::F32, &y), 2f64.powi(-7));
        }
    }
}

/// The same call gives the same bits.
#[test]
fn bits_repeat() {
    let cuda = cuda();
    let p = params([2, 140, 2, 64], true);
    let (qkv, g) = (
        rounded(DType::BF16, 2 * 140 * 384, 5, 1.0),
        rounded(DType::BF16, 2 * 140 * 128, 6, 1.0),
    );
    let run = || {
        three(
            &cuda,
            DType::BF16,
            &p,
            [&qkv, &g],
            |x, y, lse| cuda.attention(&p, x, AttentionMasks::default(), y, lse),
            |[x, y, lse, g], dx| cuda.attention_grad(&p, x, AttentionMasks::default(), y, lse, g, dx),
        )
        .map(|x| x.into_iter().map(f64::to_bits).collect::<Vec<_>>())
    };
    assert!(run() == run());
}

/// A call of attention of operands that lie apart, with what the mask and the bias are.
#[derive(Clone, Debug)]
struct Apart {
    p: DotProductAttentionParams,
    mask: Option<Vec<u8>>,
    bias: Option<Vec<f64>>,
}

impl Apart {
    /// Queries of `[batch, heads, queries, width]`, `kv` heads and positions of keys; the shapes of the mask and of the bias.
    fn new(dims: [usize; 4], kv: [usize; 2], [causal, heads_first]: [bool; 2], masks: [Option<[usize; 4]>; 2]) -> Self {
        let scale = 1.0 / (dims[3] as f64).sqrt();
        let mut p = DotProductAttentionParams::new("test", dims, kv, scale, causal, heads_first).unwrap();
        let key = Key::new(9, 0, 0);
        let len = |shape: [usize; 4]| shape.iter().product::<usize>() as u64;
        let [mask, bias] = masks;
        if let Some(shape) = mask {
            p.mask = DotProductAttentionParams::strides(shape);
        }
        if let Some(shape) = bias {
            p.bias = DotProductAttentionParams::strides(shape);
        }
        // Every third key is masked, and the queries of the first five entries attend to none where the mask has them all.
        let mask = mask.map(|shape| {
            let of = |i: u64| u8::from(i >= 5 * shape[3] as u64 && !key.word(i).is_multiple_of(3));
            (0..len(shape)).map(of).collect()
        });
        let bias = bias.map(|shape| {
            (0..len(shape))
                .map(|i| f64::from(key.word(i) % 17) / 8.0 - 1.0)
                .collect()
        });
        Apart { p, mask, bias }
    }

    /// The same with dropout.
    fn dropped(mut self, drop: f64) -> Self {
        (self.p.drop, self.p.seed, self.p.stream) = (drop, 77, 4);
        self
    }

    /// The same with a mask of the keys of each sequence that `seen(sequence, key)` leaves.
    fn padded(mut self, seen: impl Fn(u64, u64) -> bool) -> Self {
        let (n, keys) = (self.p.batch, self.p.keys);
        self.p.mask = DotProductAttentionParams::strides([n as usize, 1, 1, keys as usize]);
        let of = |i| u8::from(seen(i / keys, i % keys)) * 3;
        self.mask = Some((0..n * keys).map(of).collect());
        self
    }

    /// The result and the gradients of queries, keys and values.
    fn run<B: Backend>(
        &self,
        b: &B,
        dtype: DType,
        values: [&[f64]; 4],
        forward: impl Fn(AttentionOperands<'_, B::Buffer>, &mut B::Buffer, &mut B::Buffer) -> Result<()>,
        backward: impl Fn(AttentionOperands<'_, B::Buffer>, [&B::Buffer; 3], [&mut B::Buffer; 3]) -> Result<()>,
    ) -> [Vec<f64>; 4] {
        let [q, k, v, g] = values.map(|x| tensor(b, dtype, x));
        let step = b.upload(&[9i32]).unwrap();
        let mask = self.mask.as_ref().map(|mask| b.upload(mask).unwrap());
        let bias = self.bias.as_ref().map(|bias| tensor(b, DType::F32, bias));
        let x = AttentionOperands {
            q: &q,
            k: &k,
            v: &v,
            masks: AttentionMasks {
                mask: mask.as_ref(),
                bias: bias.as_ref(),
                step: Some(&step),
            },
        };
        let [mut y, mut dq, mut dk, mut dv] = [0, 0, 1, 2].map(|i: usize| space(b, dtype, values[i].len()));
        let mut lse = space(b, DType::F32, self.p.rows());
        forward(x, &mut y, &mut lse).unwrap();
        backward(x, [&y, &lse, &g], [&mut dq, &mut dk, &mut dv]).unwrap();
        [y, dq, dk, dv].map(|x| numbers(b, dtype, &x))
    }

    fn agree(&self, cuda: &Cuda, dtype: DType) {
        let (cpu, p) = (Cpu::poisoned(), &self.p);
        let [queries, keys] = [p.heads * p.queries, p.kv_heads * p.keys].map(|n| (n * p.batch * p.width) as usize);
        let values = |len, salt| rounded(dtype, len, salt, 1.5);
        let [q, k, v, g] = [values(queries, 1), values(keys, 2), values(keys, 3), values(queries, 4)];
        let all: [&[f64]; 4] = [&q, &k, &v, &g];
        let want = self.run(
            &cpu,
            DType::F32,
            all,
            |x, y, lse| cpu.dot_product_attention(p, x, y, lse),
            |x, [y, lse, g], [dq, dk, dv]| cpu.dot_product_attention_grad(p, x, y, lse, g, dq, dk, dv),
        );
        for algorithm in Algorithm::ALL.into_iter().filter(|a| a.computes_apart(p, dtype)) {
            let got = self.run(
                cuda,
                dtype,
                all,
                |x, y, lse| cuda.dot_product_attention_with(algorithm, p, x, y, lse),
                |x, given, out| cuda.dot_product_attention_grad_with(algorithm, p, x, given, out),
            );
            let eps = match dtype {
                DType::BF16 => 2f64.powi(-7),
                DType::F16 => 2f64.powi(-10),
                _ => 2f64.powi(-18),
            };
            for (name, (got, want)) in ["y", "dq", "dk", "dv"].into_iter().zip(got.iter().zip(&want)) {
                near(&format!("{name} of {} {dtype} {p:?}", algorithm.name()), got, want, eps);
            }
        }
    }
}

/// Queries and keys of other numbers, shared heads, both orders of heads and positions, causal or not.
#[test]
fn operands_that_lie_apart_agree() {
    let cuda = cuda();
    let cases = [
        ([1, 2, 70, 16], [2, 33]),
        ([2, 4, 33, 64], [2, 130]),
        ([1, 3, 20, 80], [1, 65]),
        ([1, 2, 9, 256], [1, 40]),
    ];
    for (dims, kv) in cases {
        for (causal, heads_first) in [(false, false), (true, true)] {
            let call = Apart::new(dims, kv, [causal, heads_first], [None; 2]);
            call.agree(&cuda, DType::BF16);
            if full() || dims[3] < 64 {
                call.agree(&cuda, DType::F32);
            }
        }
    }
    Apart::new([1, 1, 130, 64], [1, 20], [true, false], [None; 2]).agree(&cuda, DType::F16);
}

/// Masks and biases that broadcast and that do not; queries that attend to no key have a result and gradients of 0.
#[test]
fn masks_and_biases_agree() {
    let cuda = cuda();
    let (dims, kv) = ([2, 2, 40, 40], [1, 70]);
    let [n, h, l, s] = [2, 2, 40, 70];
    let shapes = [
        [Some([n, 1, 1, s]), None],
        [None, Some([1, h, l, s])],
        [Some([n, h, l, s]), Some([1, 1, l, s])],
        [Some([1, 1, l, s]), Some([n, h, 1, 1])],
    ];
    for (i, masks) in shapes.into_iter().enumerate() {
        let call = Apart::new(dims, kv, [i % 2 == 1, i > 1], masks);
        call.agree(&cuda, DType::BF16);
        call.agree(&cuda, DType::F32);
    }
    Apart::new([1, 2, 70, 128], [2, 70], [true, true], [Some([1, 1, 70, 70]), None]).agree(&cuda, DType::F16);
    // Vectors of 256 with a mask.
    Apart::new([1, 1, 9, 136], [1, 12], [false, true], [Some([1, 1, 9, 12]), None]).agree(&cuda, DType::BF16);
}

/// Masks of keys: what is padding at the end and at the beginning, all of it, and holes; tiles that are skipped, and shared heads.
#[test]
fn padding_agrees() {
    let cuda = cuda();
    let ends = |n: u64, key: u64| key < [150, 3][n as usize];
    let begins = |n: u64, key: u64| key >= [0, 77][n as usize];
    let holes = |n: u64, key: u64| n == 0 && (key.is_multiple_of(5) || key / 70 == 2) && key < 160;
    for (d, t, causal) in [
        (64, 160, false),
        (64, 160, true),
        (32, 161, false),
        (128, 165, true),
        (256, 90, false),
    ] {
        let keys = if d == 256 { 70 } else { 163 };
        let call = || Apart::new([2, 2, t.min(130), d], [1, keys], [causal, true], [None; 2]);
        let dtypes = [DType::BF16, DType::F16];
        for &dtype in &dtypes[..if full() { 2 } else { 1 }] {
            call().padded(ends).agree(&cuda, dtype);
            call().padded(begins).agree(&cuda, dtype);
            call().padded(holes).agree(&cuda, dtype);
            call().padded(holes).dropped(0.3).agree(&cuda, dtype);
        }
    }
    Apart::new([2, 1, 5, 24], [1, 163], [false, false], [None; 2])
        .padded(holes)
        .agree(&cuda, DType::F32);
}

/// Dropout, of numbers of keys that are multiples of four and that are not, with masks and without.
#[test]
fn dropout_agrees() {
    let cuda = cuda();
    for (d, l, s, causal) in [
        (32, 70, 132, false),
        (64, 130, 66, true),
        (64, 33, 200, false),
        (128, 140, 68, false),
        (128, 65, 101, true),
        (256, 70, 41, true),
    ] {
        let call = |masks| Apart::new([1, 2, l, d], [1, s], [causal, false], masks).dropped(0.3);
        call([None; 2]).agree(&cuda, DType::BF16);
        call([Some([1, 1, l, s]), Some([1, 2, 1, s])]).agree(&cuda, DType::F16);
        if d == 64 {
            call([None; 2]).agree(&cuda, DType::F32);
            call([Some([1, 1, l, s]), None]).agree(&cuda, DType::F32);
        }
    }
    for drop in [1.0, 1e-7] {
        let call = Apart::new([1, 1, 20, 16], [1, 24], [false, true], [None; 2]).dropped(drop);
        call.agree(&cuda, DType::BF16);
        call.agree(&cuda, DType::F32);
    }
}
