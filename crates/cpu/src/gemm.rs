//! Matrix products of views: the one place that calls the micro-kernels of the `gemm` crate, and how products are cut
//! into blocks for threads.

use crate::parallel::chunks_mut;
use crate::scalar::Scalar;
use gemm_common::Parallelism;
use kiln_core::Result;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut3, Axis, ShapeBuilder};

/// Multiply-adds below which a product stays on one thread, and about as many as one block of a larger one has.
pub(crate) const BLOCK_WORK: usize = 1 << 20;

/// A row-major matrix of `rows × cols` whose rows are `stride` elements apart.
#[inline]
pub(crate) fn matrix<A>(data: &[A], rows: usize, cols: usize, stride: usize) -> ArrayView2<'_, A> {
    if rows == 0 || cols == 0 {
        // Nothing to reach: ndarray would still hold the strides against the slice.
        return ArrayView2::from_shape((rows, cols), &data[..0]).expect("an empty matrix fits any slice");
    }
    ArrayView2::from_shape((rows, cols).strides((stride, 1)), data).expect("matrix inside its slice")
}

/// As [`matrix`], for writing.
#[inline]
pub(crate) fn matrix_mut<A>(data: &mut [A], rows: usize, cols: usize, stride: usize) -> ArrayViewMut2<'_, A> {
    ArrayViewMut2::from_shape((rows, cols).strides((stride, 1)), data).expect("matrix inside its slice")
}

/// `C = alpha·A·B + beta·C` on the calling thread; `beta = 0` does not read `C`.
///
/// # Panics
/// When the sizes do not agree: a bug in the op.
pub(crate) fn gemm<A: Scalar>(
    alpha: A,
    a: ArrayView2<'_, A>,
    b: ArrayView2<'_, A>,
    beta: A,
    mut c: ArrayViewMut2<'_, A>,
) {
    let ((m, k), (inner, n)) = (a.dim(), b.dim());
    assert_eq!((inner, (m, n)), (k, c.dim()), "sizes of a product");
    if m == 0 || n == 0 {
        return;
    }
    let zero = A::default();
    if k == 0 {
        c.map_inplace(|c| *c = if beta == zero { zero } else { beta * *c });
        return;
    }
    let stride = |s: &[isize]| (s[0], s[1]);
    let ((ars, acs), (brs, bcs), (crs, ccs)) = (stride(a.strides()), stride(b.strides()), stride(c.strides()));
    let c = (c.as_mut_ptr(), ccs, crs);
    let (a, b) = ((a.as_ptr(), acs, ars), (b.as_ptr(), bcs, brs));
    // The kernels want C column-major: a row-major C is the transposed product Cᵀ = Bᵀ·Aᵀ.
    let swap = |(p, cs, rs)| (p, rs, cs);
    let (m, n, c, a, b) = if crs.abs() > ccs.abs() {
        (n, m, (c.0, c.2, c.1), swap(b), swap(a))
    } else {
        (m, n, c, a, b)
    };
    // SAFETY: a, b and c are ndarray views, so every element that sizes and strides reach lies in memory borrowed for
    // the call, c exclusively (ndarray forbids overlapping elements in mutable views); the sizes were compared above.
    unsafe {
        A::kernel()(
            m,
            n,
            k,
            c.0,
            c.1,
            c.2,
            beta != zero,
            a.0,
            a.1,
            a.2,
            b.0,
            b.1,
            b.2,
            beta,
            alpha,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// What is done to one block of C, given where the block starts.
pub(crate) type Task<'f, A> = dyn Fn([usize; 3], ArrayViewMut3<'_, A>) -> Result<()> + Sync + 'f;

/// Runs `f(origin, block)` over blocks of at most `size` of `c`, in parallel. Where the cuts fall depends on the shape
/// alone.
pub(crate) fn blocks<A: Send>(
    c: ArrayViewMut3<'_, A>,
    size: [usize; 3],
    origin: [usize; 3],
    f: &Task<'_, A>,
) -> Result<()> {
    if c.is_empty() {
        return Ok(());
    }
    let counts = [0, 1, 2].map(|i| c.len_of(Axis(i)).div_ceil(size[i]));
    let axis = (0..3).max_by_key(|&i| counts[i]).unwrap_or(0);
    if counts[axis] == 1 {
        return f(origin, c);
    }
    let cut = counts[axis] / 2 * size[axis];
    let (low, high) = c.split_at(Axis(axis), cut);
    let mut after = origin;
    after[axis] += cut;
    let (low, high) = rayon::join(|| blocks(low, size, origin, f), || blocks(high, size, after, f));
    low.and(high)
}

/// `c[i]` becomes the sum of element `i` of every part, first to last.
pub(crate) fn sum_parts<A: Scalar>(parts: &[A], c: &mut [A]) {
    let size = c.len();
    chunks_mut(c, 1, parts.len() / size.max(1), |at, chunk| {
        chunk.copy_from_slice(&parts[at..at + chunk.len()]);
        for part in parts.chunks_exact(size).skip(1) {
            for (c, p) in chunk.iter_mut().zip(&part[at..]) {
                *c += *p;
            }
        }
    });
}
