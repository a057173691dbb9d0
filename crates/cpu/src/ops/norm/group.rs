//! Norms within a sample: `[samples, positions, groups, width]`, each (sample, group) over positions and width.
//!
//! With one position (layer, RMS norm) a group is a contiguous row. Otherwise a sample is `[positions, channels]`:
//! sums go down the columns in fixed chunks of positions, and the columns of a group are added up.

use super::batch::Affine;
use super::combine;
use crate::Cpu;
use crate::math::Math;
use crate::parallel::{GRAIN, chunks_mut, items_mut, rows_per_chunk, zip2_mut, zip3_mut};
use crate::real::Real;
use crate::rows::{sum_row, sum_row2};
use crate::tile::{TILE, Tile};
use kiln_core::ops::GroupNormParams;
use kiln_core::{Element, Float, Result};

type Stats<'a, A> = (&'a [A], &'a [A]);

/// Layer and RMS norm: every group is one row of `width`.
pub(super) fn forward_rows<T: Float>(
    p: &GroupNormParams,
    x: &[T],
    (scale, shift): Affine<'_, T>,
    y: &mut [T],
    mean: &mut [T::Acc],
    rstd: &mut [T::Acc],
) where
    T::Acc: Real,
{
    let (groups, n) = (p.groups as usize, p.width as usize);
    let (count, eps) = (T::Acc::of(n as f64), T::Acc::of(p.eps));
    let rows = rows_per_chunk(n, 4);
    zip3_mut((mean, rows), (rstd, rows), (y, rows * n), |chunk, mean, rstd, y| {
        let outputs = mean.iter_mut().zip(rstd).zip(y.chunks_exact_mut(n));
        for (r, ((mean, rstd), y)) in (chunk * rows..).zip(outputs) {
            let x = &x[r * n..(r + 1) * n];
            let channels = r % groups * n..(r % groups + 1) * n;
            let m = if p.rms == 1 {
                T::Acc::ZERO
            } else {
                sum_row(n, |i| x[i].wide()) / count
            };
            let squares = sum_row(n, |i| {
                let d = x[i].wide() - m;
                d * d
            });
            let k = T::Acc::ONE / (squares / count + eps).sqrt();
            (*mean, *rstd) = (m, k);
            match (scale.map(|s| &s[channels.clone()]), shift.map(|s| &s[channels])) {
                (Some(scale), Some(shift)) => {
                    for ((y, &x), (&a, &b)) in y.iter_mut().zip(x).zip(scale.iter().zip(shift)) {
                        *y = T::narrow((x.wide() - m) * k * a.wide() + b.wide());
                    }
                }
                (Some(scale), None) => {
                    for ((y, &x), &a) in y.iter_mut().zip(x).zip(scale) {
                        *y = T::narrow((x.wide() - m) * k * a.wide());
                    }
                }
                (None, Some(shift)) => {
                    for ((y, &x), &b) in y.iter_mut().zip(x).zip(shift) {
                        *y = T::narrow((x.wide() - m) * k + b.wide());
                    }
                }
                (None, None) => {
                    for (y, &x) in y.iter_mut().zip(x) {
                        *y = T::narrow((x.wide() - m) * k);
                    }
                }
            }
        }
    });
}

