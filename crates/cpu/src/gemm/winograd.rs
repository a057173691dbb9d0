//! The transforms of Winograd's convolution F(2×2, 3×3) on vectors of channels.
//!
//! With the matrices of A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2016,
//! `Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A` gives 2×2 results of a 3×3 window with 16 multiplications instead of 36. Y is linear in g
//! and in d, so its gradients are made of the same matrices, transposed.

// Closures of the standard library are calls where the inliner's budget ends: every loop here runs over an index.
#![allow(clippy::needless_range_loop)]

use super::vector::Vector;

/// The matrix of a transform `M·x·Mᵀ` of a square of `FROM × FROM` vectors to one of `TO × TO`.
pub(super) trait Matrix<const FROM: usize, const TO: usize> {
    /// `M·x`
    fn one<V: Vector<Element: From<f32>>>(x: [V; FROM]) -> [V; TO];
}

/// `Bᵀ d B`, of the image.
pub(super) struct Image;
/// `G g Gᵀ`, of the weight.
pub(super) struct Weight;
/// `Aᵀ m A`, of the products: the results.
pub(super) struct Result;
/// `A y Aᵀ`, of the gradient of the results.
pub(super) struct ResultGrad;
/// `Gᵀ s G`, of the products summed over tiles: the gradient of the weight.
pub(super) struct WeightGrad;

impl Matrix<4, 4> for Image {
    #[inline(always)]
    fn one<V: Vector<Element: From<f32>>>([a, b, c, d]: [V; 4]) -> [V; 4] {
        [a.sub(c), b.add(c), c.sub(b), b.sub(d)]
    }
}

impl Matrix<3, 4> for Weight {
    #[inline(always)]
    fn one<V: Vector<Element: From<f32>>>([a, b, c]: [V; 3]) -> [V; 4] {
        let half = V::splat(0.5.into());
        let (outer, b) = (a.add(c).mul(half), b.mul(half));
        [a, outer.add(b), outer.sub(b), c]
    }
}

impl Matrix<4, 2> for Result {
    #[inline(always)]
    fn one<V: Vector<Element: From<f32>>>([a, b, c, d]: [V; 4]) -> [V; 2] {
        [a.add(b).add(c), b.sub(c).sub(d)]
    }
}

impl Matrix<2, 4> for ResultGrad {
    #[inline(always)]
    fn one<V: Vector<Element: From<f32>>>([a, b]: [V; 2]) -> [V; 4] {
        [a, a.add(b), a.sub(b), V::zero().sub(b)]
    }
}

impl Matrix<4, 3> for WeightGrad {
    #[inline(always)]
    fn one<V: Vector<Element: From<f32>>>([a, b, c, d]: [V; 4]) -> [V; 3] {
        let half = V::splat(0.5.into());
        let (sum, difference) = (b.add(c).mul(half), b.sub(c).mul(half));
        [a.add(sum), difference, sum.add(d)]
    }
}

/// Transforms `len` channels: `from` has `FROM²` pointers to as many elements, `to` has `TO²`, row by row. To what is
/// written, `bias` is added where it is not null, and with `relu` it becomes `max(x, 0)`.
pub(super) struct Job<A> {
    from: *const *const A,
    to: *const *mut A,
    len: usize,
    bias: *const A,
    relu: bool,
}

/// A place that reads zeros and that is not written.
pub(crate) const NOWHERE: usize = usize::MAX;

/// A transform of `FROM` stretches of channels, a square row by row, to `TO`.
#[derive(Clone, Copy)]
pub(crate) struct Transform<A, const FROM: usize, const TO: usize>(unsafe fn(&Job<A>));

/// What a transform of `len` channels reads where there is nothing, writes where nothing is wanted, and does at last.
pub(crate) struct Channels<'s, A> {
    pub(crate) len: usize,
    pub(crate) zeros: &'s [A],
    pub(crate) sink: &'s mut [A],
    pub(crate) bias: Option<&'s [A]>,
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
            relu: false,
        }
    }
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
    pub(crate) fn to_points(
        self,
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
    pub(crate) fn from_points(
        self,
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

    fn apply(self, c: &Channels<'_, A>, from: &[*const A; FROM], to: &[*mut A; TO]) {
        let job = Job {
            from: from.as_ptr(),
            to: to.as_ptr(),
            len: c.len,
            bias: c.bias.map_or(std::ptr::null(), |bias| bias[..c.len].as_ptr()),
            relu: c.relu,
        };
        // SAFETY: `to_points` and `from_points` saw to it that every pointer has `len` elements behind it, and there are as
        // many as the transform takes.
        unsafe { (self.0)(&job) };
    }
}

/// # Safety
/// Every pointer of the job reaches what its comment says, and the machine has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn run<V, M, const FROM: usize, const TO: usize>(job: &Job<V::Element>)
where
    V: Vector<Element: From<f32>>,
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
    V: Vector<Element: From<f32>>,
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
                if job.relu {
                    x = x.relu();
                }
                let to = (*job.to.add(i * TO + j)).add(at);
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
