//! The elementwise functions of the table in `kiln-core`, each defined once by its value and slope. Elementwise ops and the
//! epilogues of products and convolutions use these definitions.

use crate::simd::math::Math;

/// √(2/π) and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
const GELU_CUBE: f64 = 0.044_715;

/// Scale and alpha of SELU (Klambauer et al. 2017).
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

/// A function of one tensor. `a` and `b` are its parameters.
pub(crate) trait Pointwise<A: Math> {
    /// f(x)
    fn value(x: A, a: A, b: A) -> A;
    /// g·f′(x), where y = f(x).
    fn slope(x: A, y: A, g: A, a: A, b: A) -> A;
}

/// Declares functions by their value and their slope, written in the names in brackets.
macro_rules! functions {
    ([$x:ident $y:ident $g:ident $a:ident $b:ident] $($name:ident = $value:expr; slope = $slope:expr;)*) => {$(
        pub(crate) struct $name;
        // Most functions use only some of the arguments.
        #[allow(unused_variables)]
        impl<A: Math> Pointwise<A> for $name {
            #[inline(always)]
            fn value($x: A, $a: A, $b: A) -> A {
                $value
            }
            #[inline(always)]
            fn slope($x: A, $y: A, $g: A, $a: A, $b: A) -> A {
                $slope
            }
        }
    )*};
}

functions! {
    [x y g a b]
    Affine = a * x + b; slope = a * g;
    Neg = -x; slope = -g;
    Abs = x.abs(); slope = g * sign(x);
    Sign = sign(x); slope = A::ZERO;
    Floor = x.floor(); slope = A::ZERO;
    Ceil = x.ceil(); slope = A::ZERO;
    Round = x.round_ties_even(); slope = A::ZERO;
    Trunc = x.trunc(); slope = A::ZERO;
    Exp = x.exp(); slope = g * y;
    Exp2 = x.exp2(); slope = g * (y * A::of(std::f64::consts::LN_2));
    Expm1 = x.exp_m1(); slope = g * (y + A::ONE);
    Log = x.ln(); slope = g / x;
    Log2 = x.log2(); slope = g / (x * A::of(std::f64::consts::LN_2));
    Log10 = x.log10(); slope = g / (x * A::of(std::f64::consts::LN_10));
    Log1p = x.ln_1p(); slope = g / (x + A::ONE);
    Sqrt = x.sqrt(); slope = g / (A::of(2.0) * y);
    Rsqrt = A::ONE / x.sqrt(); slope = g * (-A::HALF * y * y * y);
    Square = x * x; slope = A::of(2.0) * g * x;
    Reciprocal = A::ONE / x; slope = -g * (y * y);
    // The exponent 0 is a constant function, also at 0 where 0·0⁻¹ would be NaN.
    Powf = x.powf(a); slope = if a == A::ZERO { A::ZERO } else { g * (a * x.powf(a - A::ONE)) };
    Sin = x.sin(); slope = g * x.cos();
    Cos = x.cos(); slope = -g * x.sin();
    Tan = x.tan(); slope = g * (A::ONE + y * y);
    Asin = x.asin(); slope = g / ((A::ONE - x) * (A::ONE + x)).sqrt();
    Acos = x.acos(); slope = -g / ((A::ONE - x) * (A::ONE + x)).sqrt();
    Atan = x.atan(); slope = g / (A::ONE + x * x);
    Sinh = x.sinh(); slope = g * x.cosh();
    Cosh = x.cosh(); slope = g * x.sinh();
    Tanh = x.tanh(); slope = g * (A::ONE - y * y);
    Asinh = x.asinh(); slope = {
        // The square of a large x would overflow.
        let large = x.abs() > A::of(1e8);
        if large { g / x.abs() } else { g / (x * x + A::ONE).sqrt() }
    };
    Acosh = x.acosh(); slope = g / ((x - A::ONE).sqrt() * (x + A::ONE).sqrt());
    Atanh = x.atanh(); slope = g / ((A::ONE - x) * (A::ONE + x));
    Erf = x.erf(); slope = g * A::of(std::f64::consts::FRAC_2_SQRT_PI) * (-x * x).exp();
    Erfc = x.erfc(); slope = -g * A::of(std::f64::consts::FRAC_2_SQRT_PI) * (-x * x).exp();
    Sigmoid = x.sigmoid(); slope = g * (A::ONE - y) * y;
    // min(x, 0) − ln(1 + e^−|x|)
    LogSigmoid = (if x < A::ZERO { x } else { A::ZERO }) - (-x.abs()).exp().ln_1p(); slope = g * (-x).sigmoid();
    Relu = if x < A::ZERO { A::ZERO } else { x }; slope = if y <= A::ZERO { A::ZERO } else { g };
    LeakyRelu = if x > A::ZERO { x } else { a * x }; slope = if x > A::ZERO { g } else { a * g };
    Elu = if x > A::ZERO { x } else { a * x.exp_m1() }; slope = if x <= A::ZERO { g * a * x.exp() } else { g };
    Selu = if x > A::ZERO { A::of(SELU_SCALE) * x } else { A::of(SELU_SCALE * SELU_ALPHA) * x.exp_m1() };
    slope = if x <= A::ZERO { g * A::of(SELU_SCALE * SELU_ALPHA) * x.exp() } else { g * A::of(SELU_SCALE) };
    Celu = if x > A::ZERO { x } else { a * (x / a).exp_m1() }; slope = if x <= A::ZERO { g * (x / a).exp() } else { g };
    Gelu = x.times_normal_cdf();
    slope = {
        let (cdf, pdf) = x.normal();
        g * (cdf + x * pdf)
    };
    // 1/2·(1 + tanh u) = sigmoid(2u): one exponential, and no cancellation in the lower tail.
    GeluTanh = {
        let (u, low) = gelu_argument(x);
        x.times_sigmoid(u, low)
    };
    slope = {
        let (u, _) = gelu_argument(x);
        let s = u.sigmoid();
        // From far below 100 on, s·(1 − s) is 0, and the square of a large x would overflow.
        let z = if x.abs() > A::of(100.0) { A::of(100.0) } else { x.abs() };
        let slope = A::of(2.0 * GELU_SCALE) * (A::ONE + A::of(3.0 * GELU_CUBE) * z * z);
        g * (s + x * s * (A::ONE - s) * slope)
    };
    Silu = x.times_sigmoid(x, A::ZERO);
    slope = {
        let s = x.sigmoid();
        g * s * (A::ONE + x * (A::ONE - s))
    };
    // With e = eˣ and n = e·(e + 2), tanh(ln(1 + e)) = n/(n + 2): no difference cancels. From 20 on it is 1.
    Mish = {
        let e = (if x > A::of(20.0) { A::of(20.0) } else { x }).exp();
        let n = e * (e + A::of(2.0));
        if x > A::of(20.0) { x } else { x * n / (n + A::of(2.0)) }
    };
    slope = {
        let e = (if x > A::of(20.0) { A::of(20.0) } else { x }).exp();
        let n = e * (e + A::of(2.0));
        let d = n + A::of(2.0);
        let slope = (n + A::of(4.0) * e * x * (A::ONE + e) / d) / d;
        if x > A::of(20.0) { g } else { g * slope }
    };
    Softplus = if a * x > b { x } else { (a * x).exp().ln_1p() / a };
    slope = if a * x > b { g } else { g * (a * x).sigmoid() };
    Softsign = x / (A::ONE + x.abs());
    slope = {
        let d = A::ONE + x.abs();
        g / (d * d)
    };
    Hardsigmoid = relu6(x + A::of(3.0)) / A::of(6.0);
    slope = if (x > A::of(-3.0)) & (x < A::of(3.0)) { g / A::of(6.0) } else { A::ZERO };
    Hardswish = x * (relu6(x + A::of(3.0)) / A::of(6.0));
    slope = {
        let inside = if x < A::of(3.0) { g * (x / A::of(3.0) + A::HALF) } else { g };
        if x <= A::of(-3.0) { A::ZERO } else { inside }
    };
    // A NaN fails the comparisons and stays.
    Hardshrink = if (x >= -a) & (x <= a) { A::ZERO } else { x };
    slope = if (x >= -a) & (x <= a) { A::ZERO } else { g };
    Softshrink = {
        let below = if x < -a { x + a } else { x * A::ZERO };
        if x > a { x - a } else { below }
    };
    slope = if (x >= -a) & (x <= a) { A::ZERO } else { g };
    Clamp = {
        let low = if x < a { a } else { x };
        if low > b { b } else { low }
    };
    // An infinite bound is no bound, so x may be equal to it.
    slope = {
        let (no_min, no_max) = (a == A::of(f64::NEG_INFINITY), b == A::of(f64::INFINITY));
        let above = (x > a) | (no_min & (x == a));
        let below = (x < b) | (no_max & (x == b));
        if above & below { g } else { A::ZERO }
    };
}

