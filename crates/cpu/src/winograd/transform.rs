//! The transforms of Winograd's convolutions F(2×2, 3×3) and F(4×2, 3×3) on vectors of channels.
//!
//! As in A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, `Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A`
//! gives 2×2 results of a 3×3 window with 16 multiplications instead of 36; with other matrices for the rows than for the
//! columns, 4×2 results with 24 instead of 72. Y is linear in g and in d, so its gradients use the same matrices,
//! transposed.

// Closures of the standard library become calls when the inliner's budget is spent, so every loop here runs over an index.
#![allow(clippy::needless_range_loop)]

use crate::simd::real::Real;
use crate::simd::vector::Vector;
use kiln_core::Float;

/// The matrix of a transform of `FROM` vectors to `TO`, applied to each column of a tile and then to each row.
pub(crate) trait Matrix<const FROM: usize, const TO: usize> {
    /// `M·x`
    fn one<V: Vector<Element: Float>>(x: [V; FROM]) -> [V; TO];
}

/// `Bᵀ d B`, of the image.
pub(crate) struct Image;
/// `B d Bᵀ`, of the gradient of the products: the gradient of the image.
pub(crate) struct ImageGrad;
/// `G g Gᵀ`, of the weight.
pub(crate) struct Weight;
/// `Aᵀ m A`, of the products: the results.
pub(crate) struct Result;
/// `A y Aᵀ`, of the gradient of the results.
pub(crate) struct ResultGrad;
/// `Gᵀ s G`, of the products summed over tiles: the gradient of the weight.
pub(crate) struct WeightGrad;

// F(2×2, 3×3), with the points 0, 1, −1 and infinity.

impl Matrix<4, 4> for Image {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 4] {
        [a.sub(c), b.add(c), c.sub(b), b.sub(d)]
    }
}

impl Matrix<4, 4> for ImageGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 4] {
        [a, b.sub(c).add(d), b.add(c).sub(a), V::zero().sub(d)]
    }
}

impl Matrix<3, 4> for Weight {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c]: [V; 3]) -> [V; 4] {
        let half = number(0.5);
        let (outer, b) = (a.add(c).mul(half), b.mul(half));
        [a, outer.add(b), outer.sub(b), c]
    }
}

impl Matrix<4, 2> for Result {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 2] {
        [a.add(b).add(c), b.sub(c).sub(d)]
    }
}

impl Matrix<2, 4> for ResultGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b]: [V; 2]) -> [V; 4] {
        [a, a.add(b), a.sub(b), V::zero().sub(b)]
    }
}

impl Matrix<4, 3> for WeightGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 3] {
        let half = number(0.5);
        let (sum, difference) = (b.add(c).mul(half), b.sub(c).mul(half));
        [a.add(sum), difference, sum.add(d)]
    }
}

// F(4, 3), with the points 0, p, −p, q, −q and infinity.
//
// The points decide how many digits are lost: a result is a sum of products that are larger than it by up to the norms of
// the rows of Aᵀ, G and Bᵀ. With the usual ±1 and ±2 the root mean square grows by up to 5.6 in each dimension, with these
// points by up to 2.7, which is close to the minimum over all ±p and ±q; F(2, 3) has 1.3. The coefficients made of them
// without a division have few enough bits to be exact in f32.

const P: f64 = 11.0 / 16.0;
const Q: f64 = 23.0 / 16.0;
const P2: f64 = P * P;
const Q2: f64 = Q * Q;
/// The divisors of the rows of G for the points 0, ±p and ±q.
const AT_ZERO: f64 = P2 * Q2;
const AT_P: f64 = 2.0 * P2 * (P2 - Q2);
const AT_Q: f64 = 2.0 * Q2 * (Q2 - P2);

impl Matrix<6, 6> for Image {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 6] {
        let (product, minus_sum) = (number(P2 * Q2), number(-P2 - Q2));
        let (even, odd) = (
            e.add_product(number(-Q2), c),
            d.add_product(number(-Q2), b).mul(number(P)),
        );
        let (even2, odd2) = (
            e.add_product(number(-P2), c),
            d.add_product(number(-P2), b).mul(number(Q)),
        );
        [
            e.add_product(product, a).add_product(minus_sum, c),
            even.add(odd),
            even.sub(odd),
            even2.add(odd2),
            even2.sub(odd2),
            f.add_product(product, b).add_product(minus_sum, d),
        ]
    }
}

