//! Functions of one tensor and their gradients: the match on the op stands outside the loop.

use crate::math::Math;
use crate::parallel;
use kiln_core::Float;
use kiln_core::ops::{Unary, UnaryParams};

/// Work of a library function (exp, tanh, …) relative to one multiplication.
const LIB: usize = 16;

fn map<T: Float<Acc = A>, A: Math>(x: &[T], y: &mut [T], cost: usize, f: impl Fn(A) -> A + Sync) {
    debug_assert_eq!(x.len(), y.len());
    parallel::chunks_mut(y, 1, cost, |at, y| {
        for (y, x) in y.iter_mut().zip(&x[at..]) {
            *y = T::narrow(f(x.wide()));
        }
    });
}

/// `dx = f(x, y, g)`.
fn map3<T: Float<Acc = A>, A: Math>(
    x: &[T],
    y: &[T],
    g: &[T],
    dx: &mut [T],
    cost: usize,
    f: impl Fn(A, A, A) -> A + Sync,
) {
    debug_assert!(x.len() == dx.len() && y.len() == dx.len() && g.len() == dx.len());
    parallel::chunks_mut(dx, 1, cost, |at, dx| {
        for (((d, x), y), g) in dx.iter_mut().zip(&x[at..]).zip(&y[at..]).zip(&g[at..]) {
            *d = T::narrow(f(x.wide(), y.wide(), g.wide()));
        }
    });
}

/// √(2/π) and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
const GELU_CUBE: f64 = 0.044_715;
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

pub(super) fn forward<T: Float<Acc = A>, A: Math>(p: &UnaryParams, x: &[T], y: &mut [T]) {
    let (a, b) = (A::of(p.a), A::of(p.b));
    let (zero, one) = (A::ZERO, A::ONE);
    match p.op() {
        Unary::Affine => map(x, y, 1, |x: A| a * x + b),
        Unary::Neg => map(x, y, 1, |x: A| -x),
        Unary::Abs => map(x, y, 1, |x: A| x.abs()),
        Unary::Exp => map(x, y, LIB, |x: A| x.exp()),
        Unary::Log => map(x, y, LIB, |x: A| x.ln()),
        Unary::Sqrt => map(x, y, 4, |x: A| x.sqrt()),
        Unary::Rsqrt => map(x, y, 4, |x: A| one / x.sqrt()),
        Unary::Square => map(x, y, 1, |x: A| x * x),
        Unary::Reciprocal => map(x, y, 2, |x: A| one / x),
        Unary::Sin => map(x, y, LIB, |x: A| x.sin()),
        Unary::Cos => map(x, y, LIB, |x: A| x.cos()),
        Unary::Tanh => map(x, y, LIB, |x: A| x.tanh()),
        Unary::Sigmoid => map(x, y, LIB, |x: A| x.sigmoid()),
        // Written so that NaN stays NaN.
        Unary::Relu => map(x, y, 1, |x: A| if x < zero { zero } else { x }),
        Unary::LeakyRelu => map(x, y, 1, |x: A| if x > zero { x } else { a * x }),
        Unary::Elu => map(x, y, LIB, |x: A| if x > zero { x } else { a * x.exp_m1() }),
        Unary::Gelu => map(x, y, LIB, |x: A| x * x.normal_cdf()),
        Unary::GeluTanh => map(x, y, LIB, |x: A| x * gelu_gate(x)),
        Unary::Silu => map(x, y, LIB, |x: A| x * x.sigmoid()),
        Unary::Softplus => map(x, y, LIB, |x: A| if a * x > b { x } else { (a * x).exp().ln_1p() / a }),
        Unary::Clamp => map(x, y, 1, |x: A| {
            let low = if x < a { a } else { x };
            if low > b { b } else { low }
        }),
        Unary::Powf => map(x, y, LIB, |x: A| x.powf(a)),
        Unary::Erf => map(x, y, LIB, |x: A| x.erf()),
        Unary::Sign => map(x, y, 1, |x: A| sign(x)),
    }
}

