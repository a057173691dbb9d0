//! What the dense kernels ask of the types they accumulate in, beyond [`Float`]: a GEMM kernel and a few functions.

use kiln_core::Float;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// f32 or f64: a type that sums are kept in.
pub(crate) trait Scalar:
    Float<Acc = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + PartialOrd
    + Default
    + Sum
{
    /// The kernel of the `gemm` crate for this machine's vector units.
    fn kernel() -> Kernel<Self>;
    /// eˣ.
    fn exp(self) -> Self;
    /// tanh x.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
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
    #[inline(always)]
    fn exp(self) -> Self {
        f32::exp(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        f32::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        libm::erff(self)
    }
}

impl Scalar for f64 {
    fn kernel() -> Kernel<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        f64::tanh(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        libm::erf(self)
    }
}

/// A stored float whose accumulator is a [`Scalar`]: every float there is.
pub(crate) trait Real: Float<Acc: Scalar> {}
impl<T: Float<Acc: Scalar>> Real for T {}

/// Runs `f` compiled for the widest vector units of this machine. What `f` calls must be `#[inline(always)]`, and so
/// must `f` itself.
#[inline(always)]
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    gemm_common::pulp::Arch::new().dispatch(f)
}
