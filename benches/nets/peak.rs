//! The most that the machine's fused multiply-adds give: independent chains in registers, no memory.

use crate::Work;
use pulp::{Arch, Simd, WithSimd};
use std::hint::black_box;

/// Chains that do not wait for each other: more than latency times units of any core so far, fewer than registers.
const CHAINS: usize = 12;

/// Multiply-adds of a chain in one repetition.
const LENGTH: usize = 200_000;

struct Chains;

impl WithSimd for Chains {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (x, y) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(0.001)));
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAINS];
        for _ in 0..LENGTH {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, x, y);
            }
        }
        sums.into_iter().map(|s| simd.reduce_sum_f32s(s)).sum()
    }
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Floating-point operations of one repetition on so many threads.
pub(crate) fn flops(threads: usize) -> u64 {
    (2 * threads * CHAINS * LENGTH * Arch::new().dispatch(Lanes)) as u64
}

/// One repetition on every thread.
pub(crate) fn peak(threads: usize) -> Work {
    Box::new(move || {
        let chains = || black_box(Arch::new().dispatch(Chains));
        if threads == 1 {
            chains();
        } else {
            rayon::broadcast(|_| chains());
        }
        Ok(())
    })
}
