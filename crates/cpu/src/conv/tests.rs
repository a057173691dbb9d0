//! Every fast path against the definition, on all kinds of geometry.

use crate::conv::plan::{Algorithm, NAMES, choose};
use crate::conv::{Geometry, Operands, halves as half_ops, naive};
use crate::epilogue::Epilogue;
use crate::gemm::halves::Half;
use crate::ops::conv as ops;
use crate::{Cpu, CpuBuffer};
use half::{bf16, f16};
use kiln_core::ops::ConvPass as Pass;
use kiln_core::ops::{Activation, ConvOps, ConvParams, Padding, Window};
use kiln_core::philox::{Key, uniform};
use kiln_core::{DType, Float, Runtime, Shape};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Conv {
    x: Shape,
    w: Shape,
    window: Window,
    groups: usize,
}

impl Conv {
    fn params(&self) -> (ConvParams, Shape) {
        ConvParams::new("conv", &self.x, &self.w, &self.window, self.groups).unwrap()
    }
}

fn image(rank: usize, first: usize, size: [usize; 3], last: usize) -> Shape {
    let mut dims = vec![first];
    dims.extend(&size[3 - rank..]);
    dims.push(last);
    Shape::new(&dims).unwrap()
}

fn geometry() -> impl Strategy<Value = Conv> {
    let channels = prop_oneof![4 => 1usize..4, 1 => Just(16usize), 1 => Just(33usize)];
    let groups = prop_oneof![3 => Just(1usize), 1 => 2usize..5];
    let size = prop_oneof![8 => 1usize..10, 1 => Just(13usize), 1 => Just(0usize)];
    (
        (1usize..4, 0usize..4, groups, channels.clone(), channels, any::<bool>()),
        prop::array::uniform3((size, 1usize..4, 1usize..4, 1usize..3, 0usize..3)),
        any::<bool>(),
    )
        .prop_map(|((rank, batch, groups, per_in, per_out, depthwise), dims, same)| {
            let (per_in, per_out, groups) = if depthwise {
                (1, 1, groups * 8 + 1 - per_in % 2)
            } else {
                (per_in, per_out, groups)
            };
            let axis = |f: &dyn Fn(usize) -> usize, fill| [0, 1, 2].map(|i| if i < 3 - rank { fill } else { f(i) });
            let dilation = axis(&|i| dims[i].3, 1);
            let kernel = axis(&|i| dims[i].1, 1);
            let padding = axis(&|i| dims[i].4, 0);
            // At least as large as one window without its padding, which may be empty.
            let size = axis(
                &|i| {
                    dims[i]
                        .0
                        .max(((kernel[i] - 1) * dilation[i] + 1).saturating_sub(2 * padding[i]))
                },
                1,
            );
            let window = Window {
                rank,
                kernel,
                stride: axis(&|i| dims[i].2, 1),
                padding: if same {
                    Padding::Same
                } else {
                    Padding::Explicit(padding)
                },
                dilation,
            };
            Conv {
                x: image(rank, batch, size, per_in * groups),
                w: image(rank, per_out * groups, kernel, per_in),
                window,
                groups,
            }
        })
}

fn values(len: usize, stream: u32) -> Vec<f64> {
    let key = Key::new(7, stream, 0);
    // Few bits, so that bf16 holds them exactly.
    (0..len as u64)
        .map(|i| (f64::from(uniform(key.word(i))) * 16.0).floor() / 8.0 - 1.0)
        .collect()
}

/// Results of the three ops in dtype `T`: y, dx, dw.
fn fast<T: Float>(cpu: &Cpu, conv: &Conv, x: &[f64], w: &[f64], g: &[f64]) -> [Vec<f64>; 3] {
    let (p, _) = conv.params();
    let up = |v: &[f64]| cpu.upload(&v.iter().map(|&v| T::of(v)).collect::<Vec<T>>()).unwrap();
    let down = |b: &CpuBuffer| b.as_slice::<T>().iter().map(|v| v.f64()).collect();
    let (x, w, g) = (up(x), up(w), up(g));
    let out = |like: &CpuBuffer| cpu.alloc(T::DTYPE, like.as_slice::<T>().len()).unwrap();
    let (mut y, mut dx, mut dw) = (out(&g), out(&x), out(&w));
    cpu.conv(&p, &x, &w, None, &mut y).unwrap();
    cpu.conv_data_grad(&p, &g, &w, &mut dx).unwrap();
    cpu.conv_weight_grad(&p, &g, &x, &mut dw).unwrap();
    [down(&y), down(&dx), down(&dw)]
}