impl Matrix<6, 6> for ImageGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 6] {
        let (product, minus_sum) = (number(P2 * Q2), number(-P2 - Q2));
        let (minus_p2, minus_q2) = (number(-P2), number(-Q2));
        let (sum, difference) = (b.add(c), b.sub(c).mul(number(P)));
        let (sum2, difference2) = (d.add(e), d.sub(e).mul(number(Q)));
        [
            a.mul(product),
            f.mul(product)
                .add_product(minus_q2, difference)
                .add_product(minus_p2, difference2),
            a.mul(minus_sum).add_product(minus_q2, sum).add_product(minus_p2, sum2),
            f.mul(minus_sum).add(difference).add(difference2),
            a.add(sum).add(sum2),
            f,
        ]
    }
}

impl Matrix<3, 6> for Weight {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c]: [V; 3]) -> [V; 6] {
        let outer = a.mul(number(1.0 / AT_P)).add_product(c, number(P2 / AT_P));
        let outer2 = a.mul(number(1.0 / AT_Q)).add_product(c, number(Q2 / AT_Q));
        let (inner, inner2) = (b.mul(number(P / AT_P)), b.mul(number(Q / AT_Q)));
        [
            a.mul(number(1.0 / AT_ZERO)),
            outer.add(inner),
            outer.sub(inner),
            outer2.add(inner2),
            outer2.sub(inner2),
            c,
        ]
    }
}

impl Matrix<6, 4> for Result {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 4] {
        let (sum, difference) = (b.add(c), b.sub(c));
        let (sum2, difference2) = (d.add(e), d.sub(e));
        [
            a.add(sum).add(sum2),
            difference.mul(number(P)).add_product(difference2, number(Q)),
            sum.mul(number(P2)).add_product(sum2, number(Q2)),
            f.add_product(difference, number(P * P2))
                .add_product(difference2, number(Q * Q2)),
        ]
    }
}

impl Matrix<4, 6> for ResultGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 6] {
        let (even, odd) = (
            a.add_product(c, number(P2)),
            b.mul(number(P)).add_product(d, number(P * P2)),
        );
        let (even2, odd2) = (
            a.add_product(c, number(Q2)),
            b.mul(number(Q)).add_product(d, number(Q * Q2)),
        );
        [a, even.add(odd), even.sub(odd), even2.add(odd2), even2.sub(odd2), d]
    }
}

impl Matrix<6, 3> for WeightGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 3] {
        let (sum, difference) = (b.add(c), b.sub(c).mul(number(P / AT_P)));
        let (sum2, difference2) = (d.add(e), d.sub(e).mul(number(Q / AT_Q)));
        [
            a.mul(number(1.0 / AT_ZERO))
                .add_product(sum, number(1.0 / AT_P))
                .add_product(sum2, number(1.0 / AT_Q)),
            difference.add(difference2),
            f.add_product(sum, number(P2 / AT_P))
                .add_product(sum2, number(Q2 / AT_Q)),
        ]
    }
}

#[inline(always)]
fn number<V: Vector<Element: Float>>(x: f64) -> V {
    V::splat(V::Element::of(x))
}

/// A transform of `len` channels. `from` and `to` have a pointer to `len` elements for every element of a tile, row by row.
/// To the results `bias` is added unless it is null; with `add`, also the old contents of `to`; with `relu`, `max(x, 0)` is
/// taken. A vector at `finite`, unless null, stays zero while all results before that are finite, and is NaN otherwise.
pub(crate) struct Job<A> {
    from: *const *const A,
    to: *const *mut A,
    len: usize,
    bias: *const A,
    add: bool,
    relu: bool,
    finite: *mut A,
}

/// The number of elements of the longest vector.
const MAX_LANES: usize = 16;

/// The position of an element outside the image, which reads as zeros and is not written.
pub(crate) const NOWHERE: usize = usize::MAX;

