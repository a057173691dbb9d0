//! Norms within a sample of `[samples, positions, groups, width]`: each (sample, group) over positions and width.
//!
//! With one position (layer, RMS norm) a group is a contiguous row. Otherwise a sample is `[positions, channels]`: columns
//! are summed in fixed chunks of positions, and then the columns of a group are added.

use super::batch::Affine;
use super::combine::combine;
use crate::Cpu;
use crate::parallel::{GRAIN, chunks_mut, items_mut, rows_per_chunk, zip2_mut, zip3_mut};
use crate::simd::lanes::lanes;

use crate::simd::column_tile::{Lanes, Tile};
use crate::simd::real::Real;
use crate::simd::row_reduce::{sum, sums};
use kiln_core::Result;
use kiln_core::ops::GroupNormParams;

type Stats<'a, A> = (&'a [A], &'a [A]);

/// Layer and RMS norm: every group is one row of `width`.
pub(in crate::ops) fn forward_rows<A: Real>(
    p: &GroupNormParams,
    x: &[A],
    (scale, shift): Affine<'_, A>,
    y: &mut [A],
    mean: &mut [A],
    rstd: &mut [A],
) {
    let (groups, n) = (p.groups as usize, p.width as usize);
    let (count, eps) = (A::of(n as f64), A::of(p.eps));
    let rows = rows_per_chunk(mean.len(), n, 3);
    zip3_mut((mean, rows), (rstd, rows), (y, rows * n), |chunk, mean, rstd, y| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let outputs = mean.iter_mut().zip(rstd).zip(y.chunks_exact_mut(n));
                for (r, ((mean, rstd), y)) in (chunk * rows..).zip(outputs) {
                    let x = &x[r * n..(r + 1) * n];
                    let channels = r % groups * n..(r % groups + 1) * n;
                    let m = match p.rms {
                        1 => A::ZERO,
                        _ => {
                            sum(
                                x,
                                #[inline(always)]
                                |x| x,
                            ) / count
                        }
                    };
                    let squares = sum(
                        x,
                        #[inline(always)]
                        |x| (x - m) * (x - m),
                    );
                    let k = A::ONE / (squares / count + eps).sqrt();
                    (*mean, *rstd) = (m, k);
                    let affine = scale[channels.clone()].iter().zip(&shift[channels]);
                    for ((y, &x), (&a, &b)) in y.iter_mut().zip(x).zip(affine) {
                        *y = (x - m) * k * a + b;
                    }
                }
            },
        );
    });
}

/// The gradient of [`forward_rows`]: one pass over each sample writes its `dx` and adds to the sums over samples.
pub(in crate::ops) fn grad_rows<A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, g): (&[A], &[A]),
    scale: &[A],
    (mean, rstd): Stats<'_, A>,
    dx: &mut [A],
    dscale: &mut [A],
    dshift: &mut [A],
) -> Result<()> {
    let (samples, groups, n) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, count) = (groups * n, A::of(n as f64));
    let rows = rows_per_chunk(samples, c, 4).max(8);
    let mut partial = cpu.scratch(A::DTYPE, samples.div_ceil(rows) * 2 * c)?;
    let partial = partial.as_mut_slice::<A>();
    zip2_mut((dx, rows * c), (&mut *partial, 2 * c), |chunk, dx, partial| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                partial.fill(A::ZERO);
                let (slopes, shifts) = partial.split_at_mut(c);
                for (r, dx) in (chunk * rows * groups..).zip(dx.chunks_exact_mut(n)) {
                    let (x, g) = (&x[r * n..(r + 1) * n], &g[r * n..(r + 1) * n]);
                    let channels = r % groups * n..(r % groups + 1) * n;
                    let (m, k, s) = (mean[r], rstd[r], &scale[channels.clone()]);
                    let [sum, dot] = sums(
                        [x, g, s],
                        #[inline(always)]
                        |[x, g, s]| [g * s, g * s * (x - m)],
                    );
                    let shift = if p.rms == 1 { A::ZERO } else { sum / count };
                    let slope = dot * k * k / count;
                    grad_row(
                        (x, g, s),
                        (dx, &mut slopes[channels.clone()], &mut shifts[channels]),
                        [m, k, shift, slope],
                    );
                }
            },
        );
    });
    join(partial, 2 * c);
    dscale.copy_from_slice(&partial[..c]);
    dshift.copy_from_slice(&partial[c..2 * c]);
    Ok(())
}

