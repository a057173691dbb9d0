//! Elementwise ops. Each loop runs over contiguous slices with the op fixed outside, so the compiler vectorises it.

mod broadcast;
mod cast;
#[cfg(test)]
mod tests;
mod unary;

use crate::dispatch::{any, float};
use crate::{Cpu, CpuBuffer, parallel};
use half::{bf16, f16};
use kiln_core::ops::{BroadcastParams, ElementwiseOps, UnaryParams};
use kiln_core::{Buffer, DType, Float, Result};

pub(super) use cast::To;

impl ElementwiseOps for Cpu {
    fn unary(&self, p: &UnaryParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        float!(y.dtype(), T => unary::forward::<T, _>(p, x.as_slice(), y.as_mut_slice()));
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
        float!(dx.dtype(), T => {
            unary::backward::<T, _>(p, x.as_slice(), y.as_slice(), g.as_slice(), dx.as_mut_slice())
        });
        Ok(())
    }

    fn binary(&self, p: &BroadcastParams, a: &CpuBuffer, b: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        float!(y.dtype(), T => broadcast::binary::<T, _>(p, a.as_slice(), b.as_slice(), y.as_mut_slice()));
        Ok(())
    }

    fn compare(&self, p: &BroadcastParams, a: &CpuBuffer, b: &CpuBuffer, mask: &mut CpuBuffer) -> Result<()> {
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
        any!(y.dtype(), T => {
            broadcast::select::<T>(p, mask.as_slice(), a.as_slice(), b.as_slice(), y.as_mut_slice())
        });
        Ok(())
    }

    fn cast(&self, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        match (x.dtype(), y.dtype()) {
            (from, to) if from == to => parallel::copy_bytes(x.bytes(), y.bytes_mut()),
            (DType::BF16, DType::F32) => cast::widen::<bf16>(x.as_slice(), y.as_mut_slice()),
            (DType::F16, DType::F32) => cast::widen::<f16>(x.as_slice(), y.as_mut_slice()),
            (DType::F32, DType::BF16) => cast::narrow::<bf16>(x.as_slice(), y.as_mut_slice()),
            (DType::F32, DType::F16) => cast::narrow::<f16>(x.as_slice(), y.as_mut_slice()),
            (from, to) => any!(from, T => any!(to, U => cast::exact::<T, U>(x.as_slice(), y.as_mut_slice()))),
        }
        Ok(())
    }

    fn fill(&self, value: f64, y: &mut CpuBuffer) -> Result<()> {
        any!(y.dtype(), T => {
            let value = <T as cast::To>::of(value);
            parallel::chunks_mut(y.as_mut_slice::<T>(), 1, 1, |_, y| y.fill(value));
        });
        Ok(())
    }

    fn accumulate(&self, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        float!(y.dtype(), T => {
            let x = x.as_slice::<T>();
            parallel::chunks_mut(y.as_mut_slice::<T>(), 1, 1, |at, y| {
                for (y, x) in y.iter_mut().zip(&x[at..]) {
                    *y = T::narrow(y.wide() + x.wide());
                }
            });
        });
        Ok(())
    }
}
