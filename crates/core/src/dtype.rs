//! Element types. A dtype is a run-time tag; the traits here tie each tag to its Rust type.

use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt;

/// The element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum DType {
    /// IEEE binary32, the default.
    F32 = 0,
    /// IEEE binary64; the CPU only, for gradient checks.
    F64 = 1,
    /// bfloat16: the upper half of a binary32.
    BF16 = 2,
    /// IEEE binary16.
    F16 = 3,
    /// 32-bit signed integers: labels, token ids, indices.
    I32 = 4,
    /// Bytes: masks (0 or 1) and raw pixels.
    U8 = 5,
}

impl DType {
    /// Every dtype.
    pub const ALL: [DType; 6] = [DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::U8];

    /// The size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::U8 => 1,
        }
    }

    /// True for floating-point dtypes.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::BF16 | DType::F16)
    }

    /// The name used in messages and files: `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::I32 => "i32",
            DType::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that a buffer can hold.
pub trait Element: Pod + Send + Sync + fmt::Debug + PartialEq {
    /// The tag of this type.
    const DTYPE: DType;
}

/// A floating-point element and the type that its arithmetic accumulates in.
///
/// f32, bf16 and f16 accumulate in f32; f64 accumulates in f64. Kernels load with [`Float::to_acc`], compute in `Acc`
/// and round once with [`Float::from_acc`].
pub trait Float: Element {
    /// The type that sums are kept in.
    type Acc: Float<Acc = Self::Acc>
        + std::ops::Add<Output = Self::Acc>
        + std::ops::Sub<Output = Self::Acc>
        + std::ops::Mul<Output = Self::Acc>
        + std::ops::Div<Output = Self::Acc>
        + std::ops::Neg<Output = Self::Acc>
        + std::ops::AddAssign
        + std::ops::MulAssign
        + std::iter::Sum
        + PartialOrd
        + Default;
    /// Converts to the accumulation type, exactly.
    fn to_acc(self) -> Self::Acc;
    /// Rounds a result in the accumulation type to this type.
    fn from_acc(acc: Self::Acc) -> Self;
    /// Rounds an f64 to this type, once.
    fn of(value: f64) -> Self;
    /// Converts to f64, exactly.
    fn f64(self) -> f64;
}

macro_rules! element {
    ($($t:ty => $tag:ident),*) => {$(
        impl Element for $t { const DTYPE: DType = DType::$tag; }
    )*};
}
element!(f32 => F32, f64 => F64, bf16 => BF16, f16 => F16, i32 => I32, u8 => U8);

macro_rules! wide_float {
    ($($t:ty),*) => {$(
        impl Float for $t {
            type Acc = $t;
            #[inline(always)]
            fn to_acc(self) -> $t { self }
            #[inline(always)]
            fn from_acc(acc: $t) -> Self { acc }
            #[inline(always)]
            fn of(value: f64) -> Self { value as $t }
            #[inline(always)]
            fn f64(self) -> f64 { self as f64 }
        }
    )*};
}
wide_float!(f32, f64);

/// Rounds to odd: an inexact result is the neighbouring f32 with the last bit set. Rounding it to a half gives the same
/// result as rounding `value` once (Boldo & Melquiond, "Emulation of FMA and correctly rounded sums", 2008). The
/// conversions of `half` drop the lower 32 bits of an f64 and so round some values the wrong way.
#[inline]
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    let bits = near.to_bits();
    if f64::from(near) == value || value.is_nan() || bits & 1 == 1 {
        return near;
    }
    let away = f64::from(near).abs() > value.abs();
    f32::from_bits(if away { bits - 1 } else { bits + 1 })
}

macro_rules! half_float {
    ($($t:ty),*) => {$(
        impl Float for $t {
            type Acc = f32;
            #[inline(always)]
            fn to_acc(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn from_acc(acc: f32) -> Self { <$t>::from_f32(acc) }
            #[inline(always)]
            fn of(value: f64) -> Self { <$t>::from_f32(round_to_odd(value)) }
            #[inline(always)]
            fn f64(self) -> f64 { self.to_f64() }
        }
    )*};
}
half_float!(bf16, f16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_once() {
        let tie = 1.0 + 2f64.powi(-8);
        assert_eq!(<bf16 as Float>::of(tie), bf16::ONE);
        assert_eq!(<bf16 as Float>::of(tie + f64::EPSILON).to_f64(), 1.0 + 2f64.powi(-7));
        assert_eq!(<bf16 as Float>::of(-tie - f64::EPSILON).to_f64(), -1.0 - 2f64.powi(-7));
        assert_eq!(
            <bf16 as Float>::of(3.0 * 2f64.powi(-8) + 1.0 - f64::EPSILON).to_f64(),
            1.0 + 2f64.powi(-7)
        );
        assert_eq!(<f16 as Float>::of(1e300), f16::INFINITY);
        assert_eq!(<f16 as Float>::of(1e-300), f16::ZERO);
        assert!(<f16 as Float>::of(f64::NAN).is_nan());
        assert_eq!(<bf16 as Float>::of(f64::NEG_INFINITY), bf16::NEG_INFINITY);
    }
}
