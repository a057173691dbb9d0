//! Products with a short inner dimension, as the first layer of an image model has: the general kernels spend more on
//! their set-up than on such a sum.

use crate::scalar::{Scalar, vectorized};

/// Gathered rows of at most this many elements come here.
pub(super) const DEPTH: usize = 32;
/// Output channels of one register block; the number of channels is a multiple.
pub(super) const WIDTH: usize = 16;
/// Rows of one register block.
const ROWS: usize = 4;

/// `y = cols · w` with `cols [rows, depth]`, `w [depth, outputs]` and `y [rows, outputs]`.
pub(super) fn product<A: Scalar>(cols: &[A], w: &[A], depth: usize, outputs: usize, y: &mut [A]) {
    vectorized(
        #[inline(always)]
        || {
            let mut quads = y.chunks_exact_mut(ROWS * outputs);
            let mut from = cols.chunks_exact(ROWS * depth);
            for (y, cols) in (&mut quads).zip(&mut from) {
                block::<A, ROWS>(cols, w, depth, outputs, y);
            }
            let rest = quads.into_remainder().chunks_exact_mut(outputs);
            for (y, cols) in rest.zip(from.remainder().chunks_exact(depth)) {
                block::<A, 1>(cols, w, depth, outputs, y);
            }
        },
    );
}

#[inline(always)]
fn block<A: Scalar, const R: usize>(cols: &[A], w: &[A], depth: usize, outputs: usize, y: &mut [A]) {
    for o in (0..outputs).step_by(WIDTH) {
        let mut sums = [[A::ZERO; WIDTH]; R];
        for k in 0..depth {
            let w = &w[k * outputs + o..][..WIDTH];
            for (r, sums) in sums.iter_mut().enumerate() {
                let c = cols[r * depth + k];
                for (s, &w) in sums.iter_mut().zip(w) {
                    *s += c * w;
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            y[r * outputs + o..][..WIDTH].copy_from_slice(sums);
        }
    }
}