/// Computes `dx` of one row of [`grad_rows`], and adds the row's terms to the sums over samples.
#[inline(always)]
fn grad_row<A: Real>(
    (x, g, s): (&[A], &[A], &[A]),
    (dx, slopes, shifts): (&mut [A], &mut [A], &mut [A]),
    [m, k, shift, slope]: [A; 4],
) {
    let outputs = dx.iter_mut().zip(slopes).zip(shifts);
    for (((dx, slopes), shifts), ((&x, &g), &s)) in outputs.zip(x.iter().zip(g).zip(s)) {
        let centred = x - m;
        *dx = k * (g * s - shift - centred * slope);
        *slopes += g * centred * k;
        *shifts += g;
    }
}

/// Adds the parts of `size` elements in order, into the first.
fn join<A: Real>(partial: &mut [A], size: usize) {
    let (total, rest) = partial.split_at_mut(size);
    for part in rest.chunks_exact(size) {
        for (a, &b) in total.iter_mut().zip(part) {
            *a += b;
        }
    }
}

/// The partition of the samples of a norm over positions: `chunks` per sample, of `step` positions each.
struct RowPartition {
    positions: usize,
    step: usize,
    chunks: usize,
    work: usize,
}

impl RowPartition {
    fn new(p: &GroupNormParams) -> Self {
        let (positions, c) = (p.positions as usize, (p.groups * p.width) as usize);
        let step = (GRAIN / c).clamp(1, positions);
        RowPartition {
            positions,
            step,
            chunks: positions.div_ceil(step),
            work: p.samples as usize * positions * c,
        }
    }

    /// Calls `f(sample, first row of the chunk, rows, item)` for every item of `size` elements.
    fn items<A: Real>(&self, items: &mut [A], size: usize, f: impl Fn(usize, usize, usize, &mut [A]) + Sync) {
        items_mut(items, size, self.work, |i, item| {
            let (sample, at) = (i / self.chunks, i % self.chunks * self.step);
            let (first, rows) = (sample * self.positions + at, self.step.min(self.positions - at));
            lanes::<A, _>(
                #[inline(always)]
                || f(sample, first, rows, item),
            );
        });
    }
}

pub(super) fn forward<A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    x: &[A],
    (scale, shift): Affine<'_, A>,
    y: &mut [A],
    mean: &mut [A],
    rstd: &mut [A],
) -> Result<()> {
    let (samples, groups, width) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, cut) = (groups * width, RowPartition::new(p));
    // The layout is partial[sample][chunk][mean, m2][group].
    let mut partial = cpu.scratch(A::DTYPE, samples * cut.chunks * 2 * groups)?;
    let partial = partial.as_mut_slice::<A>();
    cut.items(
        partial,
        2 * groups,
        #[inline(always)]
        |_, row, rows, out| {
            let (mean, m2) = out.split_at_mut(groups);
            group_moments(p, x, row, rows, mean, m2);
        },
    );
    let eps = A::of(p.eps);
    for (sample, parts) in partial.chunks_exact(cut.chunks * 2 * groups).enumerate() {
        for group in 0..groups {
            let (mut m, mut m2) = (parts[group], parts[groups + group]);
            for (i, part) in parts.chunks_exact(2 * groups).enumerate().skip(1) {
                let done = i * cut.step;
                let n = cut.step.min(cut.positions - done);
                let of = |rows: usize| A::of((rows * width) as f64);
                combine(of(done), (&mut m, &mut m2), of(n), (part[group], part[groups + group]));
            }
            let n = A::of((cut.positions * width) as f64);
            mean[sample * groups + group] = m;
            rstd[sample * groups + group] = A::ONE / (m2 / n + eps).sqrt();
        }
    }
    // For each sample: the mean, factor and shift of each channel.
    let mut factors = cpu.scratch(A::DTYPE, samples * 3 * c)?;
    let factors = factors.as_mut_slice::<A>();
    for (sample, factors) in factors.chunks_exact_mut(3 * c).enumerate() {
        for i in 0..c {
            let group = sample * groups + i / width;
            factors[i] = mean[group];
            factors[c + i] = rstd[group] * scale[i];
            factors[2 * c + i] = shift[i];
        }
    }
    let factors = &*factors;
    each_sample(
        p,
        y,
        #[inline(always)]
        |sample: usize, first: usize, rows: usize, y: &mut [A]| {
            let (mean, rest) = factors[sample * 3 * c..(sample + 1) * 3 * c].split_at(c);
            let (a, b) = rest.split_at(c);
            for tile in Tile::cover(c, 0..c, rows) {
                let (mean, a, b) = (tile.spread(mean), tile.spread(a), tile.spread(b));
                tile.rows(
                    0,
                    rows,
                    #[inline(always)]
                    |at| {
                        let x = &x[first + at.start..first + at.end];
                        for ((y, &x), ((&mean, &a), &b)) in
                            y[at].iter_mut().zip(x).zip(mean.iter().zip(a.iter()).zip(b.iter()))
                        {
                            *y = (x - mean) * a + b;
                        }
                    },
                );
            }
        },
    );
    Ok(())
}