/// y, dx and dw by the definition.
fn definition(geometry: &Geometry, [x, w, g]: [&[f64]; 3]) -> [Vec<f64>; 3] {
    let mut want = [g, x, w].map(|like| vec![0.0; like.len()]);
    naive::products(geometry, |yi, xi, wi| {
        want[0][yi] += x[xi] * w[wi];
        want[1][xi] += g[yi] * w[wi];
        want[2][wi] += g[yi] * x[xi];
    });
    want
}

fn check(conv: &Conv) {
    let (p, y) = conv.params();
    let (x, w, g) = (values(conv.x.size(), 1), values(conv.w.size(), 2), values(y.size(), 3));
    let geometry = Geometry::new(&p);
    let want = definition(&geometry, [&x, &w, &g]);
    let cpu = Cpu::poisoned();
    // The bound grows with the number of terms of a sum, each of which loses digits in Winograd's transforms.
    let terms = [
        geometry.depth(),
        geometry.taps() * geometry.group_out(),
        geometry.rows(),
    ];
    let close = |got: [Vec<f64>; 3], rtol: f64| {
        for (op, (got, want)) in got.iter().zip(&want).enumerate() {
            for (i, (a, b)) in got.iter().zip(want).enumerate() {
                assert!(
                    (a - b).abs() <= 1e-4 + 3e-7 * terms[op] as f64 + rtol * b.abs(),
                    "op {op} of {conv:?}: element {i} is {a}, expected {b}"
                );
            }
        }
    };
    close(fast::<f32>(&cpu, conv, &x, &w, &g), 1e-5);
    close(fast::<f64>(&cpu, conv, &x, &w, &g), 1e-12);
    // Sums in f32, one rounding to eight bits at the end.
    close(fast::<bf16>(&cpu, conv, &x, &w, &g), 1.0 / 256.0);
}

/// Compares every algorithm that supports a pass of the case with the definition.
fn check_every_algorithm(conv: &Conv) {
    let (p, y) = conv.params();
    let geometry = Geometry::new(&p);
    let (x, w, g) = (values(conv.x.size(), 1), values(conv.w.size(), 2), values(y.size(), 3));
    let want = definition(&geometry, [&x, &w, &g]);
    let cpu = Cpu::poisoned();
    if geometry.empty() {
        return;
    }
    let (x, w, g) = (&x[..], &w[..], &g[..]);
    let outputs = want.each_ref().map(Vec::len);
    for (op, pass) in [Pass::Forward, Pass::DataGrad, Pass::WeightGrad]
        .into_iter()
        .enumerate()
    {
        for algorithm in Algorithm::all(pass, &geometry, DType::F64) {
            let named = choose::<f64>(pass, &geometry, DType::F64, false, Some(algorithm.name()));
            assert!(NAMES.contains(&named.name()) && named.name() == algorithm.name());
            let mut got = vec![f64::NAN; outputs[op]];
            let to = &mut got;
            let outcome = match pass {
                Pass::Forward => {
                    let epilogue = Epilogue::NONE;
                    ops::forward_by(&cpu, algorithm, &geometry, Operands { x, w, epilogue }, to)
                }
                Pass::DataGrad => ops::data_grad_by(&cpu, algorithm, &geometry, g, w, to),
                Pass::WeightGrad => ops::weight_grad_by(&cpu, algorithm, &geometry, g, x, to),
            };
            assert_eq!(outcome.unwrap(), ops::Outcome::Done, "{algorithm:?} of {conv:?}");
            for (i, (a, b)) in got.iter().zip(&want[op]).enumerate() {
                let near = (a - b).abs() <= 1e-9 * b.abs().max(1.0);
                assert!(
                    near,
                    "{algorithm:?}, {pass:?} of {conv:?}: element {i} is {a}, expected {b}"
                );
            }
        }
    }
}

/// Compares every algorithm that packs halves with the definition. Sums of these values are exact, so there is one rounding.
fn check_halves<T: Half>(conv: &Conv) {
    let (p, y) = conv.params();
    let geometry = Geometry::new(&p);
    let (x, w, g) = (values(conv.x.size(), 1), values(conv.w.size(), 2), values(y.size(), 3));
    let want = definition(&geometry, [&x, &w, &g]);
    let halves = |v: &[f64]| v.iter().map(|&v| T::of(v)).collect::<Vec<T>>();
    let (x, w, g) = (halves(&x), halves(&w), halves(&g));
    let (x, w, g) = (&x[..], &w[..], &g[..]);
    let cpu = Cpu::poisoned();
    for (pass, want) in [Pass::Forward, Pass::DataGrad, Pass::WeightGrad].into_iter().zip(&want) {
        let all = Algorithm::all(pass, &geometry, T::DTYPE);
        for (algorithm, kernels) in all.filter_map(|a| match a {
            Algorithm::Words(kernels) => Some((a, kernels)),
            _ => None,
        }) {
            let named = choose::<f32>(pass, &geometry, T::DTYPE, false, Some(algorithm.name()));
            assert!(NAMES.contains(&named.name()) && named.name() == algorithm.name());
            let mut got = vec![T::of(f64::NAN); want.len()];
            let to = &mut got[..];
            match pass {
                Pass::Forward => half_ops::forward(&cpu, kernels, &geometry, [x, w], Epilogue::NONE, to),
                Pass::DataGrad => half_ops::data_grad(&cpu, kernels, &geometry, [g, w], to),
                Pass::WeightGrad => half_ops::weight_grad(&cpu, kernels, &geometry, [g, x], to),
            }
            .unwrap();
            for (i, (got, &want)) in got.iter().zip(want).enumerate() {
                let want = T::of(want);
                assert_eq!(
                    got.f64(),
                    want.f64(),
                    "{algorithm:?}, {pass:?} of {conv:?}, {}: element {i}",
                    T::DTYPE
                );
            }
        }
    }
}

