//! The transforms of Winograd's convolutions F(2×2, 3×3) and F(4×4, 3×3) on vectors of channels.
//!
//! With the matrices of A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016,
//! `Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A` gives 2×2 results of a 3×3 window with 16 multiplications instead of 36, or 4×4 with 36
//! instead of 144. Y is linear in g and in d, so its gradients are made of the same matrices, transposed.

// Closures of the standard library are calls where the inliner's budget ends: every loop here runs over an index.
#![allow(clippy::needless_range_loop)]

use super::vector::Vector;
use kiln_core::Float;

/// The matrix of a transform `M·x·Mᵀ` of a square of `FROM × FROM` vectors to one of `TO × TO`.
pub(super) trait Matrix<const FROM: usize, const TO: usize> {
    /// `M·x`
    fn one<V: Vector<Element: Float>>(x: [V; FROM]) -> [V; TO];
}

/// `Bᵀ d B`, of the image.
pub(super) struct Image;
/// `B d Bᵀ`, of the gradient of the products: the gradient of the image.
pub(super) struct ImageGrad;
/// `G g Gᵀ`, of the weight.
pub(super) struct Weight;
/// `Aᵀ m A`, of the products: the results.
pub(super) struct Result;
/// `A y Aᵀ`, of the gradient of the results.
pub(super) struct ResultGrad;
/// `Gᵀ s G`, of the products summed over tiles: the gradient of the weight.
pub(super) struct WeightGrad;

// F(2×2, 3×3), of the points 0, 1, -1 and infinity.

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

// F(4×4, 3×3), of the points 0, 1, -1, 2, -2 and infinity.

impl Matrix<6, 6> for Image {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 6] {
        let (four, minus_five) = (number(4.0), number(-5.0));
        let (minus_four, two) = (number(-4.0), number(2.0));
        let (even, odd) = (e.add_product(minus_four, c), d.add_product(minus_four, b));
        let (even2, odd2) = (e.sub(c), d.sub(b).mul(two));
        [
            e.add_product(four, a).add_product(minus_five, c),
            even.add(odd),
            even.sub(odd),
            even2.add(odd2),
            even2.sub(odd2),
            f.add_product(four, b).add_product(minus_five, d),
        ]
    }
}

impl Matrix<6, 6> for ImageGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 6] {
        let (four, minus_four, minus_five) = (number(4.0), number(-4.0), number(-5.0));
        let (sum, difference) = (b.add(c), b.sub(c));
        let (sum2, difference2) = (d.add(e), d.sub(e).mul(number(2.0)));
        [
            a.mul(four),
            f.mul(four).sub(difference2).add_product(minus_four, difference),
            a.mul(minus_five).sub(sum2).add_product(minus_four, sum),
            f.mul(minus_five).add(difference).add(difference2),
            a.add(sum).add(sum2),
            f,
        ]
    }
}

impl Matrix<3, 6> for Weight {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c]: [V; 3]) -> [V; 6] {
        let sixth = number(1.0 / 6.0);
        let (outer, inner) = (a.add(c).mul(number(-1.0 / 6.0)), b.mul(sixth));
        let (outer2, inner2) = (
            c.mul(sixth).add_product(a, number(1.0 / 24.0)),
            b.mul(number(1.0 / 12.0)),
        );
        [
            a.mul(number(0.25)),
            outer.sub(inner),
            outer.add(inner),
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
            difference.add_product(difference2, number(2.0)),
            sum.add_product(sum2, number(4.0)),
            difference.add(f).add_product(difference2, number(8.0)),
        ]
    }
}

impl Matrix<4, 6> for ResultGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d]: [V; 4]) -> [V; 6] {
        let (even, odd) = (a.add(c), b.add(d));
        let (even2, odd2) = (
            a.add_product(c, number(4.0)),
            b.mul(number(2.0)).add_product(d, number(8.0)),
        );
        [a, even.add(odd), even.sub(odd), even2.add(odd2), even2.sub(odd2), d]
    }
}

impl Matrix<6, 3> for WeightGrad {
    #[inline(always)]
    fn one<V: Vector<Element: Float>>([a, b, c, d, e, f]: [V; 6]) -> [V; 3] {
        let (sum, difference) = (b.add(c).mul(number(-1.0 / 6.0)), c.sub(b).mul(number(1.0 / 6.0)));
        let (sum2, difference2) = (d.add(e), d.sub(e).mul(number(1.0 / 12.0)));
        [
            a.mul(number(0.25)).add(sum).add_product(sum2, number(1.0 / 24.0)),
            difference.add(difference2),
            f.add(sum).add_product(sum2, number(1.0 / 6.0)),
        ]
    }
}

#[inline(always)]
fn number<V: Vector<Element: Float>>(x: f64) -> V {
    V::splat(V::Element::of(x))
}