/// 1/2·(1 + tanh u) = sigmoid(2u): one exponential, and no cancellation in the lower tail.
#[inline(always)]
fn gelu_gate<A: Math>(x: A) -> A {
    (A::of(2.0 * GELU_SCALE) * (x + A::of(GELU_CUBE) * x * x * x)).sigmoid()
}

pub(super) fn backward<T: Float<Acc = A>, A: Math>(p: &UnaryParams, x: &[T], y: &[T], g: &[T], dx: &mut [T]) {
    let (a, b) = (A::of(p.a), A::of(p.b));
    let (zero, one, half) = (A::ZERO, A::ONE, A::HALF);
    let two = A::of(2.0);
    match p.op() {
        Unary::Affine => map(g, dx, 1, |g: A| a * g),
        Unary::Neg => map(g, dx, 1, |g: A| -g),
        Unary::Abs => map3(x, y, g, dx, 1, |x: A, _, g| g * sign(x)),
        Unary::Exp => map3(x, y, g, dx, 1, |_: A, y, g| g * y),
        Unary::Log => map3(x, y, g, dx, 2, |x: A, _, g| g / x),
        Unary::Sqrt => map3(x, y, g, dx, 2, |_: A, y, g| g / (two * y)),
        Unary::Rsqrt => map3(x, y, g, dx, 2, |_: A, y, g| -half * g * (y * y * y)),
        Unary::Square => map3(x, y, g, dx, 1, |x: A, _, g| two * g * x),
        Unary::Reciprocal => map3(x, y, g, dx, 1, |_: A, y, g| -g * (y * y)),
        Unary::Sin => map3(x, y, g, dx, LIB, |x: A, _, g| g * x.cos()),
        Unary::Cos => map3(x, y, g, dx, LIB, |x: A, _, g| -g * x.sin()),
        Unary::Tanh => map3(x, y, g, dx, 1, |_: A, y, g| g * (one - y * y)),
        Unary::Sigmoid => map3(x, y, g, dx, 1, |_: A, y, g| g * (one - y) * y),
        Unary::Relu => map3(x, y, g, dx, 1, |_: A, y, g| if y <= zero { zero } else { g }),
        Unary::LeakyRelu => map3(x, y, g, dx, 1, |x: A, _, g| if x > zero { g } else { a * g }),
        Unary::Elu => map3(
            x,
            y,
            g,
            dx,
            LIB,
            |x: A, _, g| if x > zero { g } else { g * a * x.exp() },
        ),
        Unary::Gelu => map3(x, y, g, dx, 2 * LIB, |x: A, _, g| {
            g * (x.normal_cdf() + x * x.normal_pdf())
        }),
        Unary::GeluTanh => map3(x, y, g, dx, LIB, |x: A, _, g| {
            let s = gelu_gate(x);
            let slope = A::of(2.0 * GELU_SCALE) * (one + A::of(3.0 * GELU_CUBE) * x * x);
            g * (s + x * s * (one - s) * slope)
        }),
        Unary::Silu => map3(x, y, g, dx, LIB, |x: A, _, g| {
            let s = x.sigmoid();
            g * s * (one + x * (one - s))
        }),
        Unary::Softplus => map3(
            x,
            y,
            g,
            dx,
            LIB,
            |x: A, _, g| {
                if a * x > b { g } else { g * (a * x).sigmoid() }
            },
        ),
        Unary::Clamp => map3(x, y, g, dx, 1, |x: A, _, g| if x >= a && x <= b { g } else { zero }),
        // The exponent 0 is a constant function, also at 0 where 0·0⁻¹ would be NaN.
        Unary::Powf if a == zero => dx.fill(T::narrow(zero)),
        Unary::Powf => map3(x, y, g, dx, LIB, |x: A, _, g| g * (a * x.powf(a - one))),
        Unary::Erf => map3(x, y, g, dx, LIB, |x: A, _, g| g * A::of(ERF_SLOPE) * (-x * x).exp()),
        Unary::Sign => dx.fill(T::narrow(zero)),
    }
}
