//! Sums and maxima over rows, in vector lanes.

use crate::simd::real::Real;

/// The number of independent accumulators of a row: two vectors of the widest units.
pub(crate) const LANES: usize = 32;

/// The number of elements up to which summing in lanes alone keeps rounding errors small.
const BLOCK: usize = 4096;

/// `Σ f(x)` over a row: in lanes within blocks, pairwise over blocks. `f` must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn sum<A: Real>(x: &[A], f: impl Fn(A) -> A) -> A {
    let [sum] = sums(
        [x],
        #[inline(always)]
        |[x]| [f(x)],
    );
    sum
}

/// The `K` sums of a function of `N` rows of equal length; see [`sum`].
#[inline(always)]
pub(crate) fn sums<A: Real, const N: usize, const K: usize>(x: [&[A]; N], f: impl Fn([A; N]) -> [A; K]) -> [A; K] {
    let n = x[0].len();
    if n <= BLOCK {
        return block(x, 0, n, &f);
    }
    // One slot per level of a binary counter: blocks are joined pairwise without recursion and without storing all of them.
    let mut levels = [[A::default(); K]; usize::BITS as usize];
    let (mut blocks, mut start) = (0usize, 0);
    while start < n {
        let mut sum = block(x, start, BLOCK.min(n - start), &f);
        let mut level = 0;
        while (blocks >> level) & 1 == 1 {
            add(&mut sum, &levels[level]);
            level += 1;
        }
        levels[level] = sum;
        blocks += 1;
        start += BLOCK;
    }
    let mut sum = [A::default(); K];
    for (level, part) in levels.iter().enumerate() {
        if (blocks >> level) & 1 == 1 {
            add(&mut sum, part);
        }
    }
    sum
}

#[inline(always)]
fn add<A: Real, const K: usize>(a: &mut [A; K], b: &[A; K]) {
    for k in 0..K {
        a[k] += b[k];
    }
}

/// The sums over `n` columns from `start`.
// A single index runs over all rows.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn block<A: Real, const N: usize, const K: usize>(
    x: [&[A]; N],
    start: usize,
    n: usize,
    f: &impl Fn([A; N]) -> [A; K],
) -> [A; K] {
    let mut lanes = [[A::default(); LANES]; K];
    let mut sum = [A::default(); K];
    let mut whole: [&[[A; LANES]]; N] = [&[]; N];
    let mut rest: [&[A]; N] = [&[]; N];
    for k in 0..N {
        let (a, b) = x[k][start..start + n].as_chunks::<LANES>();
        (whole[k], rest[k]) = (&a[..n / LANES], &b[..n % LANES]);
    }
    for i in 0..n / LANES {
        for lane in 0..LANES {
            let mut v = [A::default(); N];
            for k in 0..N {
                v[k] = whole[k][i][lane];
            }
            let v = f(v);
            for k in 0..K {
                lanes[k][lane] += v[k];
            }
        }
    }
    for lane in 0..n % LANES {
        let mut v = [A::default(); N];
        for k in 0..N {
            v[k] = rest[k][lane];
        }
        let v = f(v);
        for k in 0..K {
            sum[k] += v[k];
        }
    }
    if n >= LANES {
        for k in 0..K {
            sum[k] += join(
                lanes[k],
                #[inline(always)]
                |a, b| a + b,
            );
        }
    }
    sum
}

/// Folds the lanes by halving. Each step is a loop of constant length, so that the lanes stay in registers.
#[inline(always)]
fn join<A: Real>(lanes: [A; LANES], f: impl Fn(A, A) -> A) -> A {
    let (mut a, mut b, mut c, mut d) = ([lanes[0]; 16], [lanes[0]; 8], [lanes[0]; 4], [lanes[0]; 2]);
    for i in 0..16 {
        a[i] = f(lanes[i], lanes[i + 16]);
    }
    for i in 0..8 {
        b[i] = f(a[i], a[i + 8]);
    }
    for i in 0..4 {
        c[i] = f(b[i], b[i + 4]);
    }
    for i in 0..2 {
        d[i] = f(c[i], c[i + 2]);
    }
    f(d[0], d[1])
}

/// The fold of `load(x)` over a row by an associative `f` with its `unit`; both must be `#[inline(always)]` and without
/// branches.
#[inline(always)]
pub(crate) fn fold<A: Real>(x: &[A], unit: A, load: impl Fn(A) -> A, f: impl Fn(A, A) -> A) -> A {
    let (mut lanes, mut rest_of) = ([unit; LANES], unit);
    let (blocks, rest) = x.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            lanes[lane] = f(lanes[lane], load(block[lane]));
        }
    }
    for &x in rest {
        rest_of = f(rest_of, load(x));
    }
    if blocks.is_empty() {
        rest_of
    } else {
        f(join(lanes, &f), rest_of)
    }
}

/// The larger of two values; NaN if either is NaN, and the first of two NaN.
#[inline(always)]
pub(crate) fn larger<A: Real>(a: A, b: A) -> A {
    if (b > a) | (b.is_nan() & !a.is_nan()) { b } else { a }
}

/// The largest element, NaN if any is NaN, −∞ of an empty row.
#[inline(always)]
pub(crate) fn max_row<A: Real>(x: &[A]) -> A {
    fold(
        x,
        A::NEG_INFINITY,
        #[inline(always)]
        |x| x,
        larger,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_are_summed_once() {
        for n in [0, 1, 31, 32, 33, 4095, 4096, 4097, 3 * 4096 + 5, 7 * 4096] {
            let want = (n * n - n.min(n * n)) as f64 / 2.0;
            let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let ones = vec![1.0; n];
            let got = sums([&x, &ones], |[x, one]| [x, one, 2.0 * x]);
            assert_eq!(got, [want, n as f64, 2.0 * want], "{n}");
        }
    }

    #[test]
    fn long_f32_sums_keep_their_digits() {
        let got = f64::from(sum(&vec![0.1f32; 1 << 20], |x| x));
        let want = f64::from(0.1f32) * f64::from(1 << 20);
        assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
    }

    #[test]
    fn a_nan_anywhere_is_the_maximum() {
        for n in [1, 31, 33, 100] {
            let x: Vec<f32> = (0..n).map(|i| -(i as f32)).collect();
            assert_eq!(max_row(&x), 0.0);
            for at in [0, n / 2, n - 1] {
                let mut x = x.clone();
                x[at] = f32::NAN;
                assert!(max_row(&x).is_nan(), "{at} of {n}");
            }
        }
        assert_eq!(max_row::<f32>(&[]), f32::NEG_INFINITY);
    }
}