/// Transforms `len` channels: `from` has `FROM²` pointers to as many elements, `to` has `TO²`, row by row. To what is
/// written, `bias` is added where it is not null, with `add` what was there before, and with `relu` it becomes `max(x, 0)`.
pub(super) struct Job<A> {
    from: *const *const A,
    to: *const *mut A,
    len: usize,
    bias: *const A,
    add: bool,
    relu: bool,
}

/// A place that reads zeros and that is not written.
pub(crate) const NOWHERE: usize = usize::MAX;

/// A transform of `FROM` stretches of channels, a square row by row, to `TO`.
pub(crate) struct Transform<A, const FROM: usize, const TO: usize>(unsafe fn(&Job<A>));

/// What a transform of `len` channels reads where there is nothing, writes where nothing is wanted, and does at last.
pub(crate) struct Channels<'s, A> {
    pub(crate) len: usize,
    pub(crate) zeros: &'s [A],
    pub(crate) sink: &'s mut [A],
    pub(crate) bias: Option<&'s [A]>,
    pub(crate) add: bool,
    pub(crate) relu: bool,
}

impl<'s, A> Channels<'s, A> {
    /// Nothing is done at last.
    pub(crate) fn new(len: usize, zeros: &'s [A], sink: &'s mut [A]) -> Self {
        Channels {
            len,
            zeros,
            sink,
            bias: None,
            add: false,
            relu: false,
        }
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

impl<A, const FROM: usize, const TO: usize> Transform<A, FROM, TO> {
    /// # Safety
    /// `run` takes jobs of `FROM` and `TO` pointers, and is called only where its instructions were found.
    pub(super) const unsafe fn new(run: unsafe fn(&Job<A>)) -> Self {
        Transform(run)
    }

    /// Transforms what starts at `places` of `from` to the points `first`, `first + step`, … of `to`.
    ///
    /// # Panics
    /// When a place or point has fewer channels: a bug in the op.
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
        self.apply(c, &pointers, &targets);
    }

    /// Transforms the points `first`, `first + step`, … of `from` to what starts at `places` of `to`.
    ///
    /// # Panics
    /// When a place or point has fewer channels: a bug in the op.
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
        self.apply(c, &pointers, &targets);
    }

    fn apply(&self, c: &Channels<'_, A>, from: &[*const A; FROM], to: &[*mut A; TO]) {
        let job = Job {
            from: from.as_ptr(),
            to: to.as_ptr(),
            len: c.len,
            bias: c.bias.map_or(std::ptr::null(), |bias| bias[..c.len].as_ptr()),
            add: c.add,
            relu: c.relu,
        };
        // SAFETY: `spread` and `gather` saw to it that every pointer has `len` elements behind it, and there are as
        // many as the transform takes.
        unsafe { (self.0)(&job) };
    }
}

/// # Safety
/// Every pointer of the job reaches what its comment says, and the machine has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn run<V, M, const FROM: usize, const TO: usize>(job: &Job<V::Element>)
where
    V: Vector<Element: Float>,
    M: Matrix<FROM, TO>,
{
    let whole = job.len / V::LANES * V::LANES;
    // SAFETY: the caller's contract: as many elements are left behind every pointer.
    unsafe {
        for at in (0..whole).step_by(V::LANES) {
            step::<V, M, FROM, TO, true>(job, at, V::LANES);
        }
        if whole < job.len {
            step::<V, M, FROM, TO, false>(job, whole, job.len - whole);
        }
    }
}

/// The elements `at..at + n`: a `WHOLE` vector, or less.
///
/// # Safety
/// As [`run`], and `n` elements are left from `at` on.
#[inline(always)]
unsafe fn step<V, M, const FROM: usize, const TO: usize, const WHOLE: bool>(job: &Job<V::Element>, at: usize, n: usize)
where
    V: Vector<Element: Float>,
    M: Matrix<FROM, TO>,
{
    // SAFETY: the caller's contract.
    unsafe {
        let mut half = [[V::zero(); FROM]; TO];
        for j in 0..FROM {
            let mut column = [V::zero(); FROM];
            for i in 0..FROM {
                column[i] = load::<V, WHOLE>((*job.from.add(i * FROM + j)).add(at), n);
            }
            let column = M::one(column);
            for i in 0..TO {
                half[i][j] = column[i];
            }
        }
        let biased = !job.bias.is_null();
        let bias = if biased {
            load::<V, WHOLE>(job.bias.add(at), n)
        } else {
            V::zero()
        };
        for i in 0..TO {
            let row = M::one(half[i]);
            for j in 0..TO {
                let mut x = row[j];
                if biased {
                    x = x.add(bias);
                }
                let to = (*job.to.add(i * TO + j)).add(at);
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
