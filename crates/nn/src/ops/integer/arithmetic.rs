//! Functions of two integer tensors with broadcasting, and of one.

use super::IntegerOperand;
use crate::{Backend, DType, Indices, Result};
use kiln_core::ops::{BroadcastParams, Integer};

/// `f(a, b)`. Functions of bits keep masks as masks; everything else is i32.
#[compiled_once]
fn binary<B: Backend>(op: &'static str, f: Integer, a: &Indices<B>, b: &Indices<B>) -> Result<Indices<B>> {
    let (a, b) = match f.is_bitwise() && a.dtype() == b.dtype() {
        true => (a.clone(), b.clone()),
        false => (a.integers()?, b.integers()?),
    };
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut y = a.backend().alloc(a.dtype(), shape.size())?;
    a.backend().integer_binary(&p, a.buffer(), b.buffer(), &mut y)?;
    Ok(Indices::from_buffer(a.backend(), y, shape))
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $f:ident, [$a:literal, $b:literal => $y:literal];)*) => {
        impl<B: Backend> Indices<B> {$(
            $(#[$doc])*
            /// element by element, for a tensor or a number, with broadcasting.
            ///
            /// ```
            /// # use kiln_nn::Indices;
            /// # let cpu = kiln_cpu::Cpu::new();
            #[doc = concat!("let a = Indices::from_slice(&cpu, &", $a, ", &[3])?;")]
            #[doc = concat!("let b = Indices::from_slice(&cpu, &", $b, ", &[3])?;")]
            #[doc = concat!("assert_eq!(a.", stringify!($name), "(&b)?.to_vec::<i32>()?, ", $y, ");")]
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// Shapes that do not broadcast, memory.
            pub fn $name(&self, other: impl IntegerOperand<B>) -> Result<Indices<B>> {
                binary(stringify!($name), Integer::$f, self, &other.indices(self)?)
            }
        )*}
    };
}

functions! {
    /// `self + other` (`torch.add`),
    add => Add, ["[1, 2, 3]", "[10, 20, 30]" => "[11, 22, 33]"];
    /// `self − other` (`torch.sub`),
    sub => Sub, ["[1, 2, 3]", "[10, 20, 30]" => "[-9, -18, -27]"];
    /// `self · other` (`torch.mul`),
    mul => Mul, ["[1, 2, 3]", "[10, 20, 30]" => "[10, 40, 90]"];
    /// `⌊self / other⌋`, 0 for a division by 0 (`torch.floor_divide`),
    floor_divide => FloorDivide, ["[7, -7, 7]", "[2, 2, 0]" => "[3, -4, 0]"];
    /// `self − other·⌊self / other⌋`, of the sign of `other`, 0 for a division by 0 (`torch.remainder`),
    remainder => Remainder, ["[7, -7, 7]", "[3, 3, -3]" => "[1, 2, -2]"];
    /// The larger of `self` and `other` (`torch.maximum`),
    maximum => Maximum, ["[1, 5, 3]", "[4, 2, 3]" => "[4, 5, 3]"];
    /// The smaller of `self` and `other` (`torch.minimum`),
    minimum => Minimum, ["[1, 5, 3]", "[4, 2, 3]" => "[1, 2, 3]"];
    /// The bits that both have; a mask of two masks (`torch.bitwise_and`),
    bitwise_and => BitwiseAnd, ["[6, 5, -1]", "[3, 2, 9]" => "[2, 0, 9]"];
    /// The bits that either has; a mask of two masks (`torch.bitwise_or`),
    bitwise_or => BitwiseOr, ["[6, 5, 0]", "[3, 2, 9]" => "[7, 7, 9]"];
    /// The bits that one alone has; a mask of two masks (`torch.bitwise_xor`),
    bitwise_xor => BitwiseXor, ["[6, 5, 0]", "[3, 2, 9]" => "[5, 7, 9]"];
    /// `self · 2^other`, 0 for shifts below 0 or above 31 (`torch.bitwise_left_shift`),
    left_shift => LeftShift, ["[1, 3, 1]", "[4, 1, 32]" => "[16, 6, 0]"];
    /// `⌊self / 2^other⌋`, 0 or −1 for shifts below 0 or above 31 (`torch.bitwise_right_shift`),
    right_shift => RightShift, ["[16, -3, -1]", "[3, 1, 40]" => "[2, -2, -1]"];
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// `−self` (`torch.neg`), which is i32.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, -2], &[2])?;
    /// assert_eq!((-&x)?.to_vec::<i32>()?, [-1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn neg(&self) -> Result<Indices<B>> {
        self.number(0)?.sub(self)
    }

    /// The size of each number without its sign (`torch.abs`); that of −2³¹ is −2³¹ itself.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, -2], &[2])?;
    /// assert_eq!(x.abs()?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn abs(&self) -> Result<Indices<B>> {
        self.maximum(&self.neg()?)
    }

    /// −1, 0 or 1 by the sign of each number (`torch.sign`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[7, -2, 0], &[3])?;
    /// assert_eq!(x.sign()?.to_vec::<i32>()?, [1, -1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn sign(&self) -> Result<Indices<B>> {
        self.clamp(-1, 1)
    }

    /// Numbers below `min` become `min`, those above `max` become `max` (`torch.clamp`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[-5, 2, 9], &[3])?;
    /// assert_eq!(x.clamp(0, 4)?.to_vec::<i32>()?, [0, 2, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn clamp(&self, min: i32, max: i32) -> Result<Indices<B>> {
        self.maximum(min)?.minimum(max)
    }

    /// `self` to the power of `exponent` (`torch.pow`), by repeated squaring.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[-3, 2, 0], &[3])?;
    /// assert_eq!(x.pow(5)?.to_vec::<i32>()?, [-243, 32, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn pow(&self, exponent: u32) -> Result<Indices<B>> {
        let (mut power, mut square) = (Indices::full(self.backend(), self.shape(), 1)?, self.integers()?);
        let mut left = exponent;
        while left > 0 {
            if left & 1 == 1 {
                power = power.mul(&square)?;
            }
            left >>= 1;
            if left > 0 {
                square = square.mul(&square)?;
            }
        }
        Ok(power)
    }

    /// The bits that `self` does not have (`torch.bitwise_not`); of a mask the elements that it does not mark.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[5, -1], &[2])?;
    /// assert_eq!((!&x)?.to_vec::<i32>()?, [-6, 0]);
    /// let mask = x.gt(0)?;
    /// assert_eq!((!&mask)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn bitwise_not(&self) -> Result<Indices<B>> {
        match self.dtype() {
            DType::U8 => self.logical_not(),
            _ => self.bitwise_xor(-1),
        }
    }

    /// `value` as an i32 tensor `[]`. It is filled on the device, so that a captured step uploads nothing.
    pub(super) fn number(&self, value: i32) -> Result<Indices<B>> {
        Indices::full(self.backend(), &[], value)
    }
}
