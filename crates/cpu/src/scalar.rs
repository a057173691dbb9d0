//! What the dense kernels ask of the types they accumulate in, beyond [`Math`]: a GEMM kernel.

use crate::math::Math;
use kiln_core::Float;
use std::ops::AddAssign;

/// f32 or f64: a type that sums are kept in.
pub(crate) trait Scalar: Math + AddAssign + Default {
    /// The kernel of the `gemm` crate for this machine's vector units.
    fn kernel() -> Kernel<Self>;
}

/// `dst ← alpha·dst + beta·lhs·rhs` in the argument order of the `gemm` crate: sizes m, n, k; each matrix with its
/// column and row stride; whether `dst` is read; the factors; conjugations; threads.
pub(crate) type Kernel<A> = unsafe fn(
    usize,
    usize,
    usize,
    *mut A,
    isize,
    isize,
    bool,
    *const A,
    isize,
    isize,
    *const A,
    isize,
    isize,
    A,
    A,
    bool,
    bool,
    bool,
    gemm_common::Parallelism,
);

impl Scalar for f32 {
    fn kernel() -> Kernel<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }
}

impl Scalar for f64 {
    fn kernel() -> Kernel<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
}

/// A stored float whose accumulator is a [`Scalar`]: every float there is.
pub(crate) trait Stored: Float<Acc: Scalar> {}
impl<T: Float<Acc: Scalar>> Stored for T {}

/// Runs `f` compiled for the widest vector units of this machine. What `f` calls must be `#[inline(always)]`, and so
/// must `f` itself.
#[inline(always)]
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    gemm_common::pulp::Arch::new().dispatch(f)
}
