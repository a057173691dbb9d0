//! The micro-kernel of transpositions: a square block of as many vectors as a vector has elements, in registers.

// As in the other micro-kernels: loops over an index are unrolled, and vectors stay in registers.
#![allow(clippy::needless_range_loop, clippy::absurd_extreme_comparisons)]

use crate::gemm::microkernel::unrolled;
use crate::simd::vector::Vector;

/// A block of a matrix to transpose: `to[k·to_step + n] = from[n·from_step + k]` for `n < rows` and `k < columns`, both at
/// most the number of elements of a vector.
pub(crate) struct Square<A> {
    pub(crate) from: *const A,
    pub(crate) from_step: usize,
    pub(crate) to: *mut A,
    pub(crate) to_step: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Transposes a [`Square`].
///
/// # Safety
/// Every element of the block is readable in `from` and writable in `to`; `N` is the number of elements of `V`, whose
/// instructions the machine has.
#[inline(always)]
pub(crate) unsafe fn square<V: Vector, const N: usize>(s: &Square<V::Element>) {
    let mut x = [V::zero(); N];
    let (mut from, mut to) = (s.from, s.to);
    // SAFETY: the caller's contract: rows and columns past the last ones are neither read nor written.
    unsafe {
        if s.rows == N && s.columns == N {
            unrolled!(i < N {
                // Prefetches the rows of the block after the next.
                V::prefetch(from.wrapping_add(2 * N));
                x[i] = V::load(from);
                from = from.wrapping_add(s.from_step);
            });
        } else {
            unrolled!(i < N {
                if i < s.rows {
                    x[i] = V::load_first(from, s.columns);
                    from = from.wrapping_add(s.from_step);
                }
            });
        }
    }
    // Each round interleaves the first half of the vectors with the second, which moves one bit of an element's row index into
    // its lane index; after all bits the block is transposed.
    let mut turns = 1;
    while turns < N {
        let mut y = x;
        unrolled!(i < N {
            if i < N / 2 {
                [y[2 * i], y[2 * i + 1]] = x[i].interleave(x[i + N / 2]);
            }
        });
        x = y;
        turns *= 2;
    }
    // SAFETY: as above.
    unsafe {
        if s.rows == N && s.columns == N {
            unrolled!(i < N {
                x[i].store(to);
                to = to.wrapping_add(s.to_step);
            });
        } else {
            unrolled!(i < N {
                if i < s.columns {
                    x[i].store_first(to, s.rows);
                    to = to.wrapping_add(s.to_step);
                }
            });
        }
    }
}
