use crate::{Cpu, CpuBuffer};
use half::{bf16, f16};
use kiln_core::ops::{Binary, BroadcastParams, Compare, ElementwiseOps, Unary, UnaryParams};
use kiln_core::{DType, Element, Runtime, Shape};

fn up<T: Element>(cpu: &Cpu, values: &[T]) -> CpuBuffer {
    cpu.upload(values).unwrap()
}

fn unary(op: Unary, (a, b): (f64, f64), x: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let cpu = Cpu::poisoned();
    let p = UnaryParams::new(op, x.len(), a, b);
    let x = up(&cpu, x);
    let g = up(&cpu, &vec![1f32; x.as_slice::<f32>().len()]);
    let mut y = cpu.alloc(DType::F32, g.as_slice::<f32>().len()).unwrap();
    let mut dx = cpu.alloc(DType::F32, g.as_slice::<f32>().len()).unwrap();
    cpu.unary(&p, &x, &mut y).unwrap();
    cpu.unary_grad(&p, &x, &y, &g, &mut dx).unwrap();
    (y.as_slice().to_vec(), dx.as_slice().to_vec())
}

/// Compares numbers such that NaN equals NaN and zeros of either sign are equal.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
}

/// Compares with the values of `torch` 2 at kinks, at NaN and outside the domain.
#[test]
fn kinks_and_nan_follow_pytorch() {
    let nan = f32::NAN;
    let inf = f32::INFINITY;
    let x = [nan, 0.0, 1.0, -1.0];
    let check = |op, ab, y: [f32; 4], dx: [f32; 4]| {
        let got = unary(op, ab, &x);
        assert!(
            same(&got.0, &y) && same(&got.1, &dx),
            "{op:?}: {got:?}, expected {y:?} {dx:?}"
        );
    };
    check(Unary::Sign, (0.0, 0.0), [0.0, 0.0, 1.0, -1.0], [0.0; 4]);
    check(Unary::Abs, (0.0, 0.0), [nan, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, -1.0]);
    check(Unary::Relu, (0.0, 0.0), [nan, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]);
    check(
        Unary::LeakyRelu,
        (0.5, 0.0),
        [nan, 0.0, 1.0, -0.5],
        [0.5, 0.5, 1.0, 0.5],
    );
    check(Unary::Clamp, (0.0, 1.0), [nan, 0.0, 1.0, 0.0], [0.0; 4]);
    check(Unary::Clamp, (-0.5, 2.0), [nan, 0.0, 1.0, -0.5], [0.0, 1.0, 1.0, 0.0]);
    check(Unary::Powf, (0.0, 0.0), [1.0; 4], [0.0; 4]);
    check(Unary::Powf, (1.0, 0.0), [nan, 0.0, 1.0, -1.0], [1.0; 4]);
    check(Unary::Sqrt, (0.0, 0.0), [nan, 0.0, 1.0, nan], [nan, inf, 0.5, nan]);
    check(Unary::Rsqrt, (0.0, 0.0), [nan, inf, 1.0, nan], [nan, -inf, -0.5, nan]);
}

#[test]
fn saturating_functions_stay_finite() {
    let x = [-1e4, -100.0, 100.0, 1e4];
    for op in [
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Silu,
        Unary::Erf,
    ] {
        let (y, dx) = unary(op, (1.0, 20.0), &x);
        assert!(y.iter().chain(&dx).all(|v| v.is_finite()), "{op:?}: {y:?} {dx:?}");
        assert!(dx[0] == 0.0 && matches!(dx[3], 0.0 | 1.0), "{op:?}: {dx:?}");
    }
    assert_eq!(unary(Unary::Softplus, (2.0, 20.0), &x).0, [0.0, 0.0, 100.0, 1e4]);
}

