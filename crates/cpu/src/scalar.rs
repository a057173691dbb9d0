//! What the dense kernels ask of the types they accumulate in, beyond [`Real`]: micro-kernels of products.

use crate::gemm::{Kernels, all_f32, all_f64};
use crate::real::Real;
use kiln_core::Float;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// f32 or f64: a type that sums are kept in.
pub(crate) trait Scalar: Real {
    /// The sets of micro-kernels that run on this machine, the best first.
    fn all_kernels() -> &'static [&'static Kernels<Self>];

    /// The best set of micro-kernels of this machine.
    fn kernels() -> &'static Kernels<Self> {
        Self::all_kernels()[0]
    }
}

impl Scalar for f32 {
    fn all_kernels() -> &'static [&'static Kernels<Self>] {
        all_f32()
    }
}

impl Scalar for f64 {
    fn all_kernels() -> &'static [&'static Kernels<Self>] {
        all_f64()
    }
}

/// A stored float whose accumulator is a [`Scalar`]: every float there is.
pub(crate) trait Stored: Float<Acc: Scalar> {}
impl<T: Float<Acc: Scalar>> Stored for T {}

/// Runs `f` compiled for the widest vector units of this machine. What `f` calls must be `#[inline(always)]`, and so
/// must `f` itself.
#[inline(always)]
pub(crate) fn vectorized<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        match units() {
            // SAFETY: `units` found every feature that the function enables.
            Units::Avx512 => return unsafe { avx512(f) },
            // SAFETY: as above.
            Units::Avx2 => return unsafe { avx2(f) },
            Units::Baseline => {}
        }
    }
    f()
}

/// The vector units that [`vectorized`] compiles for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
enum Units {
    Avx512,
    Avx2,
    Baseline,
}

#[cfg(target_arch = "x86_64")]
fn units() -> Units {
    static FOUND: OnceLock<Units> = OnceLock::new();
    *FOUND.get_or_init(|| {
        macro_rules! all {
            ($($feature:tt)+) => { $(is_x86_feature_detected!($feature))&&+ };
        }
        if !all!("avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt") {
            Units::Baseline
        } else if all!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
            Units::Avx512
        } else {
            Units::Avx2
        }
    })
}