/// A CPU takes the algorithm that it is asked for; an unknown name is refused with a list of the known ones.
#[test]
fn algorithms_are_asked_for_by_name() {
    let refused = Cpu::builder().algorithm("fft").unwrap_err().to_string();
    assert!(
        refused.contains("fft") && refused.contains("scatter") && refused.contains("packed by task"),
        "{refused}"
    );
    let shape = |dims: &[usize]| Shape::new(dims).unwrap();
    let window = Window::new([5, 5]);
    let (p, _) = ConvParams::new("conv", &shape(&[2, 9, 9, 3]), &shape(&[8, 5, 5, 3]), &window, 1).unwrap();
    for name in ["direct", "packed columns", "window columns", "scatter"] {
        let cpu = Cpu::builder().algorithm(name).unwrap().build();
        let taken = |pass| cpu.conv_algorithm(&p, pass, DType::F32) == Some(name);
        assert!(
            [Pass::Forward, Pass::DataGrad, Pass::WeightGrad].into_iter().any(taken),
            "{name}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn fast_paths_agree_with_the_definition(conv in geometry()) {
        check(&conv);
        check_every_algorithm(&conv);
        check_halves::<bf16>(&conv);
        check_halves::<f16>(&conv);
    }
}

/// Convolutions large enough for several blocks, parts and splits.
fn large() -> [Conv; 6] {
    let conv = |x: [usize; 4], w: [usize; 4], window, groups| Conv {
        x: Shape::new(&x).unwrap(),
        w: Shape::new(&w).unwrap(),
        window,
        groups,
    };
    [
        conv([5, 13, 13, 32], [64, 3, 3, 32], Window::new([3, 3]), 1),
        conv([2, 8, 8, 16], [192, 3, 3, 16], Window::new([3, 3]).padding([1, 1]), 1),
        conv([9, 17, 17, 24], [48, 1, 1, 24], Window::new([1, 1]), 1),
        conv([7, 28, 27, 1], [32, 3, 3, 1], Window::new([3, 3]).padding([0, 1]), 1),
        conv(
            [3, 21, 20, 40],
            [40, 3, 3, 1],
            Window::new([3, 3]).same().stride([2, 2]),
            40,
        ),
        conv([90, 20, 21, 3], [6, 5, 5, 3], Window::new([5, 5]).padding([1, 2]), 1),
    ]
}

#[test]
fn blocks_agree_with_the_definition() {
    large().iter().for_each(check);
    large().iter().for_each(check_every_algorithm);
    large().iter().for_each(check_halves::<bf16>);
    large().iter().for_each(check_halves::<f16>);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for conv in large() {
        let (_, y) = conv.params();
        let (x, w, g) = (values(conv.x.size(), 4), values(conv.w.size(), 5), values(y.size(), 6));
        for run in [fast::<f32>, fast::<bf16>] {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| run(&Cpu::new(), &conv, &x, &w, &g))
            };
            let one = run(1);
            assert!(run(2) == one && run(5) == one, "{conv:?}");
        }
    }
}

#[test]
fn bias_and_activation_are_fused_after_the_sum() {
    let cpu = Cpu::poisoned();
    for conv in [0, 3, 4, 5].map(|i| large()[i].clone()) {
        let (mut p, shape) = conv.params();
        let up = |v: Vec<f64>| {
            cpu.upload(&v.iter().map(|&v| v as f32 * 0.25).collect::<Vec<_>>())
                .unwrap()
        };
        let channels = shape[3];
        let (x, w, bias) = (
            up(values(conv.x.size(), 1)),
            up(values(conv.w.size(), 2)),
            up(values(channels, 3)),
        );
        let mut run = |f: Activation, bias: Option<&CpuBuffer>| {
            p.activation = f as u32;
            let mut y = cpu.alloc(DType::F32, shape.size()).unwrap();
            cpu.conv(&p, &x, &w, bias, &mut y).unwrap();
            y.as_slice::<f32>().to_vec()
        };
        let plain = run(Activation::None, None);
        for &f in Activation::ALL {
            let fused = run(f, Some(&bias));
            for (i, (&got, &x)) in fused.iter().zip(&plain).enumerate() {
                let x = x + bias.as_slice::<f32>()[i % channels];
                let want = crate::epilogue::activate(f, x);
                assert!(
                    (got - want).abs() <= 1e-6 * want.abs().max(1.0),
                    "{f:?}({x}) = {got}, expected {want}"
                );
            }
        }
    }
}

