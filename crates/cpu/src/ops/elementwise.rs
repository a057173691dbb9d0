//! Elementwise ops. Each loop runs over contiguous slices with the function fixed outside the loop, so that the compiler
//! vectorises it; [`crate::simd::lanes`] brings the operands to the loops.

mod broadcast;
mod cast;
#[cfg(test)]
mod tests;
mod unary;

use crate::dispatch::{any, float};
use crate::simd::lanes as blocks;
use crate::{Cpu, CpuBuffer, parallel};
use half::{bf16, f16};
use kiln_core::ops::{BroadcastParams, ElementwiseOps, UnaryParams};
use kiln_core::{Buffer, DType, Float, Result, checks};

pub(super) use broadcast::zip;
pub(super) use cast::To;

/// `y += x`.
fn accumulate<T: Float>(x: &[T], y: &mut [T]) {
    blocks::lanes::<T::Acc, _>(
        #[inline(always)]
        || {
            for (y, x) in y.iter_mut().zip(x) {
                *y = blocks::round(blocks::widen(*y) + blocks::widen(*x));
            }
        },
    );
}

impl ElementwiseOps for Cpu {
    fn unary(&self, p: &UnaryParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::unary(self, p, x, y)?;
        float!(y.dtype(), T => {
            let (x, y) = (x.as_slice::<T>(), y.as_mut_slice());
            unary::forward(p, &mut |cost, kernel| blocks::each([x], y, cost, kernel));
        });
        Ok(())
    }

    fn unary_grad(
        &self,
        p: &UnaryParams,
        x: &CpuBuffer,
        y: &CpuBuffer,
        g: &CpuBuffer,
        dx: &mut CpuBuffer,
    ) -> Result<()> {
        checks::unary_grad(self, p, x, y, g, dx)?;
        float!(dx.dtype(), T => {
            let (operands, dx) = ([x.as_slice::<T>(), y.as_slice(), g.as_slice()], dx.as_mut_slice());
            unary::backward(p, &mut |cost, kernel| blocks::each(operands, dx, cost, kernel));
        });
        Ok(())
    }

    fn binary(&self, p: &BroadcastParams, a: &CpuBuffer, b: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::binary(self, p, a, b, y)?;
        float!(y.dtype(), T => {
            let (a, b, y) = (a.as_slice::<T>(), b.as_slice(), y.as_mut_slice());
            broadcast::binary(p, &mut |cost, kernel| broadcast::pairs(p, a, b, y, cost, kernel));
        });
        Ok(())
    }

    fn compare(&self, p: &BroadcastParams, a: &CpuBuffer, b: &CpuBuffer, mask: &mut CpuBuffer) -> Result<()> {
        checks::compare(self, p, a, b, mask)?;
        any!(a.dtype(), T => broadcast::compare::<T>(p, a.as_slice(), b.as_slice(), mask.as_mut_slice()));
        Ok(())
    }

    fn select(
        &self,
        p: &BroadcastParams,
        mask: &CpuBuffer,
        a: &CpuBuffer,
        b: &CpuBuffer,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::select(self, p, mask, a, b, y)?;
        any!(y.dtype(), T => {
            broadcast::select::<T>(p, mask.as_slice(), a.as_slice(), b.as_slice(), y.as_mut_slice())
        });
        Ok(())
    }

    fn cast(&self, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::cast(self, x, y)?;
        match (x.dtype(), y.dtype()) {
            (from, to) if from == to => parallel::copy_bytes(x.bytes(), y.bytes_mut()),
            (DType::BF16, DType::F32) => cast::chunked(x.as_slice(), y.as_mut_slice(), blocks::to_acc::<bf16>),
            (DType::F16, DType::F32) => cast::chunked(x.as_slice(), y.as_mut_slice(), blocks::to_acc::<f16>),
            (DType::F32, DType::BF16) => cast::chunked(x.as_slice(), y.as_mut_slice(), blocks::from_acc::<bf16>),
            (DType::F32, DType::F16) => cast::chunked(x.as_slice(), y.as_mut_slice(), blocks::from_acc::<f16>),
            (from, to) => any!(from, T => any!(to, U => cast::exact::<T, U>(x.as_slice(), y.as_mut_slice()))),
        }
        Ok(())
    }

    fn cast_each(&self, xs: &[&CpuBuffer], ys: &mut [&mut CpuBuffer]) -> Result<()> {
        checks::cast_each(self, xs, ys)?;
        xs.iter().zip(ys).try_for_each(|(x, y)| self.cast(x, y))
    }

    fn fill(&self, value: f64, y: &mut CpuBuffer) -> Result<()> {
        checks::fill(self, y)?;
        any!(y.dtype(), T => {
            let value = <T as cast::To>::of(value);
            parallel::chunks_mut(y.as_mut_slice::<T>(), 1, 1, |_, y| y.fill(value));
        });
        Ok(())
    }

    fn accumulate(&self, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::accumulate(self, x, y)?;
        float!(y.dtype(), T => {
            let x = x.as_slice::<T>();
            parallel::chunks_mut(y.as_mut_slice::<T>(), 1, 1, |at, y| accumulate(&x[at..], y));
        });
        Ok(())
    }
}
