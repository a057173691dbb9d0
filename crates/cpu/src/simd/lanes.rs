//! Elementwise kernels, written once for f32 and f64 and compiled for the vector units in f32. Half dtypes are widened and
//! rounded in blocks that stay in the L1 cache.

use crate::parallel::chunks_mut;
use crate::simd::isa::vectorized;
use bytemuck::{cast_slice, cast_slice_mut};
use half::f16;
use half::slice::HalfFloatSliceExt;
use kiln_core::{DType, Element, Float};

/// The number of elements in a block of a half dtype.
const BLOCK: usize = 512;

/// A kernel `y = f(x₀, x₁, …)` over slices of equal length.
pub(crate) type Kernel<'f, A, const N: usize> = &'f (dyn Fn([&[A]; N], &mut [A]) + Sync);

/// A function that runs a kernel over the operands of an op: `run(work of an element, kernel)`.
pub(crate) type Run<'f, A, const N: usize> = &'f mut dyn FnMut(usize, Kernel<'_, A, N>);

/// Runs `f`, compiled for the vector units if `A` is f32. f64 is for gradient checks and has only one instance.
#[inline(always)]
pub(crate) fn lanes<A: Element, R>(f: impl FnOnce() -> R) -> R {
    if const { size_of::<A>() == 4 } {
        vectorized(f)
    } else {
        f()
    }
}

/// True if `T` is its own accumulation type.
pub(crate) const fn exact<T: Float>() -> bool {
    size_of::<T>() == size_of::<T::Acc>()
}

/// The kernel `y = f(x)`; `f` must be `#[inline(always)]`.
// The loops are written out because iterator adapters are not always inlined, and then are not vectorised.
pub(crate) fn map<A: Element>(f: impl Fn(A) -> A + Sync) -> impl Fn([&[A]; 1], &mut [A]) + Sync {
    move |[x], y| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = f(x);
                }
            },
        );
    }
}

/// The kernel `y = f(a, b)`; `f` must be `#[inline(always)]`.
pub(crate) fn map2<A: Element>(f: impl Fn(A, A) -> A + Sync) -> impl Fn([&[A]; 2], &mut [A]) + Sync {
    move |[a, b], y| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (y, (&a, &b)) in y.iter_mut().zip(a.iter().zip(b)) {
                    *y = f(a, b);
                }
            },
        );
    }
}

/// Runs `kernel` over all elements, in parallel if there are many.
pub(crate) fn each<T: Float, const N: usize>(x: [&[T]; N], y: &mut [T], cost: usize, kernel: Kernel<'_, T::Acc, N>) {
    chunks_mut(y, 1, cost, |at, y| {
        block_by_block(x.map(|x| &x[at..at + y.len()]), y, kernel)
    });
}

/// Runs `kernel` over slices of equal length, in blocks for half dtypes.
pub(crate) fn block_by_block<T: Float, const N: usize>(x: [&[T]; N], y: &mut [T], kernel: Kernel<'_, T::Acc, N>) {
    if exact::<T>() {
        return kernel(x.map(cast_slice), cast_slice_mut(y));
    }
    let mut wide = [[T::Acc::default(); BLOCK]; N];
    let mut out = [T::Acc::default(); BLOCK];
    for (i, y) in y.chunks_mut(BLOCK).enumerate() {
        for (wide, x) in wide.iter_mut().zip(&x) {
            to_acc(&x[i * BLOCK..][..y.len()], &mut wide[..y.len()]);
        }
        kernel(std::array::from_fn(|k| &wide[k][..y.len()]), &mut out[..y.len()]);
        from_acc(&out[..y.len()], y);
    }
}

/// Widens a slice to the accumulation type.
pub(crate) fn to_acc<T: Float>(x: &[T], y: &mut [T::Acc]) {
    debug_assert_eq!(x.len(), y.len());
    match T::DTYPE {
        DType::F16 => cast_slice::<T, f16>(x).convert_to_f32_slice(cast_slice_mut(y)),
        DType::BF16 => {
            let (x, y): (&[u16], &mut [f32]) = (cast_slice(x), cast_slice_mut(y));
            lanes::<f32, _>(
                #[inline(always)]
                || {
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = widen_bf16(x);
                    }
                },
            );
        }
        _ => lanes::<T::Acc, _>(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = x.to_acc();
                }
            },
        ),
    }
}

/// Rounds a slice of the accumulation type to `T`.
pub(crate) fn from_acc<T: Float>(x: &[T::Acc], y: &mut [T]) {
    debug_assert_eq!(x.len(), y.len());
    match T::DTYPE {
        DType::F16 => cast_slice_mut::<T, f16>(y).convert_from_f32_slice(cast_slice(x)),
        DType::BF16 => {
            let (x, y): (&[f32], &mut [u16]) = (cast_slice(x), cast_slice_mut(y));
            lanes::<f32, _>(
                #[inline(always)]
                || {
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = round_bf16(x);
                    }
                },
            );
        }
        _ => y.copy_from_slice(cast_slice(x)),
    }
}

/// Widens one element: [`Float::to_acc`], which for bf16 would not become a vector instruction.
#[inline(always)]
pub(crate) fn widen<T: Float>(x: T) -> T::Acc {
    match T::DTYPE {
        DType::BF16 => bytemuck::cast(widen_bf16(bytemuck::cast(x))),
        _ => x.to_acc(),
    }
}

/// Rounds one element: [`Float::from_acc`], which for bf16 would not become vector instructions.
#[inline(always)]
pub(crate) fn round<T: Float>(x: T::Acc) -> T {
    match T::DTYPE {
        DType::BF16 => bytemuck::cast(round_bf16(bytemuck::cast(x))),
        _ => T::from_acc(x),
    }
}

/// The value of the bits of a bfloat16, which are the upper half of an f32: [`half::bf16::to_f32`] without branches. A
/// signalling NaN stays one until it is computed with.
#[inline(always)]
pub(crate) fn widen_bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// The bits of the nearest bfloat16, ties to even: [`half::bf16::from_f32`] without branches.
#[inline(always)]
pub(crate) fn round_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if x.is_nan() { bits >> 16 | 0x40 } else { nearest }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn bf16_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (got, want) = (widen_bf16(bits), bf16::from_bits(bits).to_f32());
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{bits:x}"
            );
        }
    }

    #[test]
    fn bf16_rounds_as_its_definition() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(high) << 16 | low);
                assert_eq!(round_bf16(x), bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }
}
