//! Conversion between dtypes.

use crate::parallel;
use half::{bf16, f16};
use kiln_core::Float;

fn map<T: Copy + Sync, U: Send>(x: &[T], y: &mut [U], f: impl Fn(T) -> U + Sync) {
    debug_assert_eq!(x.len(), y.len());
    parallel::chunks_mut(y, 1, 1, |at, y| {
        for (y, &x) in y.iter_mut().zip(&x[at..]) {
            *y = f(x);
        }
    });
}

/// A source type of a conversion, through the exact value in f64.
pub(super) trait From: Copy + Send + Sync {
    fn f64(self) -> f64;
}
/// A target type of a conversion.
pub(in crate::ops) trait To: Send {
    fn of(value: f64) -> Self;
}

macro_rules! float {
    ($($t:ty),*) => {$(
        impl From for $t {
            #[inline(always)]
            fn f64(self) -> f64 { Float::f64(self) }
        }
        impl To for $t {
            #[inline(always)]
            fn of(value: f64) -> $t { Float::of(value) }
        }
    )*};
}
float!(f32, f64, bf16, f16);

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl From for $t {
            #[inline(always)]
            fn f64(self) -> f64 { f64::from(self) }
        }
        impl To for $t {
            // `as` truncates and saturates; NaN becomes 0.
            #[inline(always)]
            fn of(value: f64) -> $t { value as $t }
        }
    )*};
}
integer!(i32, u8);

/// Converts any dtype to any other through f64, which holds every value exactly, so that only the last step rounds.
pub(super) fn exact<T: From, U: To>(x: &[T], y: &mut [U]) {
    map(x, y, |x| U::of(x.f64()));
}

/// Converts between f32 and a half dtype by `convert`, in parallel chunks.
pub(super) fn chunked<T: Sync, U: Send>(x: &[T], y: &mut [U], convert: fn(&[T], &mut [U])) {
    debug_assert_eq!(x.len(), y.len());
    parallel::chunks_mut(y, 1, 1, |at, y| convert(&x[at..at + y.len()], y));
}
