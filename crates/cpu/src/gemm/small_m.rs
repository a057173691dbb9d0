//! Products of few rows of A with a transposed B: vectors run along k, and both operands are read in place.

use crate::gemm::kernels::{DotKernels, Gemm};
use crate::gemm::microkernel::{DOTS, DotTile};
use crate::gemm::shape::GemmShape;
use crate::gemm::{BLOCK_WORK, CTile, Epilogue};

/// The distance in bytes at which B is prefetched. With one row it comes from memory as fast as it is read, and four columns at a time are
/// too short for the hardware to follow: on a Zen 5 a weight of 43 MB was read at 55 GB/s in place of 41, by lines 2 KiB ahead in each
/// column.
const AHEAD: usize = 16 << 10;

/// The approximate number of bytes of B that a task reads; up to twice this is read by one thread. A layer's weight comes from memory,
/// as the source of a copy does, and one thread cannot have as many lines on their way as memory answers.
const STREAMED: usize = 256 << 10;

/// The rows and columns of the blocks of C, where an element of B has `bytes` bytes.
pub(crate) fn streamed_blocks(s: &GemmShape, bytes: usize) -> [usize; 2] {
    let &GemmShape { m, n, k, .. } = s;
    let read = k.saturating_mul(n).saturating_mul(bytes);
    let tasks = read.div_ceil(STREAMED).max(s.work().div_ceil(BLOCK_WORK));
    if tasks <= 2 {
        return [m, n];
    }
    // Blocks are cut in halves, so that a power of two of them are equal.
    let tasks = tasks.checked_next_power_of_two().unwrap_or(n);
    [m, n.div_ceil(tasks).next_multiple_of(DOTS)]
}

/// Computes `C[i, j] = f(Σ A[i·a_step + k]·B[(first + j)·b_step + k] + bias[first + j])` over `k < len`, for every element
/// of the target, on the calling thread.
pub(crate) fn gemm_nt_small<A: Gemm, B>(
    dots: &DotKernels<A, B>,
    (a, a_step): (&[A], usize),
    (b, b_step): (&[B], usize),
    first: usize,
    len: usize,
    mut c: CTile<'_, A>,
    e: Epilogue<'_, A>,
) {
    let (rows, columns) = (c.rows, c.columns);
    for row in (0..rows).step_by(DOTS) {
        let height = DOTS.min(rows - row);
        // Rows and columns past the end repeat the last one; their results are not stored.
        let a = [0, 1, 2, 3].map(|i| a[(row + i.min(height - 1)) * a_step..][..len].as_ptr());
        for column in (0..columns).step_by(DOTS) {
            let width = DOTS.min(columns - column);
            let b = [0, 1, 2, 3].map(|j| b[(first + column + j.min(width - 1)) * b_step..][..len].as_ptr());
            let ahead = b[0].wrapping_byte_add(AHEAD);
            let mut sums = [[A::default(); DOTS]; DOTS];
            let tile = DotTile {
                a,
                b,
                len,
                rows: height,
                ahead,
            };
            let kernel = dots[usize::from(height > 1)];
            // SAFETY: every pointer was taken of a slice of `len` elements; the instructions are this machine's, as no
            // other kernels are handed out.
            unsafe { kernel(&tile, &mut sums) };
            for (i, sums) in sums[..height].iter().enumerate() {
                c.slice(row + i)[column..column + width].copy_from_slice(&sums[..width]);
            }
        }
    }
    c.finish(first, e);
}
