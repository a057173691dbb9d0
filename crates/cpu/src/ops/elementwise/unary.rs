//! Functions of one tensor and their gradients: the match on the op stands outside the loop.

use crate::blocks::{Run, lanes, map};
use crate::math::Math;
use crate::pointwise::{GELU_CUBE, GELU_SCALE, gelu, gelu_gate, gelu_tanh, relu, silu};
use kiln_core::ops::{Unary, UnaryParams};

/// Work of an exponential, and of a function that calls into a library, relative to one multiplication.
const EXP: usize = 4;
const LIB: usize = 64;

/// 2/√π
const ERF_SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI;

#[inline(always)]
fn sign<A: Math>(x: A) -> A {
    if x > A::ZERO {
        A::ONE
    } else if x < A::ZERO {
        -A::ONE
    } else {
        A::ZERO
    }
}

/// Runs `y = f(x)`.
macro_rules! map {
    ($run:ident, $cost:expr, |$x:ident| $f:expr) => {
        $run(
            $cost,
            &map(
                #[inline(always)]
                move |$x: A| $f,
            ),
        )
    };
}

/// `y = f(x)`.
pub(super) fn forward<A: Math>(p: &UnaryParams, run: Run<'_, A, 1>) {
    let (a, b) = (A::of(p.a), A::of(p.b));
    let (zero, one) = (A::ZERO, A::ONE);
    match p.op() {
        Unary::Affine => map!(run, 1, |x| a * x + b),
        Unary::Neg => map!(run, 1, |x| -x),
        Unary::Abs => map!(run, 1, |x| x.abs()),
        Unary::Exp => map!(run, EXP, |x| x.exp()),
        Unary::Log => map!(run, EXP, |x| x.ln()),
        Unary::Sqrt => map!(run, 2, |x| x.sqrt()),
        Unary::Rsqrt => map!(run, 2, |x| one / x.sqrt()),
        Unary::Square => map!(run, 1, |x| x * x),
        Unary::Reciprocal => map!(run, 2, |x| one / x),
        Unary::Sin => map!(run, LIB, |x| x.sin()),
        Unary::Cos => map!(run, LIB, |x| x.cos()),
        Unary::Tanh => map!(run, EXP, |x| x.tanh()),
        Unary::Sigmoid => map!(run, EXP, |x| x.sigmoid()),
        Unary::Relu => map!(run, 1, |x| relu(x)),
        Unary::LeakyRelu => map!(run, 1, |x| if x > zero { x } else { a * x }),
        Unary::Elu => map!(run, LIB, |x| if x > zero { x } else { a * x.exp_m1() }),
        Unary::Gelu => map!(run, 2 * EXP, |x| gelu(x)),
        Unary::GeluTanh => map!(run, EXP, |x| gelu_tanh(x)),
        Unary::Silu => map!(run, EXP, |x| silu(x)),
        Unary::Softplus => map!(run, LIB, |x| if a * x > b { x } else { (a * x).exp().ln_1p() / a }),
        Unary::Clamp => map!(run, 1, |x| {
            let low = if x < a { a } else { x };
            if low > b { b } else { low }
        }),
        Unary::Powf => map!(run, LIB, |x| x.powf(a)),
        Unary::Erf => map!(run, 2 * EXP, |x| x.erf()),
        Unary::Sign => map!(run, 1, |x| sign(x)),
    }
}

/// The kernel `dx = f(x, y, g)`; `f` must be `#[inline(always)]`.
fn slope<A: Math>(f: impl Fn(A, A, A) -> A + Sync) -> impl Fn([&[A]; 3], &mut [A]) + Sync {
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

/// Runs `dx = f(x, y, g)`.
macro_rules! slope {
    ($run:ident, $cost:expr, |$x:tt, $y:tt, $g:tt| $f:expr) => {
        $run(
            $cost,
            &slope(
                #[inline(always)]
                move |$x: A, $y: A, $g: A| $f,
            ),
        )
    };
}

/// `dx = g·f′(x)` of operands `[x, y, g]`.
pub(super) fn backward<A: Math>(p: &UnaryParams, run: Run<'_, A, 3>) {
    let (a, b) = (A::of(p.a), A::of(p.b));
    let (zero, one, half) = (A::ZERO, A::ONE, A::HALF);
    let two = A::of(2.0);
    match p.op() {
        Unary::Affine => slope!(run, 1, |_, _, g| a * g),
        Unary::Neg => slope!(run, 1, |_, _, g| -g),
        Unary::Abs => slope!(run, 1, |x, _, g| g * sign(x)),
        Unary::Exp => slope!(run, 1, |_, y, g| g * y),
        Unary::Log => slope!(run, 2, |x, _, g| g / x),
        Unary::Sqrt => slope!(run, 2, |_, y, g| g / (two * y)),
        Unary::Rsqrt => slope!(run, 1, |_, y, g| -half * g * (y * y * y)),
        Unary::Square => slope!(run, 1, |x, _, g| two * g * x),
        Unary::Reciprocal => slope!(run, 1, |_, y, g| -g * (y * y)),
        Unary::Sin => slope!(run, LIB, |x, _, g| g * x.cos()),
        Unary::Cos => slope!(run, LIB, |x, _, g| -g * x.sin()),
        Unary::Tanh => slope!(run, 1, |_, y, g| g * (one - y * y)),
        Unary::Sigmoid => slope!(run, 1, |_, y, g| g * (one - y) * y),
        Unary::Relu => slope!(run, 1, |_, y, g| if y <= zero { zero } else { g }),
        Unary::LeakyRelu => slope!(run, 1, |x, _, g| if x > zero { g } else { a * g }),
        Unary::Elu => slope!(run, EXP, |x, _, g| if x <= zero { g * a * x.exp() } else { g }),
        Unary::Gelu => slope!(run, 2 * EXP, |x, _, g| {
            let (cdf, pdf) = x.normal();
            g * (cdf + x * pdf)
        }),
        Unary::GeluTanh => slope!(run, EXP, |x, _, g| {
            let s = gelu_gate(x);
            let slope = A::of(2.0 * GELU_SCALE) * (one + A::of(3.0 * GELU_CUBE) * x * x);
            g * (s + x * s * (one - s) * slope)
        }),
        Unary::Silu => slope!(run, EXP, |x, _, g| {
            let s = x.sigmoid();
            g * s * (one + x * (one - s))
        }),
        Unary::Softplus => slope!(run, EXP, |x, _, g| if a * x > b { g } else { g * (a * x).sigmoid() }),
        // An infinite bound is none, so it may be reached.
        Unary::Clamp => {
            let (no_min, no_max) = (a == A::of(f64::NEG_INFINITY), b == A::of(f64::INFINITY));
            slope!(run, 1, |x, _, g| {
                let above = (x > a) | (no_min & (x == a));
                let below = (x < b) | (no_max & (x == b));
                if above & below { g } else { zero }
            })
        }
        // The exponent 0 is a constant function, also at 0 where 0·0⁻¹ would be NaN.
        Unary::Powf if a == zero => slope!(run, 1, |_, _, _| zero),
        Unary::Powf => slope!(run, LIB, |x, _, g| g * (a * x.powf(a - one))),
        Unary::Erf => slope!(run, EXP, |x, _, g| g * A::of(ERF_SLOPE) * (-x * x).exp()),
        Unary::Sign => slope!(run, 1, |_, _, _| zero),
    }
}
