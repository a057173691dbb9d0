//! Matrix products of a batch: one after the other, or many small ones in parallel.

#[cfg(test)]
mod tests;

use crate::gemm::blocking::Blocking;
use crate::gemm::{BLOCK_WORK, Epilogue, GemmShape, Product, SERIAL_THRESHOLD, plan};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, Stored};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{MatmulOps, MatmulParams, Strides};
use kiln_core::{Buffer, DType, Result, checks};

impl MatmulOps for Cpu {
    fn matmul(&self, p: &MatmulParams, a: &CpuBuffer, b: &CpuBuffer, c: &mut CpuBuffer) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
        crate::dispatch::float!(c.dtype(), T => run::<T>(self, p, a, b, None, c))
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::linear(self, p, x, w, bias, y)?;
        crate::dispatch::float!(y.dtype(), T => run::<T>(self, p, x, w, bias, y))
    }

    fn matmul_algorithm(&self, p: &MatmulParams, dtype: DType) -> Option<&'static str> {
        let shape = GemmShape::new(p);
        let algorithm = match dtype {
            _ if shape.m == 0 || shape.n == 0 => return None,
            DType::F64 => plan::choose::<f64>(&shape, self.preferred_algorithm()),
            _ => plan::choose::<f32>(&shape, self.preferred_algorithm()),
        };
        Some(algorithm.name())
    }
}

fn run<T: Stored>(
    cpu: &Cpu,
    p: &MatmulParams,
    a: &CpuBuffer,
    b: &CpuBuffer,
    bias: Option<&CpuBuffer>,
    c: &mut CpuBuffer,
) -> Result<()> {
    let (a, b) = (Upcast::new::<T>(cpu, a)?, Upcast::new::<T>(cpu, b)?);
    let bias = bias.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
    let bias = bias.as_ref().map(Upcast::slice);
    write_upcast::<T>(cpu, c, |c| product(cpu, p, a.slice(), b.slice(), bias, c))
}

/// The start of the operand of product number `batch`.
fn offset(p: &MatmulParams, strides: &Strides, mut batch: usize) -> usize {
    let mut at = 0;
    for i in (0..p.batch_rank as usize).rev() {
        let size = p.batch[i] as usize;
        at += (batch % size) * strides[i] as usize;
        batch /= size;
    }
    at
}

/// The number of multiply-adds of one product of a batch up to which one task computes it.
const SMALL_WORK: usize = 16 * BLOCK_WORK;

fn product<A: Scalar>(cpu: &Cpu, p: &MatmulParams, a: &[A], b: &[A], bias: Option<&[A]>, c: &mut [A]) -> Result<()> {
    let shape = GemmShape::new(p);
    if c.is_empty() {
        return Ok(());
    }
    let e = Epilogue {
        bias,
        activation: p.activation(),
    };
    let blocking = Blocking::this::<A>();
    let algorithm = plan::choose::<A>(&shape, cpu.preferred_algorithm());
    let one = |batch: usize, c: &mut [A]| {
        let product = Product::new(
            shape,
            &a[offset(p, &p.a_batch, batch)..],
            &b[offset(p, &p.b_batch, batch)..],
        );
        product.run(cpu, algorithm, blocking, c, e)
    };
    let (batches, size) = (p.batches(), shape.m * shape.n);
    let work = shape.work().max(1);
    if batches == 1 || work > SMALL_WORK {
        return c.chunks_exact_mut(size).enumerate().try_for_each(|(i, c)| one(i, c));
    }
    let together = (BLOCK_WORK / work).clamp(1, batches);
    let parallel = work.saturating_mul(batches) > SERIAL_THRESHOLD;
    try_chunks_mut(c, together * size, parallel, |at, c| {
        let first = at / size;
        c.chunks_exact_mut(size)
            .enumerate()
            .try_for_each(|(i, c)| one(first + i, c))
    })
}
