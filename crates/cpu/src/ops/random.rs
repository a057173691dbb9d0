//! Random ops: they fill buffers with the scalar functions of `kiln_core::philox`.

use crate::dispatch::float;
use crate::simd::lanes::lanes;
use crate::{Cpu, CpuBuffer, parallel};
use kiln_core::ops::{Distribution, RandomOps, RandomParams};
use kiln_core::philox::{Key, drop_below, halves, truncated_normal, uniform};
use kiln_core::{Buffer, Float, Result, checks};

/// The work of one element of a Philox block, and of one normal number, relative to one multiplication.
const DRAW: usize = 4;
const NORMAL: usize = 24;

fn key(p: &RandomParams, step: &CpuBuffer) -> Key {
    Key::new(p.seed, p.stream, step.as_slice::<i32>()[0] as u32)
}

/// Calls `f(block, elements)` for each block of at most four elements, with the block's index.
fn blocks<T: Send>(y: &mut [T], cost: usize, f: impl Fn(u64, &mut [T]) + Sync) {
    parallel::chunks_mut(y, 4, cost, |at, y| {
        for (block, y) in (at as u64 / 4..).zip(y.chunks_mut(4)) {
            f(block, y);
        }
    });
}

/// The number of Philox blocks drawn together; a loop over independent blocks is vectorised.
const TOGETHER: usize = 64;

/// Computes [`TOGETHER`] blocks from `first` on, each of them as `split` gives it; `split` must be `#[inline(always)]`.
#[inline(always)]
fn draws<const N: usize>(key: Key, first: u64, out: &mut [[u32; N]; TOGETHER], split: impl Fn([u32; 4]) -> [u32; N]) {
    let mut lanes = [[0; TOGETHER]; 4];
    let [a, b, c, d] = &mut lanes;
    for i in 0..TOGETHER {
        [a[i], b[i], c[i], d[i]] = key.block(first.wrapping_add(i as u64));
    }
    for i in 0..TOGETHER {
        out[i] = split([a[i], b[i], c[i], d[i]]);
    }
}

/// Calls `f(first element, numbers, elements)` for ranges of elements, which have the `N` numbers of a block that `split` gives; `f` and
/// `split` must be `#[inline(always)]`.
fn stretches<const N: usize, T: Float>(
    key: Key,
    y: &mut [T],
    split: impl Fn([u32; 4]) -> [u32; N] + Sync,
    f: impl Fn(usize, &[u32], &mut [T]) + Sync,
) {
    parallel::chunks_mut(y, N * TOGETHER, DRAW, |at, y| {
        lanes::<T::Acc, _>(
            #[inline(always)]
            || {
                let mut drawn = [[0; N]; TOGETHER];
                for (start, y) in (at..).step_by(N * TOGETHER).zip(y.chunks_mut(N * TOGETHER)) {
                    draws(key, (start / N) as u64, &mut drawn, &split);
                    f(start, &drawn.as_flattened()[..y.len()], y);
                }
            },
        );
    });
}

/// Calls `f(first element, numbers, elements)` for ranges of elements with the numbers of 16 bits that dropout draws; `f` must be
/// `#[inline(always)]`.
pub(super) fn with_halves<T: Float>(key: Key, y: &mut [T], f: impl Fn(usize, &[u32], &mut [T]) + Sync) {
    stretches(key, y, halves, f);
}

/// Sets each element to `f` of its word; `f` must be `#[inline(always)]`.
fn each<T: Float>(key: Key, y: &mut [T], f: impl Fn(u32) -> f32 + Sync) {
    stretches(
        key,
        y,
        #[inline(always)]
        |words| words,
        #[inline(always)]
        |_, words, y| {
            for (y, &word) in y.iter_mut().zip(words) {
                *y = T::of(f64::from(f(word)));
            }
        },
    );
}

