//! Combines the statistics of two sets of values (Chan, Golub and LeVeque).

use crate::simd::real::Real;

/// Adds a set of `n` values with mean `mean_b` and squared deviations `m2_b` to one of `count` values.
#[inline(always)]
pub(super) fn combine<A: Real>(count: A, (mean, m2): (&mut A, &mut A), n: A, (mean_b, m2_b): (A, A)) {
    let delta = mean_b - *mean;
    let share = n / (count + n);
    *mean += delta * share;
    *m2 += m2_b + delta * delta * count * share;
}