/// The gradient of [`forward_rows`]: one visit to each sample writes its `dx` and adds to the sums over samples.
pub(super) fn grad_rows<T: Float>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, g): (&[T], &[T]),
    scale: Option<&[T]>,
    (mean, rstd): Stats<'_, T::Acc>,
    dx: &mut [T],
    dscale: &mut [T],
    dshift: &mut [T],
) -> Result<()>
where
    T::Acc: Real,
{
    let (samples, groups, n) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, count) = (groups * n, T::Acc::of(n as f64));
    let rows = rows_per_chunk(c, 4).max(8);
    let mut partial = cpu.scratch(T::Acc::DTYPE, samples.div_ceil(rows) * 2 * c)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    zip2_mut((dx, rows * c), (&mut *partial, 2 * c), |chunk, dx, partial| {
        partial.fill(T::Acc::ZERO);
        let (slopes, shifts) = partial.split_at_mut(c);
        for (r, dx) in (chunk * rows * groups..).zip(dx.chunks_exact_mut(n)) {
            let (x, g) = (&x[r * n..(r + 1) * n], &g[r * n..(r + 1) * n]);
            let channels = r % groups * n..(r % groups + 1) * n;
            let (m, k) = (mean[r], rstd[r]);
            let (sum, dot) = match scale.map(|s| &s[channels.clone()]) {
                Some(s) => sum_row2(n, |i| {
                    let gi = g[i].wide() * s[i].wide();
                    (gi, gi * (x[i].wide() - m))
                }),
                None => sum_row2(n, |i| (g[i].wide(), g[i].wide() * (x[i].wide() - m))),
            };
            let shift = if p.rms == 1 { T::Acc::ZERO } else { sum / count };
            let slope = dot * k * k / count;
            let (slopes, shifts) = (&mut slopes[channels.clone()], &mut shifts[channels.clone()]);
            for i in 0..n {
                let (gi, centred) = (g[i].wide(), x[i].wide() - m);
                let scaled = scale.map_or(gi, |s| gi * s[channels.start + i].wide());
                dx[i] = T::narrow(k * (scaled - shift - centred * slope));
                slopes[i] += gi * centred * k;
                shifts[i] += gi;
            }
        }
    });
    join(partial, 2 * c);
    for i in 0..c {
        (dscale[i], dshift[i]) = (T::narrow(partial[i]), T::narrow(partial[c + i]));
    }
    Ok(())
}

/// Adds the later parts of `size` elements to the first, in order.
fn join<A: Real>(partial: &mut [A], size: usize) {
    let (total, rest) = partial.split_at_mut(size);
    for part in rest.chunks_exact(size) {
        for (a, &b) in total.iter_mut().zip(part) {
            *a += b;
        }
    }
}

/// How the samples of a norm over positions are cut: `chunks` per sample, of `step` positions each.
struct Cut {
    positions: usize,
    step: usize,
    chunks: usize,
    work: usize,
}

impl Cut {
    fn new(p: &GroupNormParams) -> Self {
        let (positions, c) = (p.positions as usize, (p.groups * p.width) as usize);
        let step = (GRAIN / c).clamp(1, positions);
        Cut {
            positions,
            step,
            chunks: positions.div_ceil(step),
            work: p.samples as usize * positions * c,
        }
    }

    /// Calls `f(sample, first row of the chunk, rows, item)` for every item of `size` elements.
    fn items<A: Send>(&self, items: &mut [A], size: usize, f: impl Fn(usize, usize, usize, &mut [A]) + Sync) {
        items_mut(items, size, self.work, |i, item| {
            let (sample, at) = (i / self.chunks, i % self.chunks * self.step);
            f(
                sample,
                sample * self.positions + at,
                self.step.min(self.positions - at),
                item,
            );
        });
    }
}

