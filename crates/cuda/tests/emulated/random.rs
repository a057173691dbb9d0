//! Random numbers: the bits of the CPU in every dtype.

use crate::cuda;
use crate::twin::{EDGES, bits, buffer, empty, read, upload};
use half::{bf16, f16};
use kiln_core::ops::{Distribution, RandomOps, RandomParams};
use kiln_core::{Backend, DType, Float, Runtime};
use kiln_cpu::Cpu;

/// Sizes around a Philox block, a thread's share and a block of threads.
const SIZES: [usize; 8] = [0, 2, 3, 4, 5, 7, 1024, 3001];

fn params(distribution: Distribution, n: usize, ab: (f64, f64)) -> RandomParams {
    RandomParams::new("test", distribution, n, ab, 0xfedc_ba98_7654_3210, 77).unwrap_or_else(|e| panic!("{e}"))
}

fn draw<B: Backend, T: Float>(backend: &B, p: &RandomParams, step: i32) -> Vec<T> {
    let step = backend.upload(&[step]).unwrap_or_else(|e| panic!("{e}"));
    let mut y = empty::<B, T>(backend, p.n as usize);
    backend.random(p, &step, &mut y).unwrap_or_else(|e| panic!("{e}"));
    read(backend, &y)
}

fn drop<B: Backend, T: Float>(backend: &B, p: &RandomParams, step: i32) -> Vec<T> {
    let step = backend.upload(&[step]).unwrap_or_else(|e| panic!("{e}"));
    let x = buffer::<B, T>(backend, p.n as usize, 5);
    let mut y = empty::<B, T>(backend, p.n as usize);
    backend.dropout(p, &step, &x, &mut y).unwrap_or_else(|e| panic!("{e}"));
    read(backend, &y)
}

fn same_bits<T: Float>() {
    let (cpu, cuda) = (Cpu::poisoned(), cuda());
    let cases = [
        (Distribution::Uniform, (-1.5, 2.0)),
        // So narrow that the sum rounds up to the excluded bound.
        (Distribution::Uniform, (2.0, 2.000_000_3)),
        (Distribution::Normal, (0.5, 2.0)),
        (Distribution::TruncatedNormal, (0.1, 0.02)),
        (Distribution::Bernoulli, (0.3, 0.0)),
        (Distribution::Kept, (0.3, 0.0)),
        (Distribution::Kept, (1.0, 0.0)),
    ];
    for (n, step) in SIZES
        .into_iter()
        .chain(EDGES)
        .zip([0, 1, -1, i32::MAX, i32::MIN].into_iter().cycle())
    {
        for (distribution, ab) in cases {
            let p = params(distribution, n, ab);
            let (got, want) = (draw::<_, T>(&cuda, &p, step), draw::<_, T>(&cpu, &p, step));
            assert_eq!(bits(&got), bits(&want), "{} {p:?} step {step}", T::DTYPE);
        }
        for p in [0.0, 1e-6, 0.3, 1.0] {
            let p = params(Distribution::Kept, n, (p, 0.0));
            let (got, want) = (drop::<_, T>(&cuda, &p, step), drop::<_, T>(&cpu, &p, step));
            assert_eq!(bits(&got), bits(&want), "{} dropout {p:?} step {step}", T::DTYPE);
        }
    }
}

#[test]
fn f32_has_the_bits_of_the_cpu() {
    same_bits::<f32>();
}

#[test]
fn bf16_has_the_bits_of_the_cpu() {
    same_bits::<bf16>();
}

#[test]
fn f16_has_the_bits_of_the_cpu() {
    same_bits::<f16>();
}

/// Steps that differ in one bit, or seeds or streams, share no numbers.
#[test]
fn keys_differ() {
    let cuda = cuda();
    let p = params(Distribution::Uniform, 64, (0.0, 1.0));
    let base = draw::<_, f32>(&cuda, &p, 6);
    let others = [
        draw::<_, f32>(&cuda, &p, 7),
        draw(&cuda, &RandomParams { seed: p.seed ^ 1, ..p }, 6),
        draw(
            &cuda,
            &RandomParams {
                seed: p.seed ^ (1 << 63),
                ..p
            },
            6,
        ),
        draw(&cuda, &RandomParams { stream: 78, ..p }, 6),
    ];
    for other in others {
        assert!(base.iter().zip(&other).filter(|(a, b)| a == b).count() < 3);
    }
}

#[test]
fn tickets_count_and_wrap() {
    let cuda = cuda();
    let mut counter = cuda.upload(&[i32::MAX]).unwrap();
    let mut ticket = cuda.alloc(DType::I32, 1).unwrap();
    for want in [i32::MAX, i32::MIN, i32::MIN + 1] {
        cuda.tick(&mut counter, &mut ticket).unwrap();
        assert_eq!(cuda.download::<i32>(&ticket).unwrap(), [want]);
    }
    assert_eq!(cuda.download::<i32>(&counter).unwrap(), [i32::MIN + 2]);
}

/// Infinities pass through dropout where they are kept, and nowhere else.
#[test]
fn dropout_of_what_is_not_finite() {
    let (cpu, cuda) = (Cpu::poisoned(), cuda());
    let x = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 0.0, -0.0];
    let x: Vec<f32> = x.into_iter().cycle().take(70).collect();
    fn run<B: Backend>(backend: &B, x: &[f32]) -> Vec<f32> {
        let p = params(Distribution::Bernoulli, x.len(), (0.6, 0.0));
        let step = backend.upload(&[0i32]).unwrap_or_else(|e| panic!("{e}"));
        let (x, mut y) = (upload(backend, x), empty::<B, f32>(backend, x.len()));
        backend.dropout(&p, &step, &x, &mut y).unwrap_or_else(|e| panic!("{e}"));
        read(backend, &y)
    }
    assert_eq!(bits(&run(&cuda, &x)), bits(&run(&cpu, &x)));
}
