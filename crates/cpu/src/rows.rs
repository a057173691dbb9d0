//! Sums and maxima over one row, in vector lanes.

use crate::real::Real;
use kiln_core::Float;

/// Independent accumulators of a row.
pub(crate) const LANES: usize = 16;

/// Elements below which lanes alone keep rounding small.
const BLOCK: usize = 2048;

/// `Σ f(i)` over `0..n`: pairwise above a block, in lanes within.
#[inline(always)]
pub(crate) fn sum_row<A: Real>(n: usize, f: impl Fn(usize) -> A) -> A {
    sum_row2(n, |i| (f(i), A::default())).0
}

/// Two sums at once: `Σ f(i).0` and `Σ f(i).1` over `0..n`.
#[inline(always)]
pub(crate) fn sum_row2<A: Real>(n: usize, f: impl Fn(usize) -> (A, A)) -> (A, A) {
    // One slot per level of a binary counter: blocks join pairwise without recursion or storage for them all.
    let mut levels = [(A::default(), A::default()); usize::BITS as usize];
    let mut blocks = 0usize;
    let mut start = 0;
    while n - start >= BLOCK {
        let mut sum = block(start, BLOCK, &f);
        let mut level = 0;
        while (blocks >> level) & 1 == 1 {
            let (a, b) = levels[level];
            sum = (a + sum.0, b + sum.1);
            level += 1;
        }
        levels[level] = sum;
        blocks += 1;
        start += BLOCK;
    }
    let mut sum = block(start, n - start, &f);
    for (level, &(a, b)) in levels.iter().enumerate() {
        if blocks >> level == 0 {
            break;
        }
        if (blocks >> level) & 1 == 1 {
            sum = (a + sum.0, b + sum.1);
        }
    }
    sum
}

/// The two sums over `n` indices from `start`.
#[inline(always)]
fn block<A: Real>(start: usize, n: usize, f: &impl Fn(usize) -> (A, A)) -> (A, A) {
    let (mut a, mut b) = ([A::default(); LANES], [A::default(); LANES]);
    let whole = n / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            let (u, v) = f(start + i + lane);
            a[lane] += u;
            b[lane] += v;
        }
    }
    for i in whole..n {
        let (u, v) = f(start + i);
        a[i - whole] += u;
        b[i - whole] += v;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            a[lane] += a[lane + width];
            b[lane] += b[lane + width];
        }
        width /= 2;
    }
    (a[0], b[0])
}

/// The largest element, NaN if any is NaN, −∞ of an empty row.
#[inline(always)]
pub(crate) fn max_row<T: Float>(x: &[T]) -> T::Acc
where
    T::Acc: Real,
{
    let larger = |a: T::Acc, b: T::Acc| if b > a || b.is_nan() { b } else { a };
    let mut lanes = [T::Acc::NEG_INFINITY; LANES];
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for (a, &x) in lanes.iter_mut().zip(block) {
            *a = larger(*a, x.wide());
        }
    }
    for (a, &x) in lanes.iter_mut().zip(rest) {
        *a = larger(*a, x.wide());
    }
    lanes.into_iter().fold(T::Acc::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_are_summed_once() {
        for n in [0, 1, 15, 16, 17, 2047, 2048, 2049, 3 * 2048 + 5, 7 * 2048] {
            let want = (n * n - n.min(n * n)) as f64 / 2.0;
            let (a, b) = sum_row2(n, |i| (i as f64, 1.0));
            assert_eq!((a, b), (want, n as f64), "{n}");
        }
    }

    #[test]
    fn long_f32_sums_keep_their_digits() {
        let got = f64::from(sum_row(1 << 20, |_| 0.1f32));
        let want = f64::from(0.1f32) * f64::from(1 << 20);
        assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
    }
}
