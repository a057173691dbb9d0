//! Depthwise convolutions (one channel per group): direct loops whose inner dimension is the channels.

use crate::Cpu;
use crate::conv::Operands;
use crate::conv::geometry::{Geometry, positions, start, taps};
use crate::epilogue::finish_rows;
use crate::gemm::sum_parts;
use crate::parallel::{GRAIN, try_chunks_mut};
use crate::scalar::Scalar;
use crate::simd::isa::vectorized;
use kiln_core::Result;

#[inline(always)]
fn multiply_add<A: Scalar>(y: &mut [A], a: &[A], b: &[A]) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y += a * b;
    }
}

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

/// Elements of a chunk: whole positions, about [`GRAIN`] multiply-adds.
fn chunk(g: &Geometry) -> usize {
    (GRAIN / (g.taps() * g.channels)).max(1) * g.channels
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    let c = g.channels;
    let Operands { x, w, epilogue: e } = o;
    let w = by_tap(cpu, g, w)?;
    let w = w.as_slice::<A>();
    try_chunks_mut(y, chunk(g), true, |at, y| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                y.fill(A::default());
                positions(
                    g.output,
                    first..first + y.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w_]| {
                        let y = &mut y[(r - first) * c..][..c];
                        let o = [g.first(0, d), g.first(1, h), g.first(2, w_)];
                        taps(
                            g,
                            #[inline(always)]
                            |i, k| g.tap(i, o[i], k),
                            #[inline(always)]
                            |tap, input| {
                                let from = start(g.input, image, input, c);
                                multiply_add(y, &x[from..from + c], &w[tap * c..][..c]);
                            },
                        );
                    },
                );
            },
        );
        if !e.is_none() {
            finish_rows(y, c, e.bias, e.activation);
        }
        Ok(())
    })
}

/// The gradient with respect to the input: each input position gathers from the windows that read it.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    let (c, steps) = (p.channels, p.tap_steps());
    let w = by_tap(cpu, p, w)?;
    let w = w.as_slice::<A>();
    try_chunks_mut(dx, chunk(p), true, |at, dx| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                dx.fill(A::default());
                positions(
                    p.input,
                    first..first + dx.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w_]| {
                        let dx = &mut dx[(r - first) * c..][..c];
                        for (i, od) in p.readers(0, d, &steps[0]) {
                            for (j, oh) in p.readers(1, h, &steps[1]) {
                                let line = (i * p.kernel[1] + j) * p.kernel[2];
                                for (k, ow) in p.readers(2, w_, &steps[2]) {
                                    let from = start(p.output, image, [od, oh, ow], c);
                                    multiply_add(dx, &g[from..from + c], &w[(line + k) * c..][..c]);
                                }
                            }
                        }
                    },
                );
            },
        );
        Ok(())
    })
}

/// The gradient with respect to the weight, over fixed parts of the positions that are added in order.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    let (c, rows, size) = (p.channels, p.rows(), dw.len());
    let parts = (p.work() / GRAIN).clamp(1, 16);
    let part = rows.div_ceil(parts);
    let mut sums = cpu.scratch(A::DTYPE, (parts + 1) * size)?;
    let (sums, total) = sums.as_mut_slice::<A>().split_at_mut(parts * size);
    try_chunks_mut(sums, size, true, |at, dw| {
        let number = at / size;
        let (from, to) = ((number * part).min(rows), ((number + 1) * part).min(rows));
        vectorized(
            #[inline(always)]
            || {
                dw.fill(A::default());
                positions(
                    p.output,
                    from..to,
                    #[inline(always)]
                    |r, [image, d, h, w]| {
                        let o = [p.first(0, d), p.first(1, h), p.first(2, w)];
                        let g = &g[r * c..][..c];
                        taps(
                            p,
                            #[inline(always)]
                            |i, k| p.tap(i, o[i], k),
                            #[inline(always)]
                            |tap, input| {
                                let from = start(p.input, image, input, c);
                                multiply_add(&mut dw[tap * c..][..c], &x[from..from + c], g);
                            },
                        );
                    },
                );
            },
        );
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
