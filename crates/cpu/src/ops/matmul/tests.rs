use crate::Cpu;
use kiln_core::ops::{Activation, MatmulOps, MatmulParams};
use kiln_core::philox::{Key, uniform};
use kiln_core::{DType, Runtime, Shape};
use proptest::prelude::*;

fn values(len: usize, stream: u32) -> Vec<f32> {
    let key = Key::new(3, stream, 0);
    (0..len as u64).map(|i| uniform(key.word(i)) - 0.5).collect()
}

/// Compares the product in f32 with its definition in f64, and the results of pools of 1 and 3 threads.
fn check(a: &[usize], b: &[usize], trans_a: bool, trans_b: bool) {
    let cpu = Cpu::poisoned();
    let (a, b) = (Shape::new(a).unwrap(), Shape::new(b).unwrap());
    let (p, shape) = MatmulParams::new("matmul", &a, &b, trans_a, trans_b).unwrap();
    let (av, bv) = (values(a.size(), 1), values(b.size(), 2));
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut c = cpu.alloc(DType::F32, shape.size()).unwrap();
            cpu.matmul(&p, &cpu.upload(&av).unwrap(), &cpu.upload(&bv).unwrap(), &mut c)
                .unwrap();
            c.as_slice::<f32>().to_vec()
        })
    };
    let got = run(1);
    assert_eq!(run(3), got, "{p:?}: bits at 3 threads");
    let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
    for (at, &got) in got.iter().enumerate() {
        let (batch, i, j) = (at / (m * n), at / n % m, at % n);
        let (fa, fb) = (
            super::offset(&p, &p.a_batch, batch),
            super::offset(&p, &p.b_batch, batch),
        );
        let want: f64 = (0..k)
            .map(|l| {
                let x = av[fa + if trans_a { l * m + i } else { i * k + l }];
                let y = bv[fb + if trans_b { j * k + l } else { l * n + j }];
                f64::from(x) * f64::from(y)
            })
            .sum();
        let bound = 1e-6 * (k as f64 + 1.0).sqrt() + 1e-5 * want.abs();
        assert!(
            (f64::from(got) - want).abs() <= bound,
            "{p:?}: element {at} is {got}, expected {want}"
        );
    }
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1usize..6, 1 => Just(0usize), 3 => prop::sample::select(vec![15usize, 16, 17, 31, 33, 64, 127, 129])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn products_agree_with_the_definition(
        (m, n, k) in (size(), size(), size()),
        (ta, tb) in any::<(bool, bool)>(),
        batch in prop::sample::select(vec![(vec![], vec![]), (vec![3], vec![]), (vec![2, 1], vec![1, 3]), (vec![0], vec![1])]),
    ) {
        let with = |lead: &[usize], r: usize, c: usize, t: bool| [lead, &if t { [c, r] } else { [r, c] }].concat();
        check(&with(&batch.0, m, k, ta), &with(&batch.1, k, n, tb), ta, tb);
    }
}

#[test]
fn large_and_long_products_are_cut() {
    check(&[300, 200], &[200, 310], false, false);
    check(&[40, 300], &[600, 300], false, true);
    check(&[9001, 31], &[9001, 33], true, false);
    check(&[1, 700], &[3000, 700], false, true);
    check(&[70, 64, 32], &[70, 64, 32], false, true);
    // Products whose tasks pack their own panels.
    check(&[128, 300], &[64, 300], false, true);
    check(&[128, 64], &[64, 577], false, false);
    check(&[128, 65], &[128, 570], true, false);
    // Products whose B is packed a range of k at a time.
    check(&[50, 2001], &[2001, 600], false, false);
    check(&[50, 2001], &[600, 2001], false, true);
}

/// The bias and the activation of a product that is computed in ranges of k are applied once, after the last.
#[test]
fn long_products_are_finished_once() {
    let cpu = Cpu::poisoned();
    let (x, w) = (Shape::new(&[50, 2001]).unwrap(), Shape::new(&[600, 2001]).unwrap());
    let (mut p, y) = MatmulParams::new("linear", &x, &w, false, true).unwrap();
    let (x, w, bias) = (values(x.size(), 1), values(w.size(), 2), values(600, 3));
    let [x, w, bias_buffer] = [&x, &w, &bias].map(|v| cpu.upload(v).unwrap());
    let mut sums = cpu.alloc(DType::F32, y.size()).unwrap();
    cpu.matmul(&p, &x, &w, &mut sums).unwrap();
    let mut got = cpu.alloc(DType::F32, y.size()).unwrap();
    p.activation = Activation::Relu as u32;
    cpu.linear(&p, &x, &w, Some(&bias_buffer), None, &mut got).unwrap();
    for (i, (got, sum)) in got.as_slice::<f32>().iter().zip(sums.as_slice::<f32>()).enumerate() {
        let want = (sum + bias[i % 600]).max(0.0);
        assert!((got - want).abs() <= 1e-6 * (1.0 + sum.abs()), "{i}: {got} {want}");
    }
}
