//! Convolutions: every kernel variant against the f64 CPU on shapes that straddle its tiles.

use crate::twin::{EDGES, bits, empty, read, upload, values, wide};
use crate::{cuda, full, has_warp_groups, with};
use half::{bf16, f16};
use kiln_core::ops::{Activation, ConvOps, ConvParams, Padding, Window};
use kiln_core::{DType, Error, Float, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::conv::{Algorithm, Pass, TensorTile, Tile, choose};
use kiln_cuda::{Cuda, Multiprocessors, Options};
use std::collections::BTreeSet;

/// A convolution to try: the input `[N, D, H, W, C]`, output channels, and the window.
#[derive(Clone, Copy, Debug)]
struct Shapes {
    x: [usize; 5],
    outputs: usize,
    kernel: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    padding: [usize; 3],
    groups: usize,
}

/// A convolution in two dimensions with stride and dilation 1.
fn plane(x: [usize; 4], outputs: usize, kernel: usize, padding: usize) -> Shapes {
    let [n, h, w, c] = x;
    Shapes {
        x: [n, 1, h, w, c],
        outputs,
        kernel: [1, kernel, kernel],
        stride: [1; 3],
        dilation: [1; 3],
        padding: [0, padding, padding],
        groups: 1,
    }
}

impl Shapes {
    fn stride(self, stride: usize) -> Self {
        let stride = [1, stride, stride];
        Shapes { stride, ..self }
    }

    fn dilation(self, dilation: usize) -> Self {
        let dilation = [1, dilation, dilation];
        Shapes { dilation, ..self }
    }

    fn groups(self, groups: usize) -> Self {
        Shapes { groups, ..self }
    }

    fn params(&self) -> ConvParams {
        let window = Window {
            rank: 3,
            kernel: self.kernel,
            stride: self.stride,
            padding: Padding::Explicit(self.padding),
            dilation: self.dilation,
        };
        let [d, h, w] = self.kernel;
        let weight = Shape::new(&[self.outputs, d, h, w, self.x[4] / self.groups]).unwrap();
        let x = Shape::new(&self.x).unwrap();
        ConvParams::new("conv", &x, &weight, &window, self.groups).unwrap().0
    }
}

/// Elements of x, w and y.
fn lens(p: &ConvParams) -> [usize; 3] {
    let n = p.batch as usize;
    [
        n * p.window.in_positions() * p.in_channels as usize,
        p.out_channels as usize * p.window.taps() * p.group_in(),
        n * p.window.out_positions() * p.out_channels as usize,
    ]
}

/// Elements of the operands of a pass, in the order of its arguments, then of its result, and the terms of a result's sum.
fn operands(pass: Pass, p: &ConvParams) -> ([usize; 2], usize, usize) {
    let [x, w, y] = lens(p);
    match pass {
        Pass::Forward => ([x, w], y, p.window.taps() * p.group_in()),
        Pass::DataGrad => ([y, w], x, p.window.taps() * p.group_out()),
        Pass::WeightGrad => ([y, x], w, p.batch as usize * p.window.out_positions()),
    }
}

/// A pass in f64 on the CPU.
fn exact(pass: Pass, p: &ConvParams, a: &[f64], b: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let cpu = Cpu::poisoned();
    let (a, b, bias) = (upload(&cpu, a), upload(&cpu, b), bias.map(|bias| upload(&cpu, bias)));
    let mut out = empty::<_, f64>(&cpu, operands(pass, p).1);
    match pass {
        Pass::Forward => cpu.conv(p, &a, &b, bias.as_ref(), &mut out),
        Pass::DataGrad => cpu.conv_data_grad(p, &a, &b, &mut out),
        Pass::WeightGrad => cpu.conv_weight_grad(p, &a, &b, &mut out),
    }
    .unwrap();
    read(&cpu, &out)
}

/// A pass by one variant.
fn by<T: Float>(
    cuda: &Cuda,
    algorithm: Algorithm,
    pass: Pass,
    p: &ConvParams,
    [a, b]: [&[T]; 2],
    bias: Option<&[T]>,
) -> kiln_core::Result<Vec<T>> {
    let (a, b, bias) = (upload(cuda, a), upload(cuda, b), bias.map(|bias| upload(cuda, bias)));
    let mut out = empty::<_, T>(cuda, operands(pass, p).1);
    match pass {
        Pass::Forward => cuda.conv_with(algorithm, p, &a, &b, bias.as_ref(), &mut out),
        Pass::DataGrad => cuda.conv_data_grad_with(algorithm, p, &a, &b, &mut out),
        Pass::WeightGrad => cuda.conv_weight_grad_with(algorithm, p, &a, &b, &mut out),
    }?;
    Ok(read(cuda, &out))
}

const PASSES: [Pass; 3] = [Pass::Forward, Pass::DataGrad, Pass::WeightGrad];

/// How far a result may be from the exact one: `n` products and additions in f32, each within 2⁻²⁴ of the sum of the
/// absolute values; operands rounded to 11 bits for tf32; the bound of `conv_winograd.cu`; and one rounding to `T`.
fn bound<T: Float>(algorithm: Algorithm, n: usize, absolute: f64, largest: f64, want: f64) -> f64 {
    let (unit, n) = (2f64.powi(-24), n as f64);
    let sum = match algorithm {
        Algorithm::Winograd(_) => (n + 12.0) * unit * 81.0 * n * largest,
        Algorithm::Tensor(_) | Algorithm::Padded if T::DTYPE == DType::F32 => {
            (n + 2.0) * unit * absolute + 2f64.powi(-10) * absolute
        }
        _ => (n + 2.0) * unit * absolute,
    };
    let store = match T::DTYPE {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => unit,
    };
    // The last term is for results that f16 cannot hold in full precision.
    sum + store * (want.abs() + sum) + 2f64.powi(-25)
}

/// Compares every variant as [`compare`] does.
fn variants<T: Float>(cuda: &Cuda, shapes: &Shapes) -> Vec<(&'static str, String)> {
    compare::<T>(cuda, shapes, &Algorithm::ALL)
}

/// Compares variants that fit with the exact result; the others must say that they do not fit. Returns those that ran.
fn compare<T: Float>(cuda: &Cuda, shapes: &Shapes, algorithms: &[Algorithm]) -> Vec<(&'static str, String)> {
    let mut p = shapes.params();
    let mut ran = Vec::new();
    for pass in PASSES {
        let ([first, second], _, n) = operands(pass, &p);
        let (a, b) = (values::<T>(first, 1), values::<T>(second, 2));
        let bias = (pass == Pass::Forward && shapes.outputs.is_multiple_of(2)).then(|| values::<T>(shapes.outputs, 3));
        p.activation = if bias.is_some() { Activation::Relu as u32 } else { 0 };
        let (wide_a, wide_b) = (wide(a.clone()), wide(b.clone()));
        let wide_bias = bias.clone().map(wide);
        let want = exact(pass, &p, &wide_a, &wide_b, wide_bias.as_deref());
        let abs = |v: &[f64]| v.iter().map(|x| x.abs()).collect::<Vec<_>>();
        let absolute = exact(
            pass,
            &p,
            &abs(&wide_a),
            &abs(&wide_b),
            wide_bias.as_deref().map(abs).as_deref(),
        );
        let taps = match pass {
            Pass::WeightGrad => n,
            Pass::Forward => p.group_in(),
            Pass::DataGrad => p.group_out(),
        };
        for &algorithm in algorithms {
            let got = by(cuda, algorithm, pass, &p, [&a, &b], bias.as_deref());
            if !cuda.conv_fits(algorithm, pass, &p, T::DTYPE) {
                assert!(
                    matches!(got, Err(Error::InvalidArgument { .. })),
                    "{algorithm:?} {pass:?} {shapes:?}"
                );
                continue;
            }
            let got = wide(got.unwrap_or_else(|e| panic!("{algorithm:?} {pass:?} {shapes:?}: {e}")));
            let terms = if matches!(algorithm, Algorithm::Winograd(_)) {
                taps
            } else {
                n
            };
            for (i, ((&got, &want), &absolute)) in got.iter().zip(&want).zip(&absolute).enumerate() {
                let bound = bound::<T>(algorithm, terms, absolute, 1.0, want);
                assert!(
                    (got - want).abs() <= bound,
                    "{} {algorithm:?} {pass:?} {shapes:?}: element {i} is {got:e}, expected {want:e} ± {bound:e}",
                    T::DTYPE
                );
            }
            ran.push((T::DTYPE.name(), format!("{algorithm:?} {pass:?}")));
        }
    }
    ran
}

/// Convolutions around the edges of tiles and steps, with every kind of window, and with all that makes a variant unfit.
fn corpus() -> Vec<Shapes> {
    vec![
        // Rows, columns and inner dimension just past a tile: 130, 72, 40.
        plane([2, 5, 13, 40], 72, 1, 0),
        // Columns past a large tile.
        plane([1, 3, 3, 136], 132, 1, 0),
        plane([1, 9, 8, 8], 16, 3, 1),
        plane([2, 7, 9, 16], 8, 3, 1).stride(2),
        // Enough positions for two splits of the weight gradient.
        plane([2, 13, 13, 8], 8, 3, 1),
        // Fours but not eights; three dimensions, each its own way.
        Shapes {
            x: [1, 4, 6, 7, 12],
            outputs: 20,
            kernel: [2, 3, 3],
            stride: [1, 2, 1],
            dilation: [1, 1, 2],
            padding: [1, 1, 2],
            groups: 1,
        },
        plane([1, 8, 7, 16], 32, 3, 2).dilation(2).groups(2),
        plane([2, 5, 6, 9], 15, 3, 1).groups(3),
        // Strides and dilations with and without a common divisor; inputs that no window reads.
        plane([1, 9, 10, 8], 8, 3, 3).stride(2).dilation(2),
        plane([1, 11, 8, 8], 8, 3, 2).stride(3).dilation(2),
        plane([1, 12, 17, 8], 8, 4, 3).stride(5).dilation(3),
        plane([1, 10, 9, 8], 8, 2, 0).stride(4),
        // A window larger than its image.
        plane([1, 2, 3, 8], 8, 5, 2),
        // First layers.
        plane([2, 11, 12, 3], 17, 5, 2).stride(2),
        plane([1, 9, 17, 1], 36, 3, 1),
        plane([1, 17, 8, 4], 64, 3, 1),
        // … with two positions in 16 bytes: an odd and an even number of taps, padding of either kind, as many channels as fit, one tap alone.
        plane([2, 13, 20, 3], 64, 7, 3).stride(2),
        plane([1, 11, 9, 2], 16, 4, 2).stride(2),
        plane([3, 6, 14, 4], 8, 3, 0).stride(2),
        plane([1, 5, 7, 3], 8, 1, 0).stride(2),
        // Depthwise: pairs of channels, a multiplier, and too many taps for the direct kernel.
        plane([2, 6, 5, 66], 66, 3, 1).groups(66),
        plane([1, 7, 6, 33], 66, 3, 1).stride(2).groups(33),
        plane([1, 13, 3, 2], 2, 12, 6).groups(2),
        // Winograd: odd sizes, no padding and more than the window needs, a stack of images.
        plane([2, 7, 6, 12], 68, 3, 1),
        plane([1, 9, 9, 16], 8, 3, 0),
        plane([1, 3, 4, 4], 132, 3, 3),
        Shapes {
            x: [1, 3, 5, 5, 4],
            outputs: 4,
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1; 3],
            padding: [0, 1, 1],
            groups: 1,
        },
        // Channels of whole steps, for the large tiles of tensor cores: rows and columns past a tile, several steps of a tap,
        // groups, strides and dilations, a window larger than its image, the most taps and one more.
        plane([2, 9, 8, 32], 96, 1, 0),
        plane([1, 5, 6, 64], 32, 3, 1).stride(2),
        plane([1, 3, 4, 32], 160, 3, 1),
        plane([1, 6, 5, 64], 64, 3, 2).dilation(2).groups(2),
        plane([1, 4, 5, 40], 64, 3, 1),
        plane([1, 2, 3, 32], 32, 5, 2),
        plane([1, 1, 12, 32], 32, 9, 4),
        plane([1, 1, 12, 32], 32, 10, 5),
        // Nothing to do, or nothing but a bias.
        plane([0, 5, 5, 8], 8, 3, 1),
        plane([2, 0, 3, 8], 8, 1, 1),
    ]
}

