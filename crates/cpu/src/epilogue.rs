//! What a fused op does to a block of its result while it is in cache: add the bias, apply the activation.

use crate::pointwise::{self, Pointwise};
use crate::scalar::{Scalar, vectorized};
use kiln_core::fused_functions;
use kiln_core::ops::Activation;

macro_rules! activate {
    ($($name:ident),*) => {
        /// `f(x)` for one accumulated value.
        #[inline(always)]
        pub(crate) fn activate<A: Scalar>(f: Activation, x: A) -> A {
            match f {
                Activation::None => x,
                $(Activation::$name => pointwise::$name::value(x, A::ZERO, A::ZERO)),*
            }
        }
    };
}
fused_functions!(activate);

/// `y[i] = f(y[i] + bias[i])` for every row `y` of a block whose rows have the length of `bias`.
pub(crate) fn finish_rows<A: Scalar>(block: &mut [A], width: usize, bias: Option<&[A]>, f: Activation) {
    if width == 0 {
        return;
    }
    vectorized(
        #[inline(always)]
        || {
            if let Some(bias) = bias {
                for row in block.chunks_exact_mut(width) {
                    for (y, b) in row.iter_mut().zip(bias) {
                        *y += *b;
                    }
                }
            }
            match f {
                Activation::None => {}
                Activation::Relu => block.iter_mut().for_each(
                    #[inline(always)]
                    |y| *y = activate(Activation::Relu, *y),
                ),
                f => block.iter_mut().for_each(|y| *y = activate(f, *y)),
            }
        },
    );
}
