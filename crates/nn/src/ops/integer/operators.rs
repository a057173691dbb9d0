//! Operators of integer tensors, numbers and results.

use crate::{Backend, Indices, Result};
use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Neg, Not, Rem, Shl, Shr, Sub};

/// The right-hand side of an operator on integers: `&Indices`, `Indices`, `Result<Indices>` or an i32. On the left of `+`, `-`,
/// `*` and `%` a number may stand too. There is no `/`: PyTorch's gives floats ([`Indices::to_float`]), Python's `//` is
/// [`Indices::floor_divide`].
///
/// ```
/// use kiln_nn::{Indices, Result};
/// # fn main() -> Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Indices::arange(&cpu, 0, 5)?;
/// assert_eq!(((2 * &x)? - 1)?.to_vec::<i32>()?, [-1, 1, 3, 5, 7]);
/// let middle = (x.gt(0)? & x.lt(4)?)?;
/// assert_eq!(middle.to_vec::<u8>()?, [0, 1, 1, 1, 0]);
/// assert_eq!((&x % 3 + &x)?.to_vec::<i32>()?, [0, 2, 4, 3, 5]);
/// # Ok(())
/// # }
/// ```
pub trait IntegerOperand<B: Backend> {
    /// The operand as a tensor on the backend of `like`.
    ///
    /// # Errors
    /// The error that stands in its place, memory.
    fn indices(self, like: &Indices<B>) -> Result<Indices<B>>;
}

impl<B: Backend> IntegerOperand<B> for &Indices<B> {
    fn indices(self, _: &Indices<B>) -> Result<Indices<B>> {
        Ok(self.clone())
    }
}

impl<B: Backend> IntegerOperand<B> for Indices<B> {
    fn indices(self, _: &Indices<B>) -> Result<Indices<B>> {
        Ok(self)
    }
}

impl<B: Backend> IntegerOperand<B> for Result<Indices<B>> {
    fn indices(self, _: &Indices<B>) -> Result<Indices<B>> {
        self
    }
}

impl<B: Backend> IntegerOperand<B> for i32 {
    fn indices(self, like: &Indices<B>) -> Result<Indices<B>> {
        like.number(self)
    }
}

/// One operator: its trait, its method, and the tensor's method.
macro_rules! operators {
    ($($trait:ident, $method:ident => $name:ident;)*) => {$(
        impl<B: Backend, R: IntegerOperand<B>> $trait<R> for &Indices<B> {
            type Output = Result<Indices<B>>;
            fn $method(self, other: R) -> Result<Indices<B>> {
                Indices::$name(self, other)
            }
        }

        impl<B: Backend, R: IntegerOperand<B>> $trait<R> for Indices<B> {
            type Output = Result<Indices<B>>;
            fn $method(self, other: R) -> Result<Indices<B>> {
                Indices::$name(&self, other)
            }
        }

        impl<B: Backend> $trait<&Indices<B>> for Result<Indices<B>> {
            type Output = Result<Indices<B>>;
            fn $method(self, other: &Indices<B>) -> Result<Indices<B>> {
                Indices::$name(&self?, other)
            }
        }

        impl<B: Backend> $trait<Indices<B>> for Result<Indices<B>> {
            type Output = Result<Indices<B>>;
            fn $method(self, other: Indices<B>) -> Result<Indices<B>> {
                Indices::$name(&self?, other)
            }
        }
    )*};
}

operators! {
    Add, add => add;
    Sub, sub => sub;
    Mul, mul => mul;
    Rem, rem => remainder;
    BitAnd, bitand => bitwise_and;
    BitOr, bitor => bitwise_or;
    BitXor, bitxor => bitwise_xor;
    Shl, shl => left_shift;
    Shr, shr => right_shift;
}

/// An operator with a number on its left.
macro_rules! numbers {
    ($($trait:ident, $method:ident => $name:ident;)*) => {$(
        impl<B: Backend> $trait<&Indices<B>> for i32 {
            type Output = Result<Indices<B>>;
            fn $method(self, other: &Indices<B>) -> Result<Indices<B>> {
                other.number(self)?.$name(other)
            }
        }
    )*};
}

numbers! {
    Add, add => add;
    Sub, sub => sub;
    Mul, mul => mul;
    Rem, rem => remainder;
}

impl<B: Backend> Neg for &Indices<B> {
    type Output = Result<Indices<B>>;
    fn neg(self) -> Result<Indices<B>> {
        Indices::neg(self)
    }
}

impl<B: Backend> Not for &Indices<B> {
    type Output = Result<Indices<B>>;
    fn not(self) -> Result<Indices<B>> {
        self.bitwise_not()
    }
}

impl<B: Backend> Not for Indices<B> {
    type Output = Result<Indices<B>>;
    fn not(self) -> Result<Indices<B>> {
        self.bitwise_not()
    }
}
