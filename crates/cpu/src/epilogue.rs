//! What a fused op does to a block of its result while it is in cache: add the bias, apply the activation.

use crate::scalar::{Scalar, vectorized};
use kiln_core::ops::Activation;

/// `f(x)` for one accumulated value.
#[inline(always)]
pub(crate) fn activate<A: Scalar>(f: Activation, x: A) -> A {
    match f {
        Activation::None => x,
        // Written so that NaN stays NaN.
        Activation::Relu if x < A::ZERO => A::ZERO,
        Activation::Relu => x,
        Activation::Gelu => x * x.normal_cdf(),
        Activation::GeluTanh => {
            let root = A::of((2.0 / std::f64::consts::PI).sqrt());
            A::HALF * x * (A::ONE + (root * (x + A::of(0.044715) * x * x * x)).tanh())
        }
        Activation::Silu => x * x.sigmoid(),
        Activation::Sigmoid => x.sigmoid(),
        Activation::Tanh => x.tanh(),
    }
}

/// `row[i] = f(row[i] + bias[i])`.
pub(crate) fn finish<A: Scalar>(row: &mut [A], bias: Option<&[A]>, f: Activation) {
    vectorized(
        #[inline(always)]
        || {
            if let Some(bias) = bias {
                for (y, b) in row.iter_mut().zip(bias) {
                    *y += *b;
                }
            }
            match f {
                Activation::None => {}
                Activation::Relu => row.iter_mut().for_each(|y| *y = activate(Activation::Relu, *y)),
                f => row.iter_mut().for_each(|y| *y = activate(f, *y)),
            }
        },
    );
}
