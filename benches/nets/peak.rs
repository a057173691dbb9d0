//! The peak rate of the processor's fused multiply-adds: independent chains in registers, without memory accesses.

use crate::Work;
use kiln_profile::multiply_adds;
use std::hint::black_box;

/// Multiply-adds of a chain in one repetition.
const LENGTH: u64 = 200_000;

/// Floating-point operations of one repetition on this number of threads.
pub(crate) fn flops(threads: usize) -> u64 {
    2 * threads as u64 * multiply_adds(LENGTH)
}

/// One repetition on every thread.
pub(crate) fn peak(threads: usize) -> Work {
    Box::new(move || {
        let chains = || black_box(multiply_adds(LENGTH));
        if threads == 1 {
            chains();
        } else {
            rayon::broadcast(|_| chains());
        }
        Ok(())
    })
}