#[test]
fn every_variant_in_f32() {
    let cuda = cuda();
    let ran: BTreeSet<_> = corpus().iter().flat_map(|s| variants::<f32>(&cuda, s)).collect();
    // All variants and passes but warp groups, which are of halves; Winograd has no weight gradient, padding no data gradient, and the one for
    // few numbers has nothing else.
    assert_eq!(ran.len(), 13 * 3 - 5, "{ran:?}");
}

#[test]
fn every_variant_in_halves() {
    let cuda = cuda();
    let ran: BTreeSet<_> = corpus().iter().flat_map(|s| variants::<bf16>(&cuda, s)).collect();
    // Halves have neither Winograd nor the large tile without tensor cores.
    let groups = if has_warp_groups(&cuda) { 3 * 3 } else { 0 };
    assert_eq!(ran.len(), 10 * 3 - 3 + groups, "{ran:?}");
    for shapes in corpus().iter().step_by(if full() { 1 } else { 3 }) {
        variants::<f16>(&cuda, shapes);
    }
}

/// Rows, columns and inner dimension past a tile and a step, several steps of a tap and several taps of a step, strides, groups, more steps than
/// stages, and splits of the weight gradient.
#[test]
fn warp_groups() {
    let cuda = cuda();
    let tiles = TensorTile::ALL.into_iter().map(Algorithm::Tensor);
    let groups: Vec<_> = tiles.filter(|a| a.name().starts_with("warpgroup")).collect();
    let mut ran = BTreeSet::new();
    for shapes in [
        plane([2, 5, 14, 72], 64, 1, 0),
        plane([1, 9, 8, 8], 64, 3, 1).stride(2),
        plane([1, 6, 5, 128], 144, 3, 2).dilation(2).groups(2),
        plane([1, 7, 9, 40], 192, 3, 1),
        plane([2, 13, 13, 16], 264, 1, 0),
        plane([1, 2, 3, 128], 128, 5, 2),
    ] {
        ran.extend(compare::<bf16>(&cuda, &shapes, &groups));
    }
    ran.extend(compare::<f16>(&cuda, &plane([2, 5, 14, 72], 64, 3, 1), &groups));
    let all = if has_warp_groups(&cuda) { 2 * 3 * 3 } else { 0 };
    assert_eq!(ran.len(), all, "{ran:?}");
}