/// Cuts `y` into ranges of rows within one sample and calls `f(sample, first element, rows, range)` for each.
fn each_sample<A: Real>(p: &GroupNormParams, y: &mut [A], f: impl Fn(usize, usize, usize, &mut [A]) + Sync) {
    let c = (p.groups * p.width) as usize;
    let whole = p.positions as usize * c;
    chunks_mut(y, c, 2, |first, mut y| {
        let mut at = first;
        while !y.is_empty() {
            let n = (whole - at % whole).min(y.len());
            let (now, later) = y.split_at_mut(n);
            lanes::<A, _>(
                #[inline(always)]
                || f(at / whole, at, n / c, now),
            );
            (y, at) = (later, at + n);
        }
    });
}

/// Computes, over `rows` positions from `row` on, the mean of each group and the sum of squared deviations from it (RMS
/// norm: 0, and Σx²).
#[inline(always)]
fn group_moments<A: Real>(p: &GroupNormParams, x: &[A], row: usize, rows: usize, mean: &mut [A], m2: &mut [A]) {
    let (groups, width) = (p.groups as usize, p.width as usize);
    let (c, n) = (groups * width, A::of((rows * width) as f64));
    mean.fill(A::ZERO);
    m2.fill(A::ZERO);
    if p.rms == 0 {
        for tile in Tile::cover(c, 0..c, rows) {
            let mut lanes = Lanes::filled(A::ZERO);
            tile.rows(
                row * c,
                rows,
                #[inline(always)]
                |at| {
                    for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                        *a += x;
                    }
                },
            );
            for (channel, &sum) in tile.columns.clone().zip(tile.join(&mut lanes, |a, b| a + b)) {
                mean[channel / width] += sum;
            }
        }
        for mean in &mut *mean {
            *mean = *mean / n;
        }
    }
    for tile in Tile::cover(c, 0..c, rows) {
        let mut lanes = Lanes::filled(A::ZERO);
        let centre = tile.spread_with(|channel| mean[channel / width]);
        tile.rows(
            row * c,
            rows,
            #[inline(always)]
            |at| {
                for ((a, &x), &centre) in lanes.iter_mut().zip(&x[at]).zip(centre.iter()) {
                    let d = x - centre;
                    *a += d * d;
                }
            },
        );
        for (channel, &sum) in tile.columns.clone().zip(tile.join(&mut lanes, |a, b| a + b)) {
            m2[channel / width] += sum;
        }
    }
}

