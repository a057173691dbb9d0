//! What row kernels need of an accumulator beside [`Math`].

use crate::simd::math::Math;
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

/// The better of what was best so far and `x`, which lies at `at`: a NaN is, and the first of equals stays.
// One loop a result: of both in one, not all lanes went into vectors.
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
