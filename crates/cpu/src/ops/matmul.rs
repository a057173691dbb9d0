//! Matrix products of a batch: one after the other, or many small ones in parallel.

#[cfg(test)]
mod tests;

use crate::gemm::blocking::Blocking;
use crate::gemm::halves::Half;
use crate::gemm::plan::{self, Algorithm};
use crate::gemm::{self, BLOCK_WORK, Epilogue, GemmShape, Product, SERIAL_THRESHOLD};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, Stored};
use crate::simd::upcast::Upcast;
use crate::{Cpu, CpuBuffer};
use half::{bf16, f16};
use kiln_core::ops::{
    ElementwiseOps, LinearGrads, LinearInputs, MatmulOps, MatmulParams, ReduceOps, ResidualOps, Strides, Unary,
    UnaryParams,
};
use kiln_core::{Buffer, DType, Result, checks};

impl MatmulOps for Cpu {
    fn matmul(&self, p: &MatmulParams, a: &CpuBuffer, b: &CpuBuffer, c: &mut CpuBuffer) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
        let o = Operands { p, a, b, bias: None };
        run(self, &o, c)
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        h: Option<&mut CpuBuffer>,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::linear(self, p, x, w, bias, h.as_deref(), y)?;
        // Only halves are rounded before the activation.
        let wide = matches!(y.dtype(), DType::F32 | DType::F64);
        let f = p.activation().function().filter(|_| p.activation().reads_input());
        let Some(f) = f.filter(|_| h.is_some() || !wide) else {
            let o = Operands { p, a: x, b: w, bias };
            return run(self, &o, y);
        };
        let mut scratch;
        let h = match h {
            Some(h) => h,
            None => {
                scratch = self.scratch(y.dtype(), y.len())?;
                &mut scratch
            }
        };
        let p = &MatmulParams { activation: 0, ..*p };
        let o = Operands { p, a: x, b: w, bias };
        run(self, &o, h)?;
        self.unary(&UnaryParams::new(f, y.len(), 0.0, 0.0), h, y)
    }

    fn linear_grad(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, CpuBuffer>,
        g: &CpuBuffer,
        to: LinearGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::linear_grad(self, p, of, g, &to)?;
        let masked = match of.y {
            Some(y) => {
                let mut masked = self.scratch(g.dtype(), g.len())?;
                let relu = UnaryParams::new(Unary::Relu, g.len(), 0.0, 0.0);
                self.unary_grad(&relu, y, y, g, &mut masked)?;
                Some(masked)
            }
            None => None,
        };
        let g = masked.as_ref().unwrap_or(g);
        let mut again = to.x;
        if let Some(dx) = to.dx {
            let slope = of
                .slope
                .as_ref()
                .and_then(|slope| Some((slope.f.function()?, slope.at)));
            match slope {
                None => self.matmul(&p.data_grad(), g, of.w, dx)?,
                Some((f, at)) => {
                    let mut product = self.scratch(dx.dtype(), dx.len())?;
                    self.matmul(&p.data_grad(), g, of.w, &mut product)?;
                    let p = UnaryParams::new(f, dx.len(), 0.0, 0.0);
                    self.unary_grad(&p, at, at, &product, dx)?;
                    drop(product);
                    if let Some(x) = again.as_deref_mut() {
                        self.unary(&p, at, x)?;
                    }
                }
            }
        }
        if let (Some(norm), Some(x)) = (&of.norm, again.as_deref_mut()) {
            let statistic = || self.scratch(norm.mean.dtype(), norm.mean.len());
            let (mut mean, mut rstd) = (statistic()?, statistic()?);
            let (p, scale, shift) = (&norm.p, norm.scale, norm.shift);
            self.residual_norm(p, norm.s, None, None, scale, shift, x, &mut mean, &mut rstd)?;
        }
        let p = p.weight_grad();
        if let (Some(dw), Some(x)) = (to.dw, of.x.or(again.as_deref())) {
            self.matmul(&p, g, x, dw)?;
        }
        match to.db {
            Some(db) => self.reduce(&p.bias_grad()?, g, db),
            None => Ok(()),
        }
    }

    fn remakes_input(&self, _: &MatmulParams, _: DType) -> bool {
        true
    }

    fn matmul_algorithm(&self, p: &MatmulParams, dtype: DType) -> Option<&'static str> {
        let shape = GemmShape::new(p);
        let algorithm = match dtype {
            _ if shape.m == 0 || shape.n == 0 => return None,
            DType::F64 => plan::choose::<f64>(&shape, dtype, self.preferred_algorithm()),
            _ => plan::choose::<f32>(&shape, dtype, self.preferred_algorithm()),
        };
        Some(algorithm.name())
    }
}

/// The operands and the parameters of an op.
struct Operands<'a> {
    p: &'a MatmulParams,
    a: &'a CpuBuffer,
    b: &'a CpuBuffer,
    bias: Option<&'a CpuBuffer>,
}

fn run(cpu: &Cpu, o: &Operands<'_>, c: &mut CpuBuffer) -> Result<()> {
    match c.dtype() {
        DType::F32 => wide::<f32>(cpu, o, c),
        DType::F64 => wide::<f64>(cpu, o, c),
        DType::BF16 => halves::<bf16>(cpu, o, c),
        DType::F16 => halves::<f16>(cpu, o, c),
        other => unreachable!("float op on {other}: refused where the tensor was made"),
    }
}

fn wide<A: Scalar>(cpu: &Cpu, o: &Operands<'_>, c: &mut CpuBuffer) -> Result<()> {
    let e = Epilogue {
        bias: o.bias.map(CpuBuffer::as_slice),
        activation: o.p.activation(),
    };
    let blocking = Blocking::this::<A>();
    product::<A>(cpu, o, c, |s, algorithm, [a, b], c| {
        Product::new(*s, a, b).run(cpu, algorithm, blocking, c, e)
    })
}

fn halves<T: Half>(cpu: &Cpu, o: &Operands<'_>, c: &mut CpuBuffer) -> Result<()> {
    let bias = o.bias.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
    let e = Epilogue {
        bias: bias.as_ref().map(Upcast::slice),
        activation: o.p.activation(),
    };
    product::<T>(cpu, o, c, |s, algorithm, operands, c| match algorithm {
        Algorithm::Words(kernels) => gemm::halves::product(cpu, kernels, s, operands, c, e),
        _ => gemm::halves::small_m(cpu, s, operands, c, e),
    })
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

/// Runs `f(shape, algorithm, [a, b], c)` for each product of a batch.
fn product<T: Stored>(
    cpu: &Cpu,
    o: &Operands<'_>,
    c: &mut CpuBuffer,
    f: impl Fn(&GemmShape, Algorithm, [&[T]; 2], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let (p, shape) = (o.p, GemmShape::new(o.p));
    let (a, b, c) = (o.a.as_slice::<T>(), o.b.as_slice::<T>(), c.as_mut_slice::<T>());
    if c.is_empty() {
        return Ok(());
    }
    let algorithm = plan::choose::<T::Acc>(&shape, T::DTYPE, cpu.preferred_algorithm());
    let one = |batch: usize, c: &mut [T]| {
        let operands = [&a[offset(p, &p.a_batch, batch)..], &b[offset(p, &p.b_batch, batch)..]];
        f(&shape, algorithm, operands, c)
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
