//! Reductions of integers, over the plan of those of floats.

use super::Plan;
use crate::parallel::{chunks_mut, items_mut};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::ReduceParams;
use kiln_core::{DType, Result};

/// Reduces `x` into `y` by an associative and commutative `join` whose unit is `unit`.
pub(in crate::ops) fn reduce(
    cpu: &Cpu,
    p: &ReduceParams,
    x: &[i32],
    y: &mut [i32],
    unit: i32,
    join: impl Fn(i32, i32) -> i32 + Sync,
) -> Result<()> {
    let plan = Plan::new(p);
    let (c, segments) = (plan.c, plan.count.div_ceil(plan.segment));
    y.fill(unit);
    if plan.count == 0 || y.is_empty() {
        return Ok(());
    }
    let part = |block: usize, segment: usize, y: &mut [i32]| {
        let base = plan.kept.offset(block);
        let range = segment * plan.segment..((segment + 1) * plan.segment).min(plan.count);
        plan.runs(range, |at, rows| {
            let x = &x[base + at..][..(rows - 1) * c + y.len()];
            if c == 1 {
                y[0] = x.iter().fold(y[0], |a, &x| join(a, x));
                return;
            }
            for x in x.chunks(c) {
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = join(*y, x));
            }
        });
    };
    if segments == 1 {
        chunks_mut(y, c, plan.count, |first, y| {
            for (i, y) in y.chunks_exact_mut(c).enumerate() {
                part(first / c + i, 0, y);
            }
        });
        return Ok(());
    }
    // The layout is partial[block][segment][c].
    let mut partial: CpuBuffer = cpu.scratch(DType::I32, plan.outputs * segments)?;
    let partial = partial.as_mut_slice::<i32>();
    partial.fill(unit);
    items_mut(partial, c, x.len(), |i, y| part(i / segments, i % segments, y));
    for (partial, y) in partial.chunks_exact(segments * c).zip(y.chunks_exact_mut(c)) {
        for partial in partial.chunks_exact(c) {
            y.iter_mut().zip(partial).for_each(|(y, &x)| *y = join(*y, x));
        }
    }
    Ok(())
}