/// A convolution in one dimension, without groups.
fn line(batch: usize, len: usize, channels: usize, outputs: usize, window: Window) -> Conv {
    Conv {
        x: Shape::new(&[batch, len, channels]).unwrap(),
        w: Shape::new(&[outputs, window.kernel[2], channels]).unwrap(),
        window,
        groups: 1,
    }
}

/// Work that grew with the product of strides, or of a kernel with itself, would take minutes here.
#[test]
fn gradients_take_as_many_steps_as_windows_have_elements() {
    let conv = |x: [usize; 4], w: [usize; 4], window, groups| Conv {
        x: Shape::new(&x).unwrap(),
        w: Shape::new(&w).unwrap(),
        window,
        groups,
    };
    let far = Window::new([3, 3]).stride([700, 700]);
    for case in [
        // Strides far larger than the window, over positions that nothing reads.
        conv([1, 1500, 1500, 1], [1, 3, 3, 1], far, 1),
        conv([1, 600, 600, 4], [4, 3, 3, 1], far.stride([290, 290]), 4),
        conv(
            [1, 600, 600, 4],
            [6, 3, 3, 2],
            far.stride([290, 290]).dilation([5, 7]),
            2,
        ),
        conv(
            [1, 400, 400, 16],
            [16, 3, 3, 16],
            Window::new([3, 3]).stride([300, 300]),
            1,
        ),
        // Windows side by side: each position is read by another tap.
        conv(
            [2, 120, 90, 3],
            [5, 40, 30, 3],
            Window::new([40, 30]).stride([40, 30]),
            1,
        ),
        conv(
            [1, 60, 60, 4],
            [4, 40, 30, 2],
            Window::new([40, 30]).stride([19, 30]).padding([9, 0]),
            2,
        ),
        // Kernels as long as the signal, whose border cuts each window in another way.
        line(1, 20_000, 1, 1, Window::new([19_997]).padding([3])),
        line(1, 3000, 16, 17, Window::new([2990])),
        line(1, 40, 16, 17, Window::new([3001]).padding([1500])),
        line(1, 40_000, 1, 2, Window::new([9000]).stride([4500]).padding([17])),
        // Hardly any of the padded image is there.
        line(2, 3, 3, 20, Window::new([2]).dilation([1 << 20]).padding([1 << 19])),
        line(2, 3, 3, 20, Window::new([3]).stride([1 << 20]).padding([1 << 20])),
    ] {
        check(&case);
    }
}

/// An empty batch, with padding so large that its windows could not be listed.
#[test]
fn an_empty_batch_needs_no_memory() {
    let pad = i32::MAX as usize;
    let plane = Conv {
        x: Shape::new(&[0, 3, 3, 4]).unwrap(),
        w: Shape::new(&[6, 2, 2, 4]).unwrap(),
        window: Window::new([2, 2]).stride([64, 64]).padding([pad; 2]),
        groups: 1,
    };
    for case in [line(0, 5, 2, 3, Window::new([3]).stride([3]).padding([pad])), plane] {
        check(&case);
    }
}

/// A 1×1 window with output padding leaves an input position that no window reaches.
#[test]
fn unreached_positions_of_a_pointwise_window_get_no_gradient() {
    let cpu = Cpu::poisoned();
    let shape = |d: &[usize]| Shape::new(d).unwrap();
    let (g, w) = (shape(&[2, 1, 3]), shape(&[3, 1, 1]));
    let window = Window::new([1]).dilation([2]);
    let (p, x) = ConvParams::transposed("conv", &g, &w, &window, [0, 0, 1], 1).unwrap();
    assert_eq!(x.dims(), [2, 2, 1]);
    let (g, w) = (
        cpu.upload(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(),
        cpu.upload(&[1f32, 10.0, 100.0]).unwrap(),
    );
    let mut dx = cpu.alloc(DType::F32, x.size()).unwrap();
    cpu.conv_data_grad(&p, &g, &w, &mut dx).unwrap();
    assert_eq!(dx.as_slice::<f32>(), [321.0, 0.0, 654.0, 0.0]);
}
