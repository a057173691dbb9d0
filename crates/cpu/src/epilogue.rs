//! The epilogue of a fused op, applied to a block of its result while it is in cache: bias and activation.

use crate::pointwise::{self, Pointwise};
use crate::simd::isa::vectorized;
use crate::simd::real::Real;
use kiln_core::fused_functions;
use kiln_core::ops::Activation;

/// The epilogue of C, once its sums are complete: adds the bias of each column, then applies the activation.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a, A> {
    /// One value per column of the whole C.
    pub(crate) bias: Option<&'a [A]>,
    pub(crate) activation: Activation,
}

impl<A> Epilogue<'_, A> {
    /// No epilogue.
    pub(crate) const NONE: Self = Epilogue {
        bias: None,
        activation: Activation::None,
    };

    /// True if the epilogue leaves C unchanged.
    pub(crate) fn is_none(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None
    }
}

macro_rules! activate {
    ($($name:ident),*) => {
        /// `f(x)` for one accumulated value.
        #[inline(always)]
        pub(crate) fn activate<A: Real>(f: Activation, x: A) -> A {
            match f {
                Activation::None => x,
                $(Activation::$name => pointwise::$name::value(x, A::ZERO, A::ZERO)),*
            }
        }
    };
}
fused_functions!(activate);

macro_rules! activate_all {
    ($($name:ident),*) => {
        /// `y = f(y)` for every element: a loop for each function, which the caller compiles for its vector units.
        #[inline(always)]
        fn activate_all<A: Real>(f: Activation, block: &mut [A]) {
            match f {
                Activation::None => {}
                $(Activation::$name => {
                    for y in block {
                        *y = pointwise::$name::value(*y, A::ZERO, A::ZERO);
                    }
                })*
            }
        }
    };
}
fused_functions!(activate_all);

/// `y[i] = f(y[i] + bias[i])` for every row `y` of a block whose rows have the length of `bias`.
pub(crate) fn finish_rows<A: Real>(block: &mut [A], width: usize, bias: Option<&[A]>, f: Activation) {
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
            activate_all(f, block);
        },
    );
}