/// −1, 0 or 1.
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

/// min(max(x, 0), 6); NaN stays NaN.
#[inline(always)]
fn relu6<A: Math>(x: A) -> A {
    let x = if x < A::ZERO { A::ZERO } else { x };
    if x > A::of(6.0) { A::of(6.0) } else { x }
}

/// 2·√(2/π)·(x + 0.044715·x³) as a rounded number and its rounding error, because the relative error of an exponential is
/// the absolute error of its argument.
#[inline(always)]
fn gelu_argument<A: Math>(x: A) -> (A, A) {
    let (linear, cube) = (2.0 * GELU_SCALE, 2.0 * GELU_SCALE * GELU_CUBE);
    let (k1, k1_low) = (A::of(linear), A::of(linear - A::of(linear).f64()));
    let (k3, k3_low) = (A::of(cube), A::of(cube - A::of(cube).f64()));
    let square = x * x;
    let square_low = x.mul_add(x, -square);
    let high = k3 * square;
    let high_low = k3.mul_add(square, -high);
    // Knuth's two-sum: the sum of two numbers and its rounding error.
    let sum = high + k1;
    let part = sum - high;
    let sum_low = (high - (sum - part)) + (k1 - part);
    let low = k3.mul_add(square_low, k3_low.mul_add(square, sum_low + high_low + k1_low));
    let u = x * sum;
    // For large |x| the error is a difference of infinities, and does not matter.
    let rest = x.mul_add(sum, -u) + x * low;
    (u, if u.abs() < A::of(200.0) { rest } else { A::ZERO })
}
