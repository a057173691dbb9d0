//! Converts elements of a file, little-endian, to elements of a buffer.

use crate::DType;
use half::{bf16, f16};
use kiln_core::Float;
use safetensors::Dtype;

/// A float type with its byte representation.
trait Stored: Float {
    const SIZE: usize;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, out: &mut Vec<u8>);
    /// The index of the first that is not finite.
    fn first_not_finite(bytes: &[u8]) -> Option<usize>;
}

macro_rules! stored {
    ($($t:ty: $bits:ty),*) => {$(
        impl Stored for $t {
            const SIZE: usize = size_of::<$t>();
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$t>()];
                own.copy_from_slice(bytes);
                <$t>::from_le_bytes(own)
            }
            #[inline]
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }
            fn first_not_finite(bytes: &[u8]) -> Option<usize> {
                const EXPONENT: $bits = <$t>::INFINITY.to_bits();
                let all = bytes.as_chunks::<{ size_of::<$t>() }>().0;
                all.iter().position(|one| <$bits>::from_le_bytes(*one) & EXPONENT == EXPONENT)
            }
        }
    )*};
}
stored!(f32: u32, f64: u64, bf16: u16, f16: u16);

/// The first value that is not finite after conversion: its index among those converted, and its value in the file.
pub(super) type NotFinite = Option<(usize, f64)>;

/// Converts the floats in `bytes` from dtype `from` to `to`, rounding once, and appends their native bytes to `out`.
pub(super) fn floats(from: Dtype, to: DType, bytes: &[u8], out: &mut Vec<u8>) -> NotFinite {
    match from {
        Dtype::F64 => rounded::<f64>(to, bytes, out),
        Dtype::BF16 => rounded::<bf16>(to, bytes, out),
        Dtype::F16 => rounded::<f16>(to, bytes, out),
        _ => rounded::<f32>(to, bytes, out),
    }
}

fn rounded<S: Stored>(to: DType, bytes: &[u8], out: &mut Vec<u8>) -> NotFinite {
    match to {
        DType::F64 => each::<S, f64>(bytes, out),
        DType::BF16 => each::<S, bf16>(bytes, out),
        DType::F16 => each::<S, f16>(bytes, out),
        _ => each::<S, f32>(bytes, out),
    }
}

fn each<S: Stored, T: Stored>(bytes: &[u8], out: &mut Vec<u8>) -> NotFinite {
    if S::DTYPE == T::DTYPE && cfg!(target_endian = "little") {
        let whole = &bytes[..bytes.len() / S::SIZE * S::SIZE];
        out.extend_from_slice(whole);
        let first = S::first_not_finite(whole)?;
        return Some((first, S::read(&whole[first * S::SIZE..][..S::SIZE]).f64()));
    }
    let mut first = None;
    for (i, element) in bytes.chunks_exact(S::SIZE).enumerate() {
        let stored = S::read(element).f64();
        let value = T::of(stored);
        if first.is_none() && !value.f64().is_finite() {
            first = Some((i, stored));
        }
        value.write(out);
    }
    first
}

/// Appends the integers in `bytes` to `out`, or returns the first that does not fit 32 bits.
pub(super) fn integers(from: Dtype, bytes: &[u8], out: &mut Vec<i32>) -> Result<(), i64> {
    match from {
        Dtype::I64 => {
            for element in bytes.as_chunks::<8>().0 {
                let value = i64::from_le_bytes(*element);
                out.push(i32::try_from(value).map_err(|_| value)?);
            }
        }
        _ => out.extend(bytes.as_chunks::<4>().0.iter().map(|e| i32::from_le_bytes(*e))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overflows_is_found() {
        let bytes: Vec<u8> = [1.0f64, -7e4, 1e300, f64::NAN]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let first = |to| floats(Dtype::F64, to, &bytes, &mut Vec::new());
        assert_eq!(first(DType::F16), Some((1, -7e4)));
        assert_eq!(first(DType::F32), Some((2, 1e300)));
        assert!(first(DType::F64).is_some_and(|(i, v)| i == 3 && v.is_nan()));
        assert_eq!(floats(Dtype::F64, DType::F16, &bytes[..8], &mut Vec::new()), None);
    }

    #[test]
    fn values_of_the_same_type_are_copied() {
        let halves = [f16::from_f64(-1.5), f16::MAX, f16::NEG_INFINITY, f16::NAN];
        let bytes: Vec<u8> = halves.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = Vec::new();
        assert_eq!(
            floats(Dtype::F16, DType::F16, &bytes, &mut out),
            Some((2, f64::NEG_INFINITY))
        );
        let kept: Vec<u8> = halves.iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(out, kept);
        assert_eq!(floats(Dtype::F16, DType::F16, &bytes[..4], &mut Vec::new()), None);
    }
}
