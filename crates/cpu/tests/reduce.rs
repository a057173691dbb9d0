//! Reductions against plain f64 loops, at sizes around lanes, tiles and chunks, and at several numbers of threads.

mod common;

use common::{at_threads, close, random};
use kiln_core::ops::{AxisParams, Reduce, ReduceOps, ReduceParams};
use kiln_core::{DType, Runtime, Shape};
use kiln_cpu::Cpu;
use proptest::prelude::*;

fn reduce(f: Reduce, x: &[f32], shape: &[usize], axes: &[isize]) -> Vec<f32> {
    let cpu = Cpu::poisoned();
    let shape = Shape::new(shape).unwrap();
    let (p, out) = ReduceParams::new("test", f, &shape, axes, false).unwrap();
    let mut y = cpu.alloc(DType::F32, out.size()).unwrap();
    cpu.reduce(&p, &cpu.upload(x).unwrap(), &mut y).unwrap();
    cpu.download(&y).unwrap()
}

fn oracle(f: Reduce, x: &[f32], shape: &[usize], axes: &[usize]) -> Vec<f64> {
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
    let outputs: usize = kept.iter().map(|&i| shape[i]).product();
    let (mut y, mut counts) = (vec![None::<f64>; outputs], vec![0.0; outputs]);
    for (n, &v) in x.iter().enumerate() {
        let (mut rest, mut index) = (n, vec![0; shape.len()]);
        for i in (0..shape.len()).rev() {
            index[i] = rest % shape[i];
            rest /= shape[i];
        }
        let o = kept.iter().fold(0, |o, &i| o * shape[i] + index[i]);
        let v = f64::from(v);
        let v = if f == Reduce::SumSquares { v * v } else { v };
        counts[o] += 1.0;
        y[o] = Some(match (y[o], f) {
            (None, _) => v,
            (Some(a), Reduce::Max) => a.max(v),
            (Some(a), Reduce::Min) => a.min(v),
            (Some(a), _) => a + v,
        });
    }
    let divide = |(a, n): (Option<f64>, f64)| match f {
        Reduce::Mean => a.unwrap_or(0.0) / n,
        _ => a.unwrap_or(0.0),
    };
    y.into_iter().zip(counts).map(divide).collect()
}

fn dimension() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1usize..6, 1 => prop::sample::select(vec![0usize, 15, 16, 17, 31, 33, 64, 65, 127, 129])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_axes_agree_with_loops(
        shape in prop::collection::vec(dimension(), 0..6).prop_filter("size", |s| s.iter().product::<usize>() < 1 << 17),
        mask in any::<[bool; 6]>(),
        code in 0u32..5,
    ) {
        let f = Reduce::ALL[code as usize];
        let axes: Vec<usize> = (0..shape.len()).filter(|&i| mask[i]).collect();
        // An empty list means every axis, for which the oracle is asked by name.
        let axes = if axes.is_empty() { (0..shape.len()).collect() } else { axes };
        let signed: Vec<isize> = axes.iter().map(|&a| a as isize).collect();
        let empty = axes.iter().any(|&a| shape[a] == 0);
        prop_assume!(!(empty && matches!(f, Reduce::Max | Reduce::Min)));
        let x = random(shape.iter().product(), 3);
        let (got, want) = (reduce(f, &x, &shape, &signed), oracle(f, &x, &shape, &axes));
        // Terms may cancel, so the error of a sum is held against the sum of its terms' sizes.
        let sizes: Vec<f32> = x.iter().map(|v| v.abs()).collect();
        let sizes = oracle(f, &sizes, &shape, &axes);
        for ((got, want), size) in got.into_iter().zip(want).zip(sizes) {
            let bound = match f {
                Reduce::Max | Reduce::Min => 0.0,
                _ => 32.0 * f64::from(f32::EPSILON) * size,
            };
            let close = (f64::from(got) - want).abs() <= bound || (got.is_nan() && want.is_nan());
            prop_assert!(close, "{got} for {want}, bound {bound:e}");
        }
    }

    #[test]
    fn arg_cumsum_and_top_k_agree_with_loops(
        outer in 0usize..5, n in 1usize..70, inner in prop::sample::select(vec![1usize, 2, 3, 127, 129, 200]),
        reverse in any::<bool>(), k in 0usize..70, ties in any::<bool>(), nan in any::<bool>(),
    ) {
        let cpu = Cpu::poisoned();
        let shape = Shape::new(&[outer, n, inner]).unwrap();
        let mut x = random(shape.size(), 5);
        if ties {
            x.iter_mut().for_each(|v| *v = v.round());
        }
        if nan && !x.is_empty() {
            let half = x.len() / 2;
            x[half] = f32::NAN;
        }
        let k = k.min(n);
        let p = AxisParams::new("test", &shape, 1, k, reverse).unwrap();
        let buffer = cpu.upload(&x).unwrap();
        let mut arg = cpu.alloc(DType::I32, outer * inner).unwrap();
        cpu.arg_reduce(&p, &buffer, &mut arg).unwrap();
        let arg: Vec<i32> = cpu.download(&arg).unwrap();
        let mut sums = cpu.alloc(DType::F32, x.len()).unwrap();
        cpu.cumsum(&p, &buffer, &mut sums).unwrap();
        let sums: Vec<f32> = cpu.download(&sums).unwrap();
        let mut values = cpu.alloc(DType::F32, outer * k * inner).unwrap();
        let mut index = cpu.alloc(DType::I32, outer * k * inner).unwrap();
        cpu.top_k(&p, &buffer, &mut values, &mut index).unwrap();
        let (values, index): (Vec<f32>, Vec<i32>) = (cpu.download(&values).unwrap(), cpu.download(&index).unwrap());
        for o in 0..outer {
            for i in 0..inner {
                let at = |j: usize| x[(o * n + j) * inner + i];
                // A key whose descending (or, reversed, ascending) order is the documented one.
                let sign = if reverse { 1.0 } else { -1.0 };
                let key = |nan_last: bool| move |j: &usize| {
                    let v = f64::from(at(*j)) * sign;
                    (if v.is_nan() { if nan_last { f64::INFINITY } else { f64::NEG_INFINITY } } else { v }, *j)
                };
                let sorted = |nan_last: bool| {
                    let mut order: Vec<usize> = (0..n).collect();
                    order.sort_by(|a, b| key(nan_last)(a).partial_cmp(&key(nan_last)(b)).unwrap());
                    order
                };
                prop_assert_eq!(arg[o * inner + i] as usize, sorted(false)[0]);
                let order = sorted(reverse);
                for (j, &from) in order[..k].iter().enumerate() {
                    let to = (o * k + j) * inner + i;
                    prop_assert_eq!(index[to] as usize, from);
                    prop_assert_eq!(values[to].to_bits(), at(from).to_bits());
                }
                let mut sum = 0.0;
                for step in 0..n {
                    let j = if reverse { n - 1 - step } else { step };
                    sum += f64::from(at(j));
                    close(&[sums[(o * n + j) * inner + i]], &[sum], 1e-5, 1e-5);
                }
            }
        }
    }
}