/// Every edge along the width, the channels of either side, and channels each on its own.
#[test]
fn every_variant_at_the_edges() {
    let cuda = cuda();
    for (i, n) in EDGES.into_iter().enumerate() {
        let shapes = [
            plane([1, 1, n, 4], 4, 3, 1),
            plane([1, 1, 3, n], 4, 1, 0),
            plane([1, 1, 3, 4], n, 1, 0),
            plane([1, 2, 2, n], n, 3, 1).groups(n),
        ];
        for (j, shapes) in shapes.iter().enumerate() {
            // Unless the run is a full one, each shape is tested in one dtype only.
            let wanted = |dtype| full() || (i + j) % 3 == dtype;
            if wanted(0) {
                variants::<f32>(&cuda, shapes);
            }
            if wanted(1) {
                variants::<bf16>(&cuda, shapes);
            }
            if wanted(2) {
                variants::<f16>(&cuda, shapes);
            }
        }
    }
}

/// The same call gives the same bits: parts are added in order, never in the order in which blocks finish.
#[test]
fn bits_repeat() {
    for shapes in [plane([2, 13, 13, 8], 8, 3, 1), plane([3, 12, 11, 3], 8, 3, 1)] {
        let p = shapes.params();
        let fits = |a: &Algorithm| cuda().conv_fits(*a, Pass::WeightGrad, &p, DType::F32);
        for algorithm in Algorithm::ALL.into_iter().filter(fits) {
            let ([first, second], ..) = operands(Pass::WeightGrad, &p);
            let (g, x) = (values::<f32>(first, 1), values::<f32>(second, 2));
            let run = || by(&cuda(), algorithm, Pass::WeightGrad, &p, [&g, &x], None).unwrap();
            assert!(bits(&run()) == bits(&run()), "{algorithm:?} {shapes:?}");
        }
    }
}

