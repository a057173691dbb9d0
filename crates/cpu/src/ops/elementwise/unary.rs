//! Functions of one tensor and their gradients; the match on the function is outside the loop.

use crate::pointwise::{self, Pointwise};
use crate::simd::lanes::{Run, lanes, map};
use crate::simd::math::Math;
use kiln_core::ops::{Unary, UnaryParams};
use kiln_core::unary_functions;

/// The kernel `dx = f(x, y, g)`; `f` must be `#[inline(always)]`.
fn map3<A: Math>(f: impl Fn(A, A, A) -> A + Sync) -> impl Fn([&[A]; 3], &mut [A]) + Sync {
    move |[x, y, g], dx| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (((dx, &x), &y), &g) in dx.iter_mut().zip(x).zip(y).zip(g) {
                    *dx = f(x, y, g);
                }
            },
        );
    }
}

macro_rules! dispatch {
    ($($(#[$doc:meta])* $name:ident { $($row:tt)* })*) => {
        /// `y = f(x)`.
        pub(super) fn forward<A: Math>(p: &UnaryParams, run: Run<'_, A, 1>) {
            let (a, b) = (A::of(p.a), A::of(p.b));
            let [work, _] = p.op().function().work;
            match p.op() {
                $(Unary::$name => run(
                    work,
                    &map(
                        #[inline(always)]
                        move |x: A| pointwise::$name::value(x, a, b),
                    ),
                )),*
            }
        }

        /// `dx = g·f′(x)` for operands `[x, y, g]`.
        pub(super) fn backward<A: Math>(p: &UnaryParams, run: Run<'_, A, 3>) {
            let (a, b) = (A::of(p.a), A::of(p.b));
            let [_, work] = p.op().function().work;
            match p.op() {
                $(Unary::$name => run(
                    work,
                    &map3(
                        #[inline(always)]
                        move |x: A, y: A, g: A| pointwise::$name::slope(x, y, g, a, b),
                    ),
                )),*
            }
        }
    };
}
unary_functions!(dispatch);