#[test]
fn large_reductions_agree_with_loops_at_any_number_of_threads() {
    let cases: [(&[usize], &[isize]); 9] = [
        (&[300_001], &[0]),
        (&[40_000, 3], &[0]),
        (&[40_000, 3], &[1]),
        (&[700, 1100], &[0]),
        (&[700, 130], &[0]),
        (&[17, 3000, 5], &[1]),
        (&[2, 400, 3, 100], &[1, 3]),
        (&[2, 400, 3, 100], &[0, 2]),
        (&[30_000, 2, 2], &[0, 2]),
    ];
    for (shape, axes) in cases {
        let x = random(shape.iter().product(), 7);
        let positive: Vec<usize> = axes.iter().map(|&a| a as usize).collect();
        for &f in Reduce::ALL {
            let got = at_threads(|| reduce(f, &x, shape, axes));
            close(&got, &oracle(f, &x, shape, &positive), 1e-6, 1e-4);
        }
    }
}

#[test]
fn nan_and_empty_follow_the_documentation() {
    let mut x = vec![1.0f32; 70];
    x[40] = f32::NAN;
    for f in [Reduce::Max, Reduce::Min, Reduce::Sum] {
        assert!(reduce(f, &x, &[70], &[0])[0].is_nan(), "{f:?}");
        let columns = reduce(f, &x, &[35, 2], &[0]);
        assert!(columns[0].is_nan() && !columns[1].is_nan(), "{f:?}");
    }
    assert_eq!(reduce(Reduce::Sum, &[], &[0, 2], &[0]), [0.0, 0.0]);
    assert!(reduce(Reduce::Mean, &[], &[0, 2], &[0])[1].is_nan());
    assert_eq!(
        reduce(Reduce::Max, &[f32::NEG_INFINITY; 3], &[3], &[0]),
        [f32::NEG_INFINITY]
    );
}

#[test]
fn halves_accumulate_in_f32() {
    let cpu = Cpu::poisoned();
    // In bf16 itself the sum would stop at 256.
    let x = vec![half::bf16::ONE; 1000];
    let (p, _) = ReduceParams::new("test", Reduce::Sum, &Shape::new(&[1000]).unwrap(), &[], false).unwrap();
    let mut y = cpu.alloc(DType::BF16, 1).unwrap();
    cpu.reduce(&p, &cpu.upload(&x).unwrap(), &mut y).unwrap();
    assert_eq!(cpu.download::<half::bf16>(&y).unwrap(), [half::bf16::from_f32(1000.0)]);
    let p = AxisParams::new("test", &Shape::new(&[1000]).unwrap(), 0, 0, false).unwrap();
    let mut y = cpu.alloc(DType::BF16, 1000).unwrap();
    cpu.cumsum(&p, &cpu.upload(&x).unwrap(), &mut y).unwrap();
    assert_eq!(
        cpu.download::<half::bf16>(&y).unwrap()[999],
        half::bf16::from_f32(1000.0)
    );
}