/// f32 means f32, unless the options allow TF32.
#[test]
fn tf32_is_a_choice() {
    let p = plane([1, 6, 5, 16], 16, 3, 1).params();
    let ([first, second], ..) = operands(Pass::Forward, &p);
    let (x, w) = (values::<f32>(first, 1), values::<f32>(second, 2));
    let (small, mut seen) = (Tile::Small, Vec::new());
    for (tf32, variant) in [
        (false, Algorithm::Tiled(small)),
        (true, Algorithm::Tensor(TensorTile::T64x64)),
    ] {
        let cuda = with(Options {
            tf32,
            ..Options::default()
        });
        let (a, b) = (upload(&cuda, &x), upload(&cuda, &w));
        let mut y = empty::<_, f32>(&cuda, operands(Pass::Forward, &p).1);
        cuda.conv(&p, &a, &b, None, &mut y).unwrap();
        let y = read::<_, f32>(&cuda, &y);
        let want = by(&cuda, variant, Pass::Forward, &p, [&x, &w], None).unwrap();
        assert!(bits(&y) == bits(&want), "tf32 {tf32}");
        seen.push(y);
    }
    assert!(seen[0] != seen[1], "TF32 rounds");
}

/// Winograd's results are within 4e-6 of the exact ones, relative to the root of the mean of their squares: for images behind
/// a ReLU with weights and gradients around zero, and for values of similar size, whose sums cancel in the transforms.
#[test]
fn winograd_keeps_its_digits() {
    let cuda = cuda();
    for (shapes, flat) in [
        (plane([1, 9, 10, 16], 16, 3, 1), false),
        (plane([1, 4, 5, 260], 20, 3, 1), false),
        (plane([1, 4, 5, 20], 260, 3, 1), true),
    ] {
        let p = shapes.params();
        for pass in [Pass::Forward, Pass::DataGrad] {
            let ([first, second], ..) = operands(pass, &p);
            let like = |x: f32| if flat { 1.0 + x / 128.0 } else { x };
            let a: Vec<f32> = values::<f32>(first, 1).into_iter().map(like).collect();
            let a: Vec<f32> = match pass {
                Pass::Forward => a.into_iter().map(|x| x.max(0.0)).collect(),
                _ => a,
            };
            let b: Vec<f32> = values::<f32>(second, 2).into_iter().map(like).collect();
            let want = exact(pass, &p, &wide(a.clone()), &wide(b.clone()), None);
            let rms = (want.iter().map(|y| y * y).sum::<f64>() / want.len() as f64).sqrt();
            for algorithm in [Algorithm::Winograd(Tile::Small), Algorithm::Winograd(Tile::Large)] {
                let got = wide(by(&cuda, algorithm, pass, &p, [&a, &b], None).unwrap());
                let error = |(got, want): (&f64, &f64)| (got - want).abs() / rms;
                let worst = got.iter().zip(&want).map(error).fold(0.0, f64::max);
                assert!(worst <= 4e-6, "{algorithm:?} {pass:?} {shapes:?}: {worst:e}");
            }
        }
    }
}

