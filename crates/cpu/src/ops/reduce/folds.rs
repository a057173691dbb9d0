//! The fold operations of reductions.

use crate::simd::real::Real;

/// An associative operation with its unit element, and the function applied to each element first.
pub(super) trait Fold {
    fn unit<A: Real>() -> A;
    fn load<A: Real>(x: A) -> A;
    fn join<A: Real>(a: A, b: A) -> A;
}

pub(super) struct Sum;
pub(super) struct SumSquares;
pub(super) struct Max;
pub(super) struct Min;

impl Fold for Sum {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::default()
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        a + b
    }
}

impl Fold for SumSquares {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::default()
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x * x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        a + b
    }
}

impl Fold for Max {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::NEG_INFINITY
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    // A NaN in `a` stays because comparisons with it fail; one in `b` is tested for.
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        if (b > a) | b.is_nan() { b } else { a }
    }
}

impl Fold for Min {
    #[inline(always)]
    fn unit<A: Real>() -> A {
        A::INFINITY
    }
    #[inline(always)]
    fn load<A: Real>(x: A) -> A {
        x
    }
    #[inline(always)]
    fn join<A: Real>(a: A, b: A) -> A {
        if (b < a) | b.is_nan() { b } else { a }
    }
}
