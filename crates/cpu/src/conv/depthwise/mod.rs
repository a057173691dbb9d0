//! Depthwise convolutions (one channel per group): vectors run along the channels, and stay in registers over all taps.

mod kernels;
mod lines;

pub(crate) use kernels::Depthwise;

use crate::Cpu;
use crate::conv::Operands;
use crate::conv::geometry::Geometry;
use crate::epilogue::finish_rows;
use crate::gemm::sum_parts;
use crate::parallel::{GRAIN, try_chunks_mut};
use crate::scalar::Scalar;
use kernels::{Products, Sums};
use kiln_core::Result;
use lines::Lines;

/// The weight `[C, taps]` as `[taps, C]`.
fn by_tap<A: Scalar>(cpu: &Cpu, g: &Geometry, w: &[A]) -> Result<crate::CpuBuffer> {
    let mut turned = cpu.scratch(A::DTYPE, w.len())?;
    let to = turned.as_mut_slice::<A>();
    for (c, taps) in w.chunks_exact(g.taps()).enumerate() {
        for (t, &v) in taps.iter().enumerate() {
            to[t * g.channels + c] = v;
        }
    }
    Ok(turned)
}

/// Computes the sums of all lines of `y`, and calls `finish` with those of each task.
fn all_lines<A: Scalar>(
    lines: &Lines<'_>,
    x: &[A],
    w: &[A],
    y: &mut [A],
    finish: impl Fn(&mut [A]) + Sync,
) -> Result<()> {
    let line = lines.columns * lines.channels;
    let together = (GRAIN / (lines.most_taps * line)).max(1);
    try_chunks_mut(y, together * line, true, |at, y| {
        let mut taps = Vec::with_capacity(lines.most_taps);
        for (i, y) in y.chunks_exact_mut(line).enumerate() {
            lines.each(at / line + i, &mut taps, |segment, taps| {
                let sums = Sums {
                    taps,
                    columns: segment.columns,
                    channels: lines.channels,
                    x_step: lines.read_step,
                    y_step: lines.step * lines.channels,
                };
                A::depthwise_kernels().sums(&sums, x, w, &mut y[segment.first * lines.channels..]);
            });
        }
        finish(y);
        Ok(())
    })
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    let Operands { x, w, epilogue: e } = o;
    let w = by_tap(cpu, g, w)?;
    all_lines(&Lines::of_output(g), x, w.as_slice(), y, |y| {
        if !e.is_none() {
            finish_rows(y, g.channels, e.bias, e.activation);
        }
    })
}

/// The gradient with respect to the input: each input position gathers from the windows that read it.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let w = by_tap(cpu, p, w)?;
    all_lines(&Lines::of_input(p), g, w.as_slice(), dx, |_| {})
}

/// The gradient with respect to the weight, over fixed parts of the lines that are added in order.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let (c, size, lines) = (p.channels, dw.len(), Lines::of_output(p));
    let line = lines.columns * c;
    let parts = (p.work() / GRAIN).clamp(1, 16);
    let part = lines.count.div_ceil(parts);
    let mut sums = cpu.scratch(A::DTYPE, (parts + 1) * size)?;
    let (sums, total) = sums.as_mut_slice::<A>().split_at_mut(parts * size);
    try_chunks_mut(sums, size, true, |at, dw| {
        let number = at / size;
        let (from, to) = ((number * part).min(lines.count), ((number + 1) * part).min(lines.count));
        let mut taps = Vec::with_capacity(lines.most_taps);
        dw.fill(A::default());
        for i in from..to {
            lines.each(i, &mut taps, |segment, taps| {
                let products = Products {
                    taps,
                    columns: segment.columns,
                    channels: c,
                    x_step: lines.read_step,
                    g_step: c,
                };
                A::depthwise_kernels().products(&products, x, &g[i * line + segment.first * c..], dw);
            });
        }
        Ok(())
    })?;
    sum_parts(sums, total);
    for (t, row) in total.chunks_exact(c).enumerate() {
        for (i, &v) in row.iter().enumerate() {
            dw[i * p.taps() + t] = v;
        }
    }
    Ok(())
}
