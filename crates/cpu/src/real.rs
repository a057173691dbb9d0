//! What row kernels need of an accumulator beside [`Math`].

use crate::math::Math;
use std::ops::AddAssign;

/// An accumulation type as sums, maxima and softmax use it.
pub(crate) trait Real: Math + AddAssign + Default {
    const NEG_INFINITY: Self;
    const INFINITY: Self;
    fn is_nan(self) -> bool;
}

impl Real for f32 {
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;
    const INFINITY: f32 = f32::INFINITY;
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
}

impl Real for f64 {
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;
    const INFINITY: f64 = f64::INFINITY;
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
}