/// A transform of `FROM` vectors of channels, the elements of a tile row by row, to `TO`.
pub(crate) struct Transform<A, const FROM: usize, const TO: usize>(unsafe fn(&Job<A>));

/// The arguments of transforms of `len` channels: the zeros read and the memory written outside the image, and the epilogue.
pub(crate) struct Channels<'s, A> {
    pub(crate) len: usize,
    pub(crate) zeros: &'s [A],
    pub(crate) sink: &'s mut [A],
    pub(crate) bias: Option<&'s [A]>,
    pub(crate) add: bool,
    pub(crate) relu: bool,
    /// Zeros; NaN after a gathered result that was not finite.
    finite: [A; MAX_LANES],
}

impl<'s, A: Real> Channels<'s, A> {
    /// Creates arguments without an epilogue.
    pub(crate) fn new(len: usize, zeros: &'s [A], sink: &'s mut [A]) -> Self {
        Channels {
            len,
            zeros,
            sink,
            bias: None,
            add: false,
            relu: false,
            finite: [A::default(); MAX_LANES],
        }
    }

    /// True if all gathered results were finite before the epilogue.
    pub(crate) fn finite(&self) -> bool {
        self.finite.iter().all(|x| *x == A::default())
    }
}

/// The transforms of tiles of `POINTS` elements that give `RESULTS` results.
pub(crate) struct Transforms<A, const POINTS: usize, const RESULTS: usize> {
    pub(crate) image: Transform<A, POINTS, POINTS>,
    pub(crate) image_grad: Transform<A, POINTS, POINTS>,
    pub(crate) weight: Transform<A, 9, POINTS>,
    pub(crate) result: Transform<A, POINTS, RESULTS>,
    pub(crate) result_grad: Transform<A, RESULTS, POINTS>,
    pub(crate) weight_grad: Transform<A, POINTS, 9>,
}

impl<A: Real, const FROM: usize, const TO: usize> Transform<A, FROM, TO> {
    /// # Safety
    /// `run` takes jobs of `FROM` and `TO` pointers, and is called only where its instructions were found.
    pub(crate) const unsafe fn new(run: unsafe fn(&Job<A>)) -> Self {
        Transform(run)
    }

    /// Transforms the elements at `places` of `from` to the points `first`, `first + step`, … of `to`.
    ///
    /// # Panics
    /// If a position or point has fewer channels: a bug in the op.
    #[inline]
    pub(crate) fn spread(
        &self,
        c: &mut Channels<'_, A>,
        from: &[A],
        places: &[usize; FROM],
        to: &mut [A],
        first: usize,
        step: usize,
    ) {
        let n = c.len;
        assert!(n <= c.zeros.len() && first + (TO - 1) * step + n <= to.len());
        let mut pointers = [c.zeros.as_ptr(); FROM];
        for i in 0..FROM {
            if places[i] != NOWHERE {
                pointers[i] = from[places[i]..places[i] + n].as_ptr();
            }
        }
        // SAFETY: the points lie inside of `to`, as compared above.
        let first = unsafe { to.as_mut_ptr().add(first) };
        let mut targets = [first; TO];
        for i in 0..TO {
            targets[i] = first.wrapping_add(i * step);
        }
        self.apply(c, &pointers, &targets, std::ptr::null_mut());
    }

    /// Transforms the points `first`, `first + step`, … of `from` to the elements at `places` of `to`.
    ///
    /// # Panics
    /// If a position or point has fewer channels: a bug in the op.
    #[inline]
    pub(crate) fn gather(
        &self,
        c: &mut Channels<'_, A>,
        from: &[A],
        first: usize,
        step: usize,
        to: &mut [A],
        places: &[usize; TO],
    ) {
        let n = c.len;
        assert!(n <= c.sink.len() && first + (FROM - 1) * step + n <= from.len());
        let first = from[first..].as_ptr();
        let mut pointers = [first; FROM];
        for i in 0..FROM {
            pointers[i] = first.wrapping_add(i * step);
        }
        let (size, to) = (to.len(), to.as_mut_ptr());
        let mut targets = [c.sink.as_mut_ptr(); TO];
        for i in 0..TO {
            if places[i] != NOWHERE {
                assert!(places[i] + n <= size, "a place inside the result");
                targets[i] = to.wrapping_add(places[i]);
            }
        }
        let finite = c.finite.as_mut_ptr();
        self.apply(c, &pointers, &targets, finite);
    }

