//! Tests every algorithm on every product that it supports, with the block sizes of many machines.

use super::*;
use crate::gemm::SERIAL_THRESHOLD;
use crate::scalar::Scalar;
use crate::simd::machine::{Cache, Machine};
use kiln_core::DType;
use kiln_core::ops::Activation;
use kiln_core::philox::{Key, uniform};

fn values<A: Scalar>(len: usize, stream: u32) -> Vec<A> {
    let key = Key::new(17, stream, 0);
    (0..len as u64)
        .map(|i| A::of(f64::from(uniform(key.word(i))) - 0.5))
        .collect()
}

/// Values of few bits, so that sums are exact in any order.
fn eighths<A: Scalar>(len: usize, stream: u32) -> Vec<A> {
    let values = values::<A>(len, stream);
    values.iter().map(|x| A::of((x.f64() * 16.0).floor() / 8.0)).collect()
}

fn machine(caches: &[[usize; 4]]) -> Machine {
    let cache = |&[level, size, ways, threads]: &[usize; 4]| Cache {
        level: level as u32,
        size,
        ways,
        threads,
    };
    Machine {
        name: String::new(),
        instruction_set: "portable",
        bf16: "widened",
        caches: caches.iter().map(cache).collect(),
    }
}

/// This machine, and machines that report nothing, nonsense, tiny caches, the caches of a Zen 4 and a Sapphire Rapids, an
/// L2 cache shared by four cores, and caches larger than any that exist.
fn machines() -> Vec<Machine> {
    vec![
        Machine::this(),
        machine(&[]),
        machine(&[[1, 0, 0, 0], [2, 0, 0, 0]]),
        machine(&[[1, 1, 4, 9], [2, 1, 1, 1 << 30]]),
        machine(&[[1, 1 << 10, 2, 1], [2, 1 << 12, 2, 1]]),
        machine(&[[1, 32 << 10, 8, 2], [2, 1 << 20, 8, 2], [3, 32 << 20, 16, 16]]),
        machine(&[[1, 48 << 10, 12, 2], [2, 2 << 20, 16, 2]]),
        machine(&[[1, 32 << 10, 8, 1], [2, 2 << 20, 16, 4]]),
        machine(&[[1, 1 << 30, 16, 1], [2, usize::MAX / 2, 16, 1]]),
    ]
}

fn shapes([m, n, k]: [usize; 3]) -> [GemmShape; 4] {
    [(false, false), (false, true), (true, false), (true, true)].map(|(trans_a, trans_b)| GemmShape {
        m,
        n,
        k,
        trans_a,
        trans_b,
    })
}

fn run<A: Scalar>(
    algorithm: Algorithm,
    s: GemmShape,
    blocking: &Blocking,
    [a, b]: [&[A]; 2],
    e: Epilogue<'_, A>,
) -> Vec<A> {
    // Elements that stay unwritten are NaN.
    let mut c = vec![A::of(f64::NAN); s.m * s.n];
    let product = Product::new(s, a, b);
    product.run(&Cpu::poisoned(), algorithm, blocking, &mut c, e).unwrap();
    c
}

fn check<A: Scalar>(sizes: [usize; 3], machines: &[Machine]) {
    let [m, n, k] = sizes;
    let (a, b, bias) = (eighths::<A>(m * k, 1), eighths::<A>(k * n, 2), eighths::<A>(n, 3));
    let e = Epilogue {
        bias: Some(&bias),
        activation: Activation::Relu,
    };
    for s in shapes(sizes) {
        let at = |[i, j]: [usize; 2], [rows, columns]: [usize; 2], transposed: bool| match transposed {
            true => j * rows + i,
            false => i * columns + j,
        };
        let want: Vec<f64> = (0..m * n)
            .map(|to| {
                let (i, j) = (to / n, to % n);
                let products = (0..k).map(|l| {
                    let (x, y): (A, A) = (a[at([i, l], [m, k], s.trans_a)], b[at([l, j], [k, n], s.trans_b)]);
                    x.f64() * y.f64()
                });
                let bias: A = bias[j];
                let sum: f64 = products.sum();
                (sum + bias.f64()).max(0.0)
            })
            .collect();
        for machine in machines {
            let blocking = Blocking::for_machine(machine, A::DTYPE);
            for algorithm in Algorithm::all(&s, A::DTYPE) {
                let got = run(algorithm, s, &blocking, [&a, &b], e);
                for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                    let place = [at / n, at % n];
                    assert_eq!(got.f64(), *want, "{algorithm:?} of {s:?} with {blocking:?}: {place:?}");
                }
            }
        }
    }
}

#[test]
fn every_algorithm_computes_what_it_supports() {
    let this = [Machine::this()];
    for m in [1, 2, 11, 13, 17, 49] {
        for n in [1, 15, 17, 33, 70] {
            for k in [0, 1, 16, 37] {
                check::<f32>([m, n, k], &this);
                check::<f64>([m, n, k], &this);
            }
        }
    }
    check::<f32>([25, 34, 769], &this);
    check::<f64>([25, 34, 769], &this);
}

#[test]
fn every_machine_computes_the_same_products() {
    let machines = machines();
    // Products that are cut into blocks, into parts of k and into steps of k, and rows that share the sets of a cache.
    for sizes in [[130, 200, 100], [40, 60, 2100], [14, 600, 2001], [50, 100, 1024]] {
        assert!(sizes.iter().product::<usize>() > SERIAL_THRESHOLD);
        check::<f32>(sizes, &machines);
    }
    check::<f64>([130, 200, 100], &machines);
}

/// Algorithms that differ only in packing and in the order of tasks round the same sums.
#[test]
fn algorithms_give_the_same_bits() {
    // The last has more of B than is packed at once.
    for sizes in [[130, 200, 385], [33, 100, 800], [8, 1100, 1001]] {
        let [m, n, k] = sizes;
        let (a, b, bias) = (values::<f32>(m * k, 1), values::<f32>(k * n, 2), values::<f32>(n, 3));
        let e = Epilogue {
            bias: Some(&bias),
            activation: Activation::None,
        };
        for s in shapes(sizes) {
            for machine in machines() {
                let blocking = Blocking::for_machine(&machine, DType::F32);
                let want = run(Algorithm::Packed, s, Blocking::this::<f32>(), [&a, &b], e);
                for algorithm in Algorithm::all(&s, DType::F32) {
                    if !matches!(algorithm, Algorithm::SmallM | Algorithm::SplitK(_)) {
                        let got = run(algorithm, s, &blocking, [&a, &b], e);
                        assert!(got == want, "{algorithm:?} of {s:?} with {blocking:?}");
                    }
                }
            }
        }
    }
}
