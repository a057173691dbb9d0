//! The operations of the accumulation types for sums, maxima and softmax, beside those of [`Math`].

use crate::simd::math::Math;
use std::ops::AddAssign;

/// An accumulation type, with the constants and tests that sums, maxima and softmax need.
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

/// The larger of the best values so far and `x`, whose index is `at`; NaN is the largest, and of equals the first is kept.
// A loop for each result: a single loop for both was not fully vectorised.
#[inline(always)]
pub(crate) fn max_with_index<A: Real, const L: usize>(
    (best, place): ([A; L], [i32; L]),
    x: [A; L],
    at: i32,
) -> ([A; L], [i32; L]) {
    let mut wins = [0; L];
    for i in 0..L {
        wins[i] = i32::from((x[i] > best[i]) | (x[i].is_nan() & !best[i].is_nan()));
    }
    let (mut largest, mut places) = (best, place);
    for i in 0..L {
        largest[i] = if wins[i] != 0 { x[i] } else { best[i] };
    }
    for i in 0..L {
        places[i] = if wins[i] != 0 { at } else { place[i] };
    }
    (largest, places)
}
