//! Convolutions of halves with their pooling: as two ops where a convolution multiplies halves as they are; otherwise in f32, of
//! operands that are widened part by part, where the convolution's result is in cache or in registers only. Rounding keeps the order of numbers, so
//! the largest results are the same either way.

use super::plan::Forward;
use super::split::{BatchSplit, has_relu_or_none};
use super::{grad, plan, separate};
use crate::conv::plan::least_cost;
use crate::gemm::halves::Half;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{ConvPass as Pass, ConvPoolGrads, ConvPoolParams, PooledGrad};
use kiln_core::{DType, Result};

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
    parts.forward::<T>(cpu, p, (x, w, bias), (y, index))
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
    grad::gradients::<T>(cpu, p, of, (x, w), to)
}
