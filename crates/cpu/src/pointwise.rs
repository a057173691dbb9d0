//! The activations, one definition each: elementwise ops and the epilogues of products and convolutions compute these.

use crate::math::Math;

/// √(2/π) and the cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
pub(crate) const GELU_SCALE: f64 = 0.797_884_560_802_865_4;
pub(crate) const GELU_CUBE: f64 = 0.044_715;

/// max(x, 0); NaN stays NaN.
#[inline(always)]
pub(crate) fn relu<A: Math>(x: A) -> A {
    if x < A::ZERO { A::ZERO } else { x }
}

/// x·Φ(x)
#[inline(always)]
pub(crate) fn gelu<A: Math>(x: A) -> A {
    x * x.normal_cdf()
}

/// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
#[inline(always)]
pub(crate) fn gelu_tanh<A: Math>(x: A) -> A {
    x * gelu_gate(x)
}

/// 1/2·(1 + tanh u) = sigmoid(2u): one exponential, and no cancellation in the lower tail.
#[inline(always)]
pub(crate) fn gelu_gate<A: Math>(x: A) -> A {
    (A::of(2.0 * GELU_SCALE) * (x + A::of(GELU_CUBE) * x * x * x)).sigmoid()
}

/// x·sigmoid(x)
#[inline(always)]
pub(crate) fn silu<A: Math>(x: A) -> A {
    x * x.sigmoid()
}
