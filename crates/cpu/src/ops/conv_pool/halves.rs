//! Convolutions of halves with their pooling: as two ops where a convolution multiplies halves as they are; otherwise in f32, of
//! widened operands, where the convolution's result is in cache or in registers only. Rounding keeps the order of numbers, so
//! the largest results are the same either way.

use super::plan::Forward;
use super::split::{BatchSplit, has_relu_or_none};
use super::{grad, plan, separate};
use crate::conv::plan::least_cost;
use crate::gemm::halves::Half;
use crate::parallel::chunks_mut;
use crate::simd::lanes::{from_acc, to_acc};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{ConvPass as Pass, ConvPoolGrads, ConvPoolParams, PooledGrad};
use kiln_core::{Buffer, DType, Result};

/// The multiply-adds that take as long as one element of the convolution's result in memory: written, read, pooled.
const BETWEEN: usize = 16;
/// As long as widening an element, or rounding one.
const WIDENED: usize = 16;

/// True if the passes are faster in f32, with widened operands.
fn is_faster_wide<T: Half>(cpu: &Cpu, parts: &BatchSplit, passes: &[Pass]) -> bool {
    let (conv, exact) = (&parts.conv, cpu.convolves_exactly());
    let between = conv.rows().saturating_mul(conv.outputs);
    let image = conv.batch.saturating_mul(conv.in_positions() * conv.channels);
    let (mut halves, mut wide) = (between.saturating_mul(BETWEEN), image.saturating_mul(WIDENED));
    for &pass in passes {
        halves = halves.saturating_add(least_cost::<f32>(pass, conv, T::DTYPE, exact));
        wide = wide.saturating_add(least_cost::<f32>(pass, conv, DType::F32, exact));
    }
    wide < halves
}

/// True if the forward pass is computed in f32.
fn forward_wide<T: Half>(cpu: &Cpu, p: &ConvPoolParams, parts: &BatchSplit) -> bool {
    let separate = matches!(Forward::<f32>::choose(cpu, p, parts), Forward::Separate);
    let asked = plan::preferred(cpu).is_some();
    !separate && (asked || is_faster_wide::<T>(cpu, parts, &[Pass::Forward]))
}

/// The name of the algorithm of the forward pass.
pub(super) fn algorithm<T: Half>(cpu: &Cpu, p: &ConvPoolParams, parts: &BatchSplit) -> &'static str {
    match forward_wide::<T>(cpu, p, parts) {
        true => Forward::<f32>::choose(cpu, p, parts).name(),
        false => plan::SEPARATE,
    }
}

fn widened<T: Half>(cpu: &Cpu, x: &CpuBuffer) -> Result<CpuBuffer> {
    let mut wide = cpu.scratch(DType::F32, x.len())?;
    let x = x.as_slice::<T>();
    chunks_mut(wide.as_mut_slice::<f32>(), 1, 1, |at, wide| {
        to_acc(&x[at..at + wide.len()], wide)
    });
    Ok(wide)
}

fn round<T: Half>(wide: &CpuBuffer, y: &mut CpuBuffer) {
    let wide = wide.as_slice::<f32>();
    chunks_mut(y.as_mut_slice::<T>(), 1, 1, |at, y| {
        from_acc(&wide[at..at + y.len()], y)
    });
}

/// The largest results and their indices.
pub(super) fn forward<T: Half>(
    cpu: &Cpu,
    p: &ConvPoolParams,
    (x, w, bias): (&CpuBuffer, &CpuBuffer, Option<&CpuBuffer>),
    (y, index): (&mut CpuBuffer, &mut CpuBuffer),
) -> Result<()> {
    let parts = BatchSplit::new(p);
    if !forward_wide::<T>(cpu, p, &parts) {
        return separate::forward(cpu, p, (x, w, bias), (y, index));
    }
    let (x, w) = (widened::<T>(cpu, x)?, widened::<T>(cpu, w)?);
    let bias = bias.map(|bias| widened::<T>(cpu, bias)).transpose()?;
    let mut wide = cpu.scratch(DType::F32, y.len())?;
    parts.forward::<f32>(cpu, p, (&x, &w, bias.as_ref()), (&mut wide, index))?;
    round::<T>(&wide, y);
    Ok(())
}

/// The gradients, for no activation or ReLU.
pub(super) fn gradients<T: Half>(
    cpu: &Cpu,
    p: &ConvPoolParams,
    of: &PooledGrad<'_, CpuBuffer>,
    (x, w): (&CpuBuffer, &CpuBuffer),
    to: ConvPoolGrads<'_, CpuBuffer>,
) -> Result<()> {
    debug_assert!(has_relu_or_none(p));
    let parts = BatchSplit::new(p);
    let passes = [(to.dx.is_some(), Pass::DataGrad), (to.dw.is_some(), Pass::WeightGrad)];
    let passes: Vec<Pass> = passes.into_iter().filter(|p| p.0).map(|p| p.1).collect();
    if plan::preferred(cpu).is_none() && !is_faster_wide::<T>(cpu, &parts, &passes) {
        return separate::gradients(cpu, p, of, (x, w), to);
    }
    let [g, y, x, w] = [of.g, of.y, x, w].map(|x| widened::<T>(cpu, x));
    let (g, y, x, w) = (g?, y?, x?, w?);
    let of = PooledGrad {
        g: &g,
        y: &y,
        index: of.index,
    };
    let halves = [to.dx, to.dw, to.db];
    let mut wide = Vec::new();
    for half in &halves {
        wide.push(
            half.as_ref()
                .map(|half| cpu.scratch(DType::F32, half.len()))
                .transpose()?,
        );
    }
    let mut each = wide.iter_mut().map(Option::as_mut);
    let mut next = || each.next().flatten();
    let to = ConvPoolGrads {
        dx: next(),
        dw: next(),
        db: next(),
    };
    grad::gradients::<f32>(cpu, p, &of, (&x, &w), to)?;
    for (half, wide) in halves.into_iter().zip(&wide) {
        if let (Some(half), Some(wide)) = (half, wide) {
            round::<T>(wide, half);
        }
    }
    Ok(())
}