fn fill<T: Float>(p: &RandomParams, key: Key, y: &mut [T]) {
    let (a, b) = (p.a as f32, p.b as f32);
    let store = |y: &mut [T], values: [f32; 4]| {
        for (y, v) in y.iter_mut().zip(values) {
            *y = T::of(f64::from(v));
        }
    };
    match p.distribution() {
        Distribution::Uniform => {
            let span = b - a;
            each(
                key,
                y,
                #[inline(always)]
                |word| {
                    // The sum may be rounded up to the excluded bound.
                    let v = a + span * uniform(word);
                    if v < b { v } else { a }
                },
            );
        }
        Distribution::Normal => blocks(y, NORMAL, |block, y| {
            store(y, key.normal_block(block).map(|v| a + b * v))
        }),
        Distribution::TruncatedNormal => {
            blocks(y, NORMAL, |block, y| {
                store(y, key.block(block).map(|w| a + b * truncated_normal(w)))
            });
        }
        Distribution::Bernoulli => each(
            key,
            y,
            #[inline(always)]
            |word| if uniform(word) < a { 1.0 } else { 0.0 },
        ),
        Distribution::Kept => {
            let below = drop_below(p.a);
            with_halves(
                key,
                y,
                #[inline(always)]
                |_, halves, y| {
                    for (y, &half) in y.iter_mut().zip(halves) {
                        *y = T::of(if half < below { 0.0 } else { 1.0 });
                    }
                },
            );
        }
    }
}

impl RandomOps for Cpu {
    fn random(&self, p: &RandomParams, step: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::random(self, p, step, y)?;
        debug_assert_eq!(p.n as usize, y.len());
        float!(y.dtype(), T => fill::<T>(p, key(p, step), y.as_mut_slice()));
        Ok(())
    }

    fn tick(&self, counter: &mut CpuBuffer, ticket: &mut CpuBuffer) -> Result<()> {
        checks::tick(self, counter, ticket)?;
        let counter = &mut counter.as_mut_slice::<i32>()[0];
        ticket.as_mut_slice::<i32>()[0] = *counter;
        *counter = counter.wrapping_add(1);
        Ok(())
    }

    fn tick_each(&self, counters: &mut [&mut CpuBuffer], tickets: &mut [&mut CpuBuffer]) -> Result<()> {
        checks::tick_each(self, counters, tickets)?;
        let pairs = counters.iter_mut().zip(tickets);
        pairs
            .into_iter()
            .try_for_each(|(counter, ticket)| self.tick(counter, ticket))
    }