/// Compares broadcasting with plain index arithmetic, for sizes below and above the start of threads.
#[test]
fn broadcasting_reads_the_right_elements() {
    let cpu = Cpu::poisoned();
    let shapes: &[(&[usize], &[usize])] = &[
        (&[], &[]),
        (&[0], &[1]),
        (&[1], &[33]),
        (&[129], &[129]),
        (&[7, 1], &[1, 5]),
        (&[7, 5], &[5]),
        (&[7, 5], &[7, 1]),
        (&[3, 1, 5], &[4, 1]),
        (&[2, 3, 1, 5], &[3, 4, 1]),
        (&[2, 1, 3, 1, 2, 1], &[1, 3, 1, 2, 1, 2]),
        (&[3, 40_000], &[3, 1]),
        (&[40_000, 3], &[3]),
        (&[90_001], &[]),
        (&[2, 3, 1], &[2, 1, 20_011]),
    ];
    for (da, db) in shapes {
        let (sa, sb) = (Shape::new(da).unwrap(), Shape::new(db).unwrap());
        let values = |n: usize, from: f32| (0..n).map(|i| from + (i % 997) as f32).collect::<Vec<_>>();
        let (va, vb) = (values(sa.size(), 0.0), values(sb.size(), 100.0));
        let mask: Vec<u8> = (0..sa.size()).map(|i| (i % 3 == 0) as u8).collect();
        let (a, b, m) = (up(&cpu, &va), up(&cpu, &vb), up(&cpu, &mask));
        let (p, out) = BroadcastParams::new("t", Binary::Sub as u32, &sa, &sb, Some(&sa)).unwrap();
        let index = |s: &Shape, flat: usize| {
            let (strides, of) = (s.broadcast_strides("t", &out).unwrap(), out.strides());
            (0..out.rank())
                .map(|d| (flat / of[d] % out[d]) * strides[d] as usize)
                .sum::<usize>()
        };
        let mut y = cpu.alloc(DType::F32, out.size()).unwrap();
        cpu.binary(&p, &a, &b, &mut y).unwrap();
        let want: Vec<f32> = (0..out.size()).map(|i| va[index(&sa, i)] - vb[index(&sb, i)]).collect();
        assert_eq!(y.as_slice::<f32>(), want, "{da:?} {db:?}");
        cpu.select(&p, &m, &a, &b, &mut y).unwrap();
        let pick = |i| {
            if mask[index(&sa, i)] != 0 {
                va[index(&sa, i)]
            } else {
                vb[index(&sb, i)]
            }
        };
        assert_eq!(
            y.as_slice::<f32>(),
            (0..out.size()).map(pick).collect::<Vec<_>>(),
            "{da:?} {db:?}"
        );
        let (p, _) = BroadcastParams::new("t", Compare::Lt as u32, &sa, &sb, None).unwrap();
        let mut lt = cpu.alloc(DType::U8, out.size()).unwrap();
        cpu.compare(&p, &a, &b, &mut lt).unwrap();
        let want: Vec<u8> = (0..out.size())
            .map(|i| (va[index(&sa, i)] < vb[index(&sb, i)]) as u8)
            .collect();
        assert_eq!(lt.as_slice::<u8>(), want, "{da:?} {db:?}");
    }
}

#[test]
fn extremes_keep_nan() {
    let cpu = Cpu::new();
    let (a, b) = ([f32::NAN, 1.0, 2.0, -0.5], [1.0, f32::NAN, 1.0, 3.0]);
    let shape = Shape::new(&[4]).unwrap();
    for (op, want) in [(Binary::Maximum, [2.0, 3.0]), (Binary::Minimum, [1.0, -0.5])] {
        let (p, _) = BroadcastParams::new("t", op as u32, &shape, &shape, None).unwrap();
        let mut y = cpu.alloc(DType::F32, 4).unwrap();
        cpu.binary(&p, &up(&cpu, &a), &up(&cpu, &b), &mut y).unwrap();
        let y = y.as_slice::<f32>();
        assert!(y[0].is_nan() && y[1].is_nan() && y[2..] == want, "{op:?}: {y:?}");
    }
}

#[test]
fn casts_round_once_and_saturate() {
    let cpu = Cpu::poisoned();
    fn cast<T: Element, U: Element>(cpu: &Cpu, x: &[T]) -> Vec<U> {
        let mut y = cpu.alloc(U::DTYPE, x.len()).unwrap();
        cpu.cast(&up(cpu, x), &mut y).unwrap();
        y.as_slice().to_vec()
    }
    let x = [f32::NAN, -1.5, 2.9, 3e9, -3e9];
    assert_eq!(cast::<f32, i32>(&cpu, &x), [0, -1, 2, i32::MAX, i32::MIN]);
    assert_eq!(cast::<f32, u8>(&cpu, &x), [0, 0, 2, 255, 0]);
    assert_eq!(cast::<i32, u8>(&cpu, &[-1, 7, 300]), [0, 7, 255]);
    assert_eq!(cast::<u8, f32>(&cpu, &[0, 255]), [0.0, 255.0]);
    assert_eq!(cast::<i32, f32>(&cpu, &[16_777_217]), [16_777_216.0]);
    assert_eq!(cast::<f32, f32>(&cpu, &[1.5]), [1.5]);
    assert_eq!(cast::<bf16, f16>(&cpu, &[bf16::from_f32(0.5)]), [f16::from_f32(0.5)]);
    // Just above halfway between two neighbours: the part below the 32nd bit decides.
    let above = |step: f64| 1.0 + step / 2.0 + f64::EPSILON;
    assert_eq!(
        cast::<f64, bf16>(&cpu, &[above(2f64.powi(-7))]),
        [bf16::from_f64(1.0 + 2f64.powi(-7))]
    );
    assert_eq!(
        cast::<f64, f16>(&cpu, &[above(2f64.powi(-10))]),
        [f16::from_f64(1.0 + 2f64.powi(-10))]
    );
    assert_eq!(
        cast::<i32, bf16>(&cpu, &[(1 << 30) + (1 << 22) + 1]),
        [bf16::from_f32(1_082_130_432.0)]
    );
}

#[test]
fn halves_compute_in_f32() {
    let cpu = Cpu::new();
    // 1 + 2⁻⁸ is not a bf16: the sum is rounded once, to even.
    let (mut y, x) = (
        up(&cpu, &[bf16::ONE; 3]),
        up(&cpu, &[2f32.powi(-8), 3.0 * 2f32.powi(-8), 2.0].map(bf16::from_f32)),
    );
    cpu.accumulate(&x, &mut y).unwrap();
    assert_eq!(y.as_slice::<bf16>(), [1.0, 1.015625, 3.0].map(bf16::from_f32));
    cpu.fill(0.1, &mut y).unwrap();
    assert_eq!(y.as_slice::<bf16>(), [bf16::from_f32(0.1); 3]);
}
