//! Operands in their accumulation type, for the dense kernels: f16 and bf16 are widened to f32 scratch, and results are
//! rounded once at the end.

use crate::parallel::chunks_mut;
use crate::scalar::Stored;
use crate::simd::lanes::{from_acc, to_acc};
use crate::{Cpu, CpuBuffer};
use kiln_core::{Element, Result};

/// An operand in its accumulation type: the operand itself, or a widened copy.
pub(crate) enum Upcast<'a, A> {
    Same(&'a [A]),
    Copy(CpuBuffer),
}

impl<'a, A: Element> Upcast<'a, A> {
    /// Widens `x`, unless it already has the accumulation type.
    pub(crate) fn new<T: Stored<Acc = A>>(cpu: &Cpu, x: &'a CpuBuffer) -> Result<Self> {
        Upcast::of(cpu, x.as_slice::<T>())
    }

    /// As [`new`](Upcast::new), of a part of an operand.
    pub(crate) fn of<T: Stored<Acc = A>>(cpu: &Cpu, x: &'a [T]) -> Result<Self> {
        if T::DTYPE == A::DTYPE {
            return Ok(Upcast::Same(bytemuck::cast_slice(x)));
        }
        let mut copy = cpu.scratch(A::DTYPE, x.len())?;
        chunks_mut(copy.as_mut_slice::<A>(), 1, 1, |at, chunk| {
            to_acc(&x[at..at + chunk.len()], chunk);
        });
        Ok(Upcast::Copy(copy))
    }

    /// The sum with another operand of as many elements, if there is one.
    pub(crate) fn plus<T: Stored<Acc = A>>(self, cpu: &Cpu, other: Option<&CpuBuffer>) -> Result<Self>
    where
        A: std::ops::Add<Output = A>,
    {
        let Some(other) = other else { return Ok(self) };
        let (x, other) = (self.slice(), other.as_slice::<T>());
        let mut sum = cpu.scratch(A::DTYPE, x.len())?;
        chunks_mut(sum.as_mut_slice::<A>(), 1, 1, |at, chunk| {
            to_acc(&other[at..at + chunk.len()], chunk);
            for (sum, x) in chunk.iter_mut().zip(&x[at..]) {
                *sum = *x + *sum;
            }
        });
        Ok(Upcast::Copy(sum))
    }

    pub(crate) fn slice(&self) -> &[A] {
        match self {
            Upcast::Same(x) => x,
            Upcast::Copy(x) => x.as_slice(),
        }
    }
}

/// Lets `f` write `y` in the accumulation type; then rounds once if `y` is narrower.
pub(crate) fn write_upcast<T: Stored>(
    cpu: &Cpu,
    y: &mut CpuBuffer,
    f: impl FnOnce(&mut [T::Acc]) -> Result<()>,
) -> Result<()> {
    write_upcast_to::<T>(cpu, y.as_mut_slice(), f)
}

/// As [`write_upcast`], for a part of a result.
pub(crate) fn write_upcast_to<T: Stored>(
    cpu: &Cpu,
    y: &mut [T],
    f: impl FnOnce(&mut [T::Acc]) -> Result<()>,
) -> Result<()> {
    if T::DTYPE == <T::Acc as Element>::DTYPE {
        return f(bytemuck::cast_slice_mut(y));
    }
    let mut wide = cpu.scratch(<T::Acc as Element>::DTYPE, y.len())?;
    f(wide.as_mut_slice())?;
    let wide = wide.as_slice::<T::Acc>();
    chunks_mut(y, 1, 1, |at, chunk| from_acc(&wide[at..at + chunk.len()], chunk));
    Ok(())
}

/// As [`write_upcast_to`], of a `y` whose values `f` reads.
pub(crate) fn update_upcast_to<T: Stored>(
    cpu: &Cpu,
    y: &mut [T],
    f: impl FnOnce(&mut [T::Acc]) -> Result<()>,
) -> Result<()> {
    if T::DTYPE == <T::Acc as Element>::DTYPE {
        return f(bytemuck::cast_slice_mut(y));
    }
    let mut wide = cpu.scratch(<T::Acc as Element>::DTYPE, y.len())?;
    to_acc(y, wide.as_mut_slice::<T::Acc>());
    f(wide.as_mut_slice())?;
    from_acc(wide.as_slice::<T::Acc>(), y);
    Ok(())
}