pub(super) fn forward<T: Float>(
    cpu: &Cpu,
    p: &GroupNormParams,
    x: &[T],
    (scale, shift): Affine<'_, T>,
    y: &mut [T],
    mean: &mut [T::Acc],
    rstd: &mut [T::Acc],
) -> Result<()>
where
    T::Acc: Real,
{
    let (samples, groups, width) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, cut) = (groups * width, Cut::new(p));
    // partial[sample][chunk][mean, m2][group]
    let mut partial = cpu.scratch(T::Acc::DTYPE, samples * cut.chunks * 2 * groups)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    cut.items(partial, 2 * groups, |_, row, rows, out| {
        let (mean, m2) = out.split_at_mut(groups);
        group_moments(p, x, row, rows, mean, m2);
    });
    let eps = T::Acc::of(p.eps);
    for (sample, parts) in partial.chunks_exact(cut.chunks * 2 * groups).enumerate() {
        for group in 0..groups {
            let (mut m, mut m2) = (parts[group], parts[groups + group]);
            for (i, part) in parts.chunks_exact(2 * groups).enumerate().skip(1) {
                let done = i * cut.step;
                let n = cut.step.min(cut.positions - done);
                let of = |rows: usize| T::Acc::of((rows * width) as f64);
                combine(of(done), (&mut m, &mut m2), of(n), (part[group], part[groups + group]));
            }
            let n = T::Acc::of((cut.positions * width) as f64);
            mean[sample * groups + group] = m;
            rstd[sample * groups + group] = T::Acc::ONE / (m2 / n + eps).sqrt();
        }
    }
    // Per sample: mean, factor and shift of each channel.
    let mut factors = cpu.scratch(T::Acc::DTYPE, samples * 3 * c)?;
    let factors = factors.as_mut_slice::<T::Acc>();
    for (sample, factors) in factors.chunks_exact_mut(3 * c).enumerate() {
        for i in 0..c {
            let group = sample * groups + i / width;
            factors[i] = mean[group];
            factors[c + i] = scale.map_or(rstd[group], |s| rstd[group] * s[i].wide());
            factors[2 * c + i] = shift.map_or(T::Acc::ZERO, |s| s[i].wide());
        }
    }
    let factors = &*factors;
    each_sample(p, y, |sample, first, rows, y| {
        let (mean, rest) = factors[sample * 3 * c..(sample + 1) * 3 * c].split_at(c);
        let (a, b) = rest.split_at(c);
        for tile in Tile::cover(c, 0..c, rows) {
            let (mean, a, b) = (tile.spread(mean), tile.spread(a), tile.spread(b));
            tile.rows(0, rows, |at| {
                let x = &x[first + at.start..first + at.end];
                for ((y, &x), ((&mean, &a), &b)) in y[at].iter_mut().zip(x).zip(mean.iter().zip(&a).zip(&b)) {
                    *y = T::narrow((x.wide() - mean) * a + b);
                }
            });
        }
    });
    Ok(())
}

/// Cuts `y` into stretches of rows that stay within one sample and calls `f(sample, first element, rows, stretch)`.
fn each_sample<T: Send>(p: &GroupNormParams, y: &mut [T], f: impl Fn(usize, usize, usize, &mut [T]) + Sync) {
    let c = (p.groups * p.width) as usize;
    let whole = p.positions as usize * c;
    chunks_mut(y, c, 2, |first, mut y| {
        let mut at = first;
        while !y.is_empty() {
            let n = (whole - at % whole).min(y.len());
            let (now, later) = y.split_at_mut(n);
            f(at / whole, at, n / c, now);
            (y, at) = (later, at + n);
        }
    });
}

/// The mean and the squared deviations from it of each group over `rows` positions from `row` (RMS norm: 0, and Σx²).
fn group_moments<T: Float>(
    p: &GroupNormParams,
    x: &[T],
    row: usize,
    rows: usize,
    mean: &mut [T::Acc],
    m2: &mut [T::Acc],
) where
    T::Acc: Real,
{
    let (groups, width) = (p.groups as usize, p.width as usize);
    let (c, n) = (groups * width, T::Acc::of((rows * width) as f64));
    mean.fill(T::Acc::ZERO);
    m2.fill(T::Acc::ZERO);
    if p.rms == 0 {
        for tile in Tile::cover(c, 0..c, rows) {
            let mut lanes = [T::Acc::ZERO; TILE];
            tile.rows(row * c, rows, |at| {
                for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                    *a += x.wide();
                }
            });
            for (channel, &sum) in tile.columns.clone().zip(tile.join(&mut lanes, |a, b| a + b)) {
                mean[channel / width] += sum;
            }
        }
        for mean in &mut *mean {
            *mean = *mean / n;
        }
    }
    for tile in Tile::cover(c, 0..c, rows) {
        let mut lanes = [T::Acc::ZERO; TILE];
        let centre = tile.spread_with(|channel| mean[channel / width]);
        tile.rows(row * c, rows, |at| {
            for ((a, &x), &centre) in lanes.iter_mut().zip(&x[at]).zip(&centre) {
                let d = x.wide() - centre;
                *a += d * d;
            }
        });
        for (channel, &sum) in tile.columns.clone().zip(tile.join(&mut lanes, |a, b| a + b)) {
            m2[channel / width] += sum;
        }
    }
}

