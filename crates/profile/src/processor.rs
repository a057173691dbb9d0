//! The highest rates of a processor, of arithmetic and of memory, which give the least time of an op. They are measured
//! by loops that belong to no backend, so that a backend is not compared with itself.
//!
//! Each loop runs on all threads of rayon's current pool at once, without task scheduling in between; the best of several runs
//! counts.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The number of runs that the measuring time is divided into; the best one counts.
const RUNS: u32 = 5;

/// Independent sums: enough to keep two units busy whose multiply-adds have a latency of four cycles.
const CHAINS: usize = 12;

/// Floating-point operations per second, a multiply-add counted as two: f32 in registers, by the widest vector unit that the
/// processor has, measured for about `time`.
pub(crate) fn flops_per_second(time: Duration) -> f64 {
    const ROUNDS: u64 = 4096;
    best(time, || || 2 * multiply_adds(ROUNDS))
}

/// Bytes per second to and from `bytes` bytes of memory, split evenly over the threads: the faster of a loop that reads, and of
/// a triad `a = b + s·c`; measured for about `time`. Sizes that fit a cache give higher rates.
pub(crate) fn bytes_per_second(bytes: usize, time: Duration) -> f64 {
    let part = bytes / rayon::current_num_threads() / size_of::<f32>();
    // Enough passes that the time for reading the clock is negligible.
    let passes = (1 << 18) / part.max(1) + 1;
    let read = best(time / 2, || {
        let values = vec![1.0; part];
        move || {
            for _ in 0..passes {
                black_box(sum(black_box(&values)));
            }
            (passes * size_of_val(&values[..])) as u64
        }
    });
    let triad = best(time / 2, || {
        let [mut a, b, c] = [1.0, 2.0, 3.0].map(|v| vec![v; part / 3]);
        move || {
            for _ in 0..passes {
                triad(black_box(&mut a), black_box(&b), black_box(&c));
            }
            (3 * passes * size_of_val(&a[..])) as u64
        }
    });
    read.max(triad)
}

/// Makes a work function on every thread of the pool, calls it there repeatedly for [`RUNS`] shares of `time`, and returns the
/// highest sum of the threads' rates. A call returns its amount of work; the first call is not counted.
fn best<W: FnMut() -> u64>(time: Duration, make: impl Fn() -> W + Sync) -> f64 {
    let together = Barrier::new(rayon::current_num_threads());
    let rates: Vec<Vec<f64>> = rayon::broadcast(|_| {
        let mut work = make();
        work();
        let run = |_| {
            together.wait();
            let (start, mut done) = (Instant::now(), 0);
            loop {
                done += work();
                let taken = start.elapsed();
                if taken >= time / RUNS {
                    return done as f64 / taken.as_secs_f64();
                }
            }
        };
        (0..RUNS).map(run).collect()
    });
    let sum = |run: usize| rates.iter().map(|r| r[run]).sum::<f64>();
    (0..RUNS as usize).map(sum).fold(0.0, f64::max)
}

/// Declares a function whose body is compiled once for each vector unit and runs by the widest one of the processor.
macro_rules! by_unit {
    (fn $name:ident($($arg:ident: $t:ty),*) $(-> $r:ty)? $body:block) => {
        fn $name($($arg: $t),*) $(-> $r)? {
            #[inline(always)]
            fn body($($arg: $t),*) $(-> $r)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $t),*) $(-> $r)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $t),*) $(-> $r)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the function asks for avx512f alone, which was just found.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the function asks for avx2 alone, which was just found.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

by_unit! {
    fn sum(x: &[f32]) -> f32 {
        let mut sums = [0.0; 128];
        for chunk in x.chunks_exact(sums.len()) {
            for (s, x) in sums.iter_mut().zip(chunk) {
                *s += x;
            }
        }
        sums.iter().sum()
    }
}

by_unit! {
    fn triad(a: &mut [f32], b: &[f32], c: &[f32]) {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = b + 0.5 * c;
        }
    }
}

/// Runs `rounds` multiply-adds on each of a dozen vectors that stay in registers, on the calling thread, and returns the
/// number of scalar multiply-adds.
pub fn multiply_adds(rounds: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};
        #[target_feature(enable = "avx512f")]
        fn avx512(rounds: u64) {
            let (m, a) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(1.0)));
            let mut sums: [_; CHAINS] = std::array::from_fn(|i| _mm512_set1_ps(black_box(i as f32)));
            for _ in 0..rounds {
                for s in &mut sums {
                    *s = _mm512_fmadd_ps(*s, m, a);
                }
            }
            black_box(sums);
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2(rounds: u64) {
            let (m, a) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(1.0)));
            let mut sums: [_; CHAINS] = std::array::from_fn(|i| _mm256_set1_ps(black_box(i as f32)));
            for _ in 0..rounds {
                for s in &mut sums {
                    *s = _mm256_fmadd_ps(*s, m, a);
                }
            }
            black_box(sums);
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the function asks for avx512f alone, which was just found.
            unsafe { avx512(rounds) };
            return rounds * (16 * CHAINS) as u64;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the function asks for avx2 and fma, which were just found.
            unsafe { avx2(rounds) };
            return rounds * (8 * CHAINS) as u64;
        }
    }
    const LANES: usize = 4;
    let (m, a) = (black_box(0.5), black_box(1.0));
    let mut sums: [[f32; LANES]; CHAINS] = std::array::from_fn(|i| [black_box(i as f32); LANES]);
    for _ in 0..rounds {
        for s in sums.as_flattened_mut() {
            // A target with a fused instruction in its baseline (NEON) uses it; elsewhere `mul_add` would be a function call.
            *s = match cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                true => s.mul_add(m, a),
                false => *s * m + a,
            };
        }
    }
    black_box(sums);
    rounds * (LANES * CHAINS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rates_are_numbers() {
        let time = Duration::from_millis(5);
        for rate in [
            flops_per_second(time),
            bytes_per_second(0, time),
            bytes_per_second(1000, time),
            bytes_per_second(1 << 22, time),
        ] {
            assert!(rate.is_finite() && rate >= 0.0, "{rate}");
        }
        assert!(flops_per_second(time) > 0.0 && bytes_per_second(1 << 16, time) > 0.0);
    }

    #[test]
    fn a_triad_and_a_sum_are_right() {
        let (b, c): (Vec<f32>, Vec<f32>) = (0..=255u8).map(|i| (f32::from(i), 2.0)).unzip();
        let mut a = vec![0.0; 256];
        triad(&mut a, &b, &c);
        assert_eq!((a[0], a[255]), (1.0, 256.0));
        assert_eq!(sum(&a), (1..=256).sum::<i32>() as f32);
    }
}