pub(super) fn grad<A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, g): (&[A], &[A]),
    scale: &[A],
    (mean, rstd): Stats<'_, A>,
    dx: &mut [A],
    dscale: &mut [A],
    dshift: &mut [A],
) -> Result<()> {
    let (samples, groups, width) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, cut) = (groups * width, RowPartition::new(p));
    // The layout is partial[sample][chunk][Σ g·(x − mean), Σ g][channel].
    let mut partial = cpu.scratch(A::DTYPE, samples * cut.chunks * 2 * c)?;
    let partial = partial.as_mut_slice::<A>();
    cut.items(
        partial,
        2 * c,
        #[inline(always)]
        |sample: usize, row: usize, rows: usize, out: &mut [A]| {
            let (dot, sum) = out.split_at_mut(c);
            for tile in Tile::cover(c, 0..c, rows) {
                let (mut s, mut d) = (Lanes::filled(A::ZERO), Lanes::filled(A::ZERO));
                let centre = tile.spread_with(|channel| mean[sample * groups + channel / width]);
                tile.rows(
                    row * c,
                    rows,
                    #[inline(always)]
                    |at| {
                        let values = x[at.clone()].iter().zip(&g[at]).zip(centre.iter());
                        for ((s, d), ((&x, &g), &centre)) in s.iter_mut().zip(d.iter_mut()).zip(values) {
                            *s += g;
                            *d += g * (x - centre);
                        }
                    },
                );
                sum[tile.columns.clone()].copy_from_slice(tile.join(&mut s, |a, b| a + b));
                dot[tile.columns.clone()].copy_from_slice(tile.join(&mut d, |a, b| a + b));
            }
        },
    );
    // For each sample: the factor, mean, shift and slope of each channel of `dx`.
    let mut factors = cpu.scratch(A::DTYPE, samples * 4 * c)?;
    let factors = factors.as_mut_slice::<A>();
    let n = A::of((cut.positions * width) as f64);
    for (sample, parts) in partial.chunks_exact_mut(cut.chunks * 2 * c).enumerate() {
        join(parts, 2 * c);
        let (dot, sum) = parts[..2 * c].split_at_mut(c);
        let factors = &mut factors[sample * 4 * c..(sample + 1) * 4 * c];
        for group in 0..groups {
            let (m, k) = (mean[sample * groups + group], rstd[sample * groups + group]);
            let (mut shift, mut slope) = (A::ZERO, A::ZERO);
            for i in group * width..(group + 1) * width {
                shift += scale[i] * sum[i];
                slope += scale[i] * dot[i];
                dot[i] = dot[i] * k;
            }
            let shift = if p.rms == 1 { A::ZERO } else { k * shift / n };
            let slope = k * k * k * slope / n;
            for i in group * width..(group + 1) * width {
                factors[i] = k * scale[i];
                factors[c + i] = m;
                factors[2 * c + i] = shift;
                factors[3 * c + i] = slope;
            }
        }
    }
    for i in 0..c {
        let each = |at: usize| {
            let parts = partial.chunks_exact(cut.chunks * 2 * c);
            parts.fold(A::ZERO, |a, part| a + part[at])
        };
        (dscale[i], dshift[i]) = (each(i), each(c + i));
    }
    let factors = &*factors;
    each_sample(
        p,
        dx,
        #[inline(always)]
        |sample: usize, first: usize, rows: usize, dx: &mut [A]| {
            let factors = &factors[sample * 4 * c..(sample + 1) * 4 * c];
            for tile in Tile::cover(c, 0..c, rows) {
                let (a, mean) = (tile.spread(&factors[..c]), tile.spread(&factors[c..2 * c]));
                let (shift, slope) = (tile.spread(&factors[2 * c..3 * c]), tile.spread(&factors[3 * c..]));
                tile.rows(
                    0,
                    rows,
                    #[inline(always)]
                    |at| {
                        let from = first + at.start..first + at.end;
                        let (x, g, dx) = (&x[from.clone()], &g[from], &mut dx[at]);
                        let n = dx.len();
                        let (a, mean, shift, slope) = (&a[..n], &mean[..n], &shift[..n], &slope[..n]);
                        for i in 0..n {
                            let centred = x[i] - mean[i];
                            dx[i] = g[i] * a[i] - shift[i] - centred * slope[i];
                        }
                    },
                );
            }
        },
    );
    Ok(())
}