    fn dropout(&self, p: &RandomParams, step: &CpuBuffer, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::dropout(self, p, step, x, y)?;
        debug_assert_eq!((p.n as usize, x.len()), (y.len(), y.len()));
        let (key, below) = (key(p, step), drop_below(p.a));
        float!(y.dtype(), T => {
            let (x, zero) = (x.as_slice::<T>(), T::of(0.0));
            let scale = <<T as Float>::Acc as Float>::of(1.0 / (1.0 - p.a));
            with_halves(
                key,
                y.as_mut_slice::<T>(),
                #[inline(always)]
                |at, halves, y| {
                    for ((y, x), &half) in y.iter_mut().zip(&x[at..]).zip(halves) {
                        // Both values are computed, so that the choice is not a branch.
                        let kept = T::from_acc(x.to_acc() * scale);
                        *y = if half < below { zero } else { kept };
                    }
                },
            );
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use kiln_core::{DType, Runtime};

    fn params(distribution: Distribution, n: usize, ab: (f64, f64)) -> RandomParams {
        RandomParams::new("t", distribution, n, ab, 42, 7).unwrap()
    }

    fn draw<T: Float>(p: &RandomParams, step: i32) -> Vec<T> {
        let cpu = Cpu::poisoned();
        let step = cpu.upload(&[step]).unwrap();
        let mut y = cpu.alloc(T::DTYPE, p.n as usize).unwrap();
        cpu.random(p, &step, &mut y).unwrap();
        y.as_slice().to_vec()
    }

    /// The FNV-1a hash of the bits.
    fn hash(values: &[f32]) -> u64 {
        values
            .iter()
            .flat_map(|v| v.to_bits().to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325, |h, b| {
                (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
            })
    }

    /// These bits initialise every model and shuffle every data set: a change would break every recorded run.
    #[test]
    fn the_bits_never_change() {
        let got = [
            (Distribution::Uniform, (-1.5, 2.0)),
            (Distribution::Normal, (0.5, 2.0)),
            (Distribution::TruncatedNormal, (0.0, 0.02)),
            (Distribution::Bernoulli, (0.3, 0.0)),
            (Distribution::Kept, (0.3, 0.0)),
        ]
        .map(|(distribution, ab)| hash(&draw::<f32>(&params(distribution, 4099, ab), 3)));
        let golden = [
            0x0549_9b50_bd85_eb15,
            0xae35_c6ac_f88e_c771,
            0x6302_266a_ac88_8276,
            0x3b63_a088_8cdc_ff35,
            0xd100_fb90_45a9_7d85,
        ];
        assert_eq!(got, golden);
    }

    #[test]
    fn elements_do_not_depend_on_the_length_or_the_threads() {
        for d in Distribution::ALL {
            let long = draw::<f32>(&params(*d, 100_003, (0.5, 1.0)), 0);
            for n in [0, 1, 2, 3, 5, 1023] {
                assert_eq!(draw::<f32>(&params(*d, n, (0.5, 1.0)), 0), long[..n]);
            }
            let halves: Vec<bf16> = long.iter().map(|&v| bf16::from_f32(v)).collect();
            assert_eq!(draw::<bf16>(&params(*d, 100_003, (0.5, 1.0)), 0), halves);
            assert_ne!(draw::<f32>(&params(*d, 100_003, (0.5, 1.0)), 1), long);
        }
    }

    #[test]
    fn bounds_hold() {
        let u = draw::<f32>(&params(Distribution::Uniform, 100_000, (2.0, 2.000_001)), 0);
        assert!(u.iter().all(|&v| (2.0..2.000_001).contains(&v)));
        let ones = draw::<f32>(&params(Distribution::Bernoulli, 100_000, (1.0, 0.0)), 0);
        assert!(ones.iter().all(|&v| v == 1.0));
        let zeros = draw::<f32>(&params(Distribution::Bernoulli, 100_000, (0.0, 0.0)), 0);
        assert!(zeros.iter().all(|&v| v == 0.0));
        let t = draw::<f32>(&params(Distribution::TruncatedNormal, 100_000, (1.0, 0.5)), 0);
        assert!(t.iter().all(|&v| (0.0..=2.0).contains(&v)));
        assert_eq!(draw::<f32>(&params(Distribution::Uniform, 9, (3.0, 3.0)), 0), [3.0; 9]);
    }

    #[test]
    fn dropout_keeps_the_rest_scaled() {
        let cpu = Cpu::poisoned();
        let n = 100_001;
        let step = cpu.upload(&[5i32]).unwrap();
        let x = cpu.upload(&(1..=n).map(|v| v as f32).collect::<Vec<_>>()).unwrap();
        let mut y = cpu.alloc(DType::F32, n).unwrap();
        for (p, scale) in [(0.0, 1.0), (0.2, 1.25), (0.5, 2.0), (1.0, f32::NAN)] {
            let params = params(Distribution::Kept, n, (p, 0.0));
            cpu.dropout(&params, &step, &x, &mut y).unwrap();
            let y = y.as_slice::<f32>();
            let dropped = y.iter().filter(|&&v| v == 0.0).count() as f64 / n as f64;
            assert!(
                (dropped - p).abs() <= 5.0 * (p * (1.0 - p) / n as f64).sqrt(),
                "{p}: {dropped}"
            );
            assert!((1..=n).zip(y).all(|(x, &y)| y == 0.0 || y == x as f32 * scale), "{p}");
            // The elements that are kept are those that a draw of the same key marks.
            let marks = draw::<f32>(&params, 5);
            assert!(marks.iter().zip(y).all(|(&m, &y)| (m == 1.0) == (y != 0.0)));
        }
    }

    #[test]
    fn tickets_count() {
        let cpu = Cpu::poisoned();
        let mut counter = cpu.upload(&[i32::MAX]).unwrap();
        let mut ticket = cpu.alloc(DType::I32, 1).unwrap();
        for want in [i32::MAX, i32::MIN] {
            cpu.tick(&mut counter, &mut ticket).unwrap();
            assert_eq!(ticket.as_slice::<i32>(), [want]);
        }
    }
}