/// A NaN and an infinity reach the windows that see them and no others, as in plain sums.
#[test]
fn winograd_keeps_what_is_not_finite_in_its_windows() {
    let cuda = cuda();
    let p = plane([1, 9, 8, 8], 8, 3, 1).params();
    for pass in [Pass::Forward, Pass::DataGrad] {
        let ([first, second], ..) = operands(pass, &p);
        let (mut a, b) = (values::<f32>(first, 1), values::<f32>(second, 2));
        (a[(2 * 8 + 2) * 8 + 3], a[(6 * 8 + 5) * 8 + 1]) = (f32::NAN, f32::INFINITY);
        let got: Vec<f32> = by(&cuda, Algorithm::Winograd(Tile::Small), pass, &p, [&a, &b], None).unwrap();
        let want: Vec<f32> = by(&cuda, Algorithm::Naive, pass, &p, [&a, &b], None).unwrap();
        assert_eq!(got.iter().filter(|y| y.is_nan()).count(), 9 * 8);
        for (got, want) in got.iter().zip(&want) {
            let same = got == want || got.is_nan() && want.is_nan();
            assert!(same || (got - want).abs() < 1e-4, "{pass:?}: {got}, expected {want}");
        }
    }
}

/// Of two positions in 16 bytes the second one may lie behind the last tap: what is not finite there reaches no window but those that see it.
#[test]
fn pairs_keep_what_is_not_finite_in_its_windows() {
    let (cuda, p) = (cuda(), plane([1, 9, 16, 3], 8, 3, 1).stride(2).params());
    let ([first, second], ..) = operands(Pass::Forward, &p);
    let (mut x, w) = (values::<bf16>(first, 1), values::<bf16>(second, 2));
    // Columns 3 to 5 are a window, and 5 to 7.
    x[(4 * 16 + 6) * 3 + 1] = bf16::INFINITY;
    let run = |algorithm| -> Vec<bf16> { by(&cuda, algorithm, Pass::Forward, &p, [&x, &w], None).unwrap() };
    let (got, want) = (run(Algorithm::Padded), run(Algorithm::Naive));
    assert!(got.iter().zip(&want).all(|(a, b)| a.is_finite() == b.is_finite()));
    assert_eq!(got.iter().filter(|y| !y.is_finite()).count(), 8);
}

