//! Values for tests that run the same calls on two backends.

use kiln_core::philox::Key;
use kiln_core::{Backend, Float};

/// Sizes on both sides of a warp and of a block, and primes: every family runs at each of them.
pub(crate) const EDGES: [usize; 7] = [1, 31, 33, 127, 1009, 1023, 1025];

/// `n` numbers in ±1 that `salt` chooses, as the dtype rounds them.
pub(crate) fn values<T: Float>(n: usize, salt: u64) -> Vec<T> {
    let key = Key::new(salt, 0, 0);
    let of = |i: usize| T::of(f64::from(key.word(i as u64)) / f64::from(u32::MAX) * 2.0 - 1.0);
    (0..n).map(of).collect()
}

/// [`values`] on a device.
pub(crate) fn buffer<B: Backend, T: Float>(backend: &B, n: usize, salt: u64) -> B::Buffer {
    upload(backend, &values::<T>(n, salt))
}

/// A buffer holding `values`.
pub(crate) fn upload<B: Backend, T: Float>(backend: &B, values: &[T]) -> B::Buffer {
    backend.upload(values).unwrap_or_else(|e| panic!("{e}"))
}

/// A buffer to be written.
pub(crate) fn empty<B: Backend, T: Float>(backend: &B, n: usize) -> B::Buffer {
    backend.alloc(T::DTYPE, n).unwrap_or_else(|e| panic!("{e}"))
}

/// The elements of a buffer of dtype `T`.
pub(crate) fn read<B: Backend, T: Float>(backend: &B, buffer: &B::Buffer) -> Vec<T> {
    backend.download(buffer).unwrap_or_else(|e| panic!("{e}"))
}

/// The bits of the elements.
pub(crate) fn bits<T: Float>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// `values` in f64.
pub(crate) fn wide<T: Float>(values: Vec<T>) -> Vec<f64> {
    values.into_iter().map(Float::f64).collect()
}