pub(super) fn grad<T: Float>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, g): (&[T], &[T]),
    scale: Option<&[T]>,
    (mean, rstd): Stats<'_, T::Acc>,
    dx: &mut [T],
    dscale: &mut [T],
    dshift: &mut [T],
) -> Result<()>
where
    T::Acc: Real,
{
    let (samples, groups, width) = (p.samples as usize, p.groups as usize, p.width as usize);
    let (c, cut) = (groups * width, Cut::new(p));
    // partial[sample][chunk][Σ g·(x − mean), Σ g][channel]
    let mut partial = cpu.scratch(T::Acc::DTYPE, samples * cut.chunks * 2 * c)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    cut.items(partial, 2 * c, |sample, row, rows, out| {
        let (dot, sum) = out.split_at_mut(c);
        for tile in Tile::cover(c, 0..c, rows) {
            let (mut s, mut d) = ([T::Acc::ZERO; TILE], [T::Acc::ZERO; TILE]);
            let centre = tile.spread_with(|channel| mean[sample * groups + channel / width]);
            tile.rows(row * c, rows, |at| {
                let values = x[at.clone()].iter().zip(&g[at]).zip(&centre);
                for ((s, d), ((&x, &g), &centre)) in s.iter_mut().zip(&mut d).zip(values) {
                    *s += g.wide();
                    *d += g.wide() * (x.wide() - centre);
                }
            });
            sum[tile.columns.clone()].copy_from_slice(tile.join(&mut s, |a, b| a + b));
            dot[tile.columns.clone()].copy_from_slice(tile.join(&mut d, |a, b| a + b));
        }
    });
    // Per sample: factor, mean, shift and slope of each channel of `dx`.
    let mut factors = cpu.scratch(T::Acc::DTYPE, samples * 4 * c)?;
    let factors = factors.as_mut_slice::<T::Acc>();
    let n = T::Acc::of((cut.positions * width) as f64);
    for (sample, parts) in partial.chunks_exact_mut(cut.chunks * 2 * c).enumerate() {
        join(parts, 2 * c);
        let (dot, sum) = parts[..2 * c].split_at_mut(c);
        let factors = &mut factors[sample * 4 * c..(sample + 1) * 4 * c];
        for group in 0..groups {
            let (m, k) = (mean[sample * groups + group], rstd[sample * groups + group]);
            let (mut shift, mut slope) = (T::Acc::ZERO, T::Acc::ZERO);
            for i in group * width..(group + 1) * width {
                let scale = scale.map_or(T::Acc::ONE, |s| s[i].wide());
                shift += scale * sum[i];
                slope += scale * dot[i];
                dot[i] *= k;
            }
            let shift = if p.rms == 1 { T::Acc::ZERO } else { k * shift / n };
            let slope = k * k * k * slope / n;
            for i in group * width..(group + 1) * width {
                factors[i] = scale.map_or(k, |s| k * s[i].wide());
                factors[c + i] = m;
                factors[2 * c + i] = shift;
                factors[3 * c + i] = slope;
            }
        }
    }
    for i in 0..c {
        let each = |at: usize| {
            let parts = partial.chunks_exact(cut.chunks * 2 * c);
            T::narrow(parts.fold(T::Acc::ZERO, |a, part| a + part[at]))
        };
        (dscale[i], dshift[i]) = (each(i), each(c + i));
    }
    let factors = &*factors;
    each_sample(p, dx, |sample, first, rows, dx| {
        let factors = &factors[sample * 4 * c..(sample + 1) * 4 * c];
        for tile in Tile::cover(c, 0..c, rows) {
            let (a, mean) = (tile.spread(&factors[..c]), tile.spread(&factors[c..2 * c]));
            let (shift, slope) = (tile.spread(&factors[2 * c..3 * c]), tile.spread(&factors[3 * c..]));
            tile.rows(0, rows, |at| {
                let from = first + at.start..first + at.end;
                let (x, g, dx) = (&x[from.clone()], &g[from], &mut dx[at]);
                let n = dx.len();
                let (a, mean, shift, slope) = (&a[..n], &mean[..n], &shift[..n], &slope[..n]);
                for i in 0..n {
                    let centred = x[i].wide() - mean[i];
                    dx[i] = T::narrow(g[i].wide() * a[i] - shift[i] - centred * slope[i]);
                }
            });
        }
    });
    Ok(())
}
