//! Arithmetic operators of tensors, numbers and results.

use crate::{Backend, Result, Tensor};
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// The right-hand side of an operator: `&Tensor`, `Tensor`, `Result<Tensor>` or a number. On the left stand the same, and numbers
/// that are f64 or i32.
///
/// ```
/// use kiln_nn::{Result, Tensor};
/// # fn main() -> Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 4.0], &[3])?;
/// let y = (2.0 * &x + &x)?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0, 12.0]);
/// // Rust allows no operators of a result and a number, or of two results: one of them takes a `?` of its own.
/// let y = ((&x * &x)? - 1.0)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 3.0, 15.0]);
/// let y = (&x * &x + (&x / 4)?)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.25, 4.5, 17.0]);
/// # Ok(())
/// # }
/// ```
pub trait Operand<B: Backend> {
    /// The tensor or the number.
    ///
    /// # Errors
    /// The error that stands in its place.
    fn operand(self) -> Result<Value<B>>;
}

/// An operand that is there.
///
/// ```
/// # use kiln_cpu::Cpu;
/// # use kiln_nn::ops::elementwise::{Operand, Value};
/// assert!(matches!(Operand::<Cpu>::operand(2), Ok(Value::Number(2.0))));
/// ```
pub enum Value<B: Backend> {
    /// A tensor.
    Tensor(Tensor<B>),
    /// A number, which is rounded to the dtype of the other operand.
    Number(f64),
}

impl<B: Backend> Operand<B> for Tensor<B> {
    fn operand(self) -> Result<Value<B>> {
        Ok(Value::Tensor(self))
    }
}

impl<B: Backend> Operand<B> for &Tensor<B> {
    fn operand(self) -> Result<Value<B>> {
        Ok(Value::Tensor(self.clone()))
    }
}

impl<B: Backend> Operand<B> for Result<Tensor<B>> {
    fn operand(self) -> Result<Value<B>> {
        self.map(Value::Tensor)
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The floored remainder of a division by a number.
    fn rem_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.remainder(&self.scalar(c)?)
    }

    /// The floored remainder of a number divided by the elements.
    fn rrem_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.scalar(c)?.remainder(self)
    }
}

/// One operator: its trait and method, and the tensor's methods for a tensor, for a number on the right, and on the left.
macro_rules! operators {
    ($($trait:ident, $method:ident => $tensors:ident, $right:ident, $left:ident;)*) => {$(
        impl<B: Backend, R: Operand<B>> $trait<R> for &Tensor<B> {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: R) -> Result<Tensor<B>> {
                match other.operand()? {
                    Value::Tensor(other) => Tensor::$tensors(self, &other),
                    Value::Number(c) => Tensor::$right(self, c),
                }
            }
        }

        impl<B: Backend, R: Operand<B>> $trait<R> for Tensor<B> {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: R) -> Result<Tensor<B>> {
                $trait::$method(&self, other)
            }
        }

        impl<B: Backend> $trait<&Tensor<B>> for Result<Tensor<B>> {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: &Tensor<B>) -> Result<Tensor<B>> {
                Tensor::$tensors(&self?, other)
            }
        }

        impl<B: Backend> $trait<Tensor<B>> for Result<Tensor<B>> {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: Tensor<B>) -> Result<Tensor<B>> {
                Tensor::$tensors(&self?, &other)
            }
        }

        numbers!($trait, $method => $left; f64, i32);
    )*};
}

/// An operator with a number on its left: of one type of floats and one of integers, by which the compiler knows a literal's.
macro_rules! numbers {
    ($trait:ident, $method:ident => $left:ident; $($number:ty),*) => {$(
        impl<B: Backend> $trait<&Tensor<B>> for $number {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: &Tensor<B>) -> Result<Tensor<B>> {
                Tensor::$left(other, self as f64)
            }
        }

        impl<B: Backend> $trait<Tensor<B>> for $number {
            type Output = Result<Tensor<B>>;
            fn $method(self, other: Tensor<B>) -> Result<Tensor<B>> {
                Tensor::$left(&other, self as f64)
            }
        }
    )*};
}

macro_rules! operands {
    ($($number:ty),*) => {$(
        impl<B: Backend> Operand<B> for $number {
            fn operand(self) -> Result<Value<B>> {
                Ok(Value::Number(self as f64))
            }
        }
    )*};
}

operands!(f64, f32, i32, i64, usize);

operators! {
    Add, add => add, add_scalar, add_scalar;
    Sub, sub => sub, sub_scalar, rsub_scalar;
    Mul, mul => mul, mul_scalar, mul_scalar;
    Div, div => div, div_scalar, rdiv_scalar;
    Rem, rem => remainder, rem_scalar, rrem_scalar;
}

impl<B: Backend> Neg for &Tensor<B> {
    type Output = Result<Tensor<B>>;
    fn neg(self) -> Result<Tensor<B>> {
        Tensor::neg(self)
    }
}

impl<B: Backend> Neg for Tensor<B> {
    type Output = Result<Tensor<B>>;
    fn neg(self) -> Result<Tensor<B>> {
        Tensor::neg(&self)
    }
}