/// The variants that the table chooses for the layers of well-known models.
#[test]
fn the_table() {
    use Algorithm::{Depthwise, Few, Naive, Padded, Shallow, Tensor, Tiled, Winograd};
    let sms = Multiprocessors {
        count: 132,
        warpgroups: false,
    };
    let check = |shapes: Shapes, dtype, tf32, want: [Algorithm; 3]| {
        let p = shapes.params();
        let options = Options {
            tf32,
            ..Options::default()
        };
        let got = PASSES.map(|pass| choose(pass, &p, dtype, &options, sms));
        assert_eq!(got, want, "{shapes:?} {dtype}");
        for (pass, algorithm) in PASSES.into_iter().zip(got) {
            assert!(
                algorithm.fits(pass, &p, dtype, sms),
                "{algorithm:?} {pass:?} {shapes:?}"
            );
        }
    };
    let (small, large) = (Tile::Small, Tile::Large);
    let [t64, t128x64, t128, t256, _, _, g256] = TensorTile::ALL;
    // ResNet: the stem, a 3 × 3, a 1 × 1 with a stride, the last stage.
    let stem = plane([32, 224, 224, 3], 64, 7, 3).stride(2);
    check(stem, DType::F32, false, [Shallow; 3]);
    check(stem, DType::BF16, false, [Padded, Shallow, Padded]);
    check(stem, DType::F32, true, [Padded, Shallow, Padded]);
    let middle = plane([64, 28, 28, 128], 128, 3, 1);
    check(middle, DType::BF16, false, [Tensor(t128); 3]);
    check(
        middle,
        DType::F32,
        false,
        [Winograd(large), Winograd(large), Tiled(large)],
    );
    check(middle, DType::F32, true, [Tensor(t128); 3]);
    // Many channels take the widest.
    let deep = plane([256, 14, 14, 256], 256, 3, 1);
    check(deep, DType::BF16, false, [Tensor(t256); 3]);
    let hopper = Multiprocessors {
        warpgroups: true,
        ..sms
    };
    let got = PASSES.map(|pass| choose(pass, &deep.params(), DType::F16, &Options::default(), hopper));
    assert_eq!(got, [Tensor(g256); 3]);
    let exact = Options {
        exact_convolutions: true,
        ..Options::default()
    };
    let got = PASSES.map(|pass| choose(pass, &middle.params(), DType::F32, &exact, sms));
    assert_eq!(got, [Tiled(large); 3]);
    // Few channels take the narrow tile; 16 are too few for a whole step of its data gradient.
    check(
        plane([32, 56, 56, 64], 64, 3, 1),
        DType::BF16,
        false,
        [Tensor(t128x64), Tensor(t128x64), Tensor(t64)],
    );
    check(
        plane([32, 56, 56, 16], 16, 3, 1),
        DType::BF16,
        false,
        [Tensor(t128x64), Tensor(t64), Tensor(t64)],
    );
    let down = plane([32, 56, 56, 256], 512, 1, 0).stride(2);
    check(down, DType::F32, false, [Tiled(large); 3]);
    // ResNeXt's groups of 4, MobileNet, EfficientNet's 5 × 5 with a stride.
    check(
        plane([8, 56, 56, 128], 128, 3, 1).groups(32),
        DType::F32,
        false,
        [Naive; 3],
    );
    check(
        plane([8, 56, 56, 128], 128, 3, 1).groups(8),
        DType::F32,
        false,
        [Tiled(small); 3],
    );
    check(
        plane([8, 112, 112, 32], 32, 3, 1).groups(32),
        DType::F16,
        false,
        [Depthwise; 3],
    );
    check(
        plane([8, 56, 56, 144], 144, 5, 2).stride(2).groups(144),
        DType::F32,
        false,
        [Depthwise; 3],
    );
    // LeNet's second layer: channels that nothing divides.
    check(
        plane([4, 14, 14, 6], 16, 5, 0),
        DType::F32,
        false,
        [Tiled(small), Few, Tiled(small)],
    );
    check(
        plane([4, 14, 14, 6], 16, 5, 0),
        DType::BF16,
        false,
        [Tiled(small), Few, Tiled(small)],
    );
    // Coordinates beyond those of the gathers.
    let far = plane([1, 8, 8, 8], 8, 2, 0).dilation(1 << 29);
    let far = Shapes {
        padding: [0, 1 << 28, 1 << 28],
        ..far
    };
    check(far, DType::F32, false, [Naive; 3]);
    // A product for each of 3249 remainders by the stride, of a row each.
    let apart = plane([1, 60, 60, 8], 8, 3, 0).stride(57);
    check(apart, DType::F32, false, [Tiled(small), Few, Tiled(small)]);
    // The same with a weight that shared memory does not hold.
    let apart = plane([1, 60, 60, 24], 24, 3, 0).stride(57);
    check(apart, DType::F32, false, [Tiled(small), Naive, Tiled(small)]);
}