    fn apply(&self, c: &Channels<'_, A>, from: &[*const A; FROM], to: &[*mut A; TO], finite: *mut A) {
        let job = Job {
            from: from.as_ptr(),
            to: to.as_ptr(),
            len: c.len,
            bias: c.bias.map_or(std::ptr::null(), |bias| bias[..c.len].as_ptr()),
            add: c.add,
            relu: c.relu,
            finite,
        };
        // SAFETY: `spread` and `gather` checked that every pointer has `len` elements behind it, and there are as
        // many as the transform takes; `finite` is null or has the elements of the longest vector.
        unsafe { (self.0)(&job) };
    }
}

/// Transforms tiles of `H` rows and `W` columns to `TH` rows and `TW` columns.
///
/// # Safety
/// Every pointer of the job reaches what its comment says, and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn run<V, M, const H: usize, const W: usize, const TH: usize, const TW: usize>(job: &Job<V::Element>)
where
    V: Vector<Element: Float>,
    M: Matrix<H, TH> + Matrix<W, TW>,
{
    const { assert!(V::LANES <= MAX_LANES) };
    let whole = job.len / V::LANES * V::LANES;
    let mut finite = V::zero();
    // SAFETY: the caller's contract: as many elements are left behind every pointer.
    unsafe {
        for at in (0..whole).step_by(V::LANES) {
            step::<V, M, H, W, TH, TW, true>(job, at, V::LANES, &mut finite);
        }
        if whole < job.len {
            step::<V, M, H, W, TH, TW, false>(job, whole, job.len - whole, &mut finite);
        }
        if !job.finite.is_null() {
            V::load(job.finite).add(finite).store(job.finite);
        }
    }
}

/// Transforms the elements `at..at + n` of all channels: a `WHOLE` vector, or less.
///
/// # Safety
/// As [`run`], and `n` elements are left from `at` on.
#[inline(always)]
unsafe fn step<V, M, const H: usize, const W: usize, const TH: usize, const TW: usize, const WHOLE: bool>(
    job: &Job<V::Element>,
    at: usize,
    n: usize,
    finite: &mut V,
) where
    V: Vector<Element: Float>,
    M: Matrix<H, TH> + Matrix<W, TW>,
{
    // SAFETY: the caller's contract.
    unsafe {
        let mut half = [[V::zero(); W]; TH];
        for j in 0..W {
            let mut column = [V::zero(); H];
            for i in 0..H {
                column[i] = load::<V, WHOLE>((*job.from.add(i * W + j)).add(at), n);
            }
            let column: [V; TH] = M::one(column);
            for i in 0..TH {
                half[i][j] = column[i];
            }
        }
        let (biased, checked) = (!job.bias.is_null(), !job.finite.is_null());
        let bias = if biased {
            load::<V, WHOLE>(job.bias.add(at), n)
        } else {
            V::zero()
        };
        for i in 0..TH {
            let row: [V; TW] = M::one(half[i]);
            for j in 0..TW {
                let mut x = row[j];
                if checked {
                    // Zero times a NaN or infinity is NaN.
                    *finite = finite.add_product(x, V::zero());
                }
                if biased {
                    x = x.add(bias);
                }
                let to = (*job.to.add(i * TW + j)).add(at);
                if job.add {
                    x = x.add(load::<V, WHOLE>(to, n));
                }
                if job.relu {
                    x = x.relu();
                }
                if WHOLE {
                    x.store(to);
                } else {
                    x.store_first(to, n);
                }
            }
        }
    }
}

/// # Safety
/// A vector, or `n` elements, are readable at `p`.
#[inline(always)]
unsafe fn load<V: Vector, const WHOLE: bool>(p: *const V::Element, n: usize) -> V {
    // SAFETY: the caller's contract.
    unsafe { if WHOLE { V::load(p) } else { V::load_first(p, n) } }
}
