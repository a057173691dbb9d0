//! Batch norm of `[rows, channels]`.

use super::combine;
use crate::Cpu;
use crate::math::Math;
use crate::parallel::{GRAIN, chunks_mut, items_mut};
use crate::real::Real;
use crate::tile::{TILE, Tile};
use kiln_core::ops::BatchNormParams;
use kiln_core::{Element, Float, Result};

/// Optional scale and shift.
pub(super) type Affine<'a, T> = (Option<&'a [T]>, Option<&'a [T]>);

/// Rows of one partial result.
fn chunk_rows(channels: usize) -> usize {
    (GRAIN / channels).max(16)
}

/// Writes per-chunk partials through `f(rows, partial)`, each of `[2, channels]`.
fn partials<A: Real>(p: &BatchNormParams, partial: &mut [A], f: impl Fn(std::ops::Range<usize>, &mut [A]) + Sync) {
    let (rows, step) = (p.rows as usize, chunk_rows(p.channels as usize));
    let c = p.channels as usize;
    items_mut(partial, 2 * c, rows * c, |i, out| {
        f(i * step..((i + 1) * step).min(rows), out);
    });
}

pub(super) fn forward<T: Float>(
    cpu: &Cpu,
    p: &BatchNormParams,
    x: &[T],
    affine: Affine<'_, T>,
    y: &mut [T],
    mean: &mut [T::Acc],
    rstd: &mut [T::Acc],
) -> Result<()>
where
    T::Acc: Real,
{
    let (rows, c, step) = (p.rows as usize, p.channels as usize, chunk_rows(p.channels as usize));
    let mut partial = cpu.scratch(T::Acc::DTYPE, rows.div_ceil(step) * 2 * c)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    partials(p, partial, |range, out| {
        let (mean, m2) = out.split_at_mut(c);
        moments(x, c, range, mean, m2);
    });
    let (first, rest) = partial.split_at(2 * c);
    mean.copy_from_slice(&first[..c]);
    rstd.copy_from_slice(&first[c..]);
    for (i, part) in rest.chunks_exact(2 * c).enumerate() {
        let done = (i + 1) * step;
        let (count, n) = (T::Acc::of(done as f64), T::Acc::of((rows - done).min(step) as f64));
        let (means, m2s) = part.split_at(c);
        for ((mean, m2), (&mean_b, &m2_b)) in mean.iter_mut().zip(&mut *rstd).zip(means.iter().zip(m2s)) {
            combine(count, (mean, m2), n, (mean_b, m2_b));
        }
    }
    let (rows, eps) = (T::Acc::of(p.rows as f64), T::Acc::of(p.eps));
    for rstd in &mut *rstd {
        *rstd = T::Acc::ONE / (*rstd / rows + eps).sqrt();
    }
    normalise(cpu, c, x, affine, mean, rstd, y)
}

/// The mean and the squared deviations from it of each column over `rows`.
fn moments<T: Float>(x: &[T], c: usize, rows: std::ops::Range<usize>, mean: &mut [T::Acc], m2: &mut [T::Acc])
where
    T::Acc: Real,
{
    let n = T::Acc::of(rows.len() as f64);
    for tile in Tile::cover(c, 0..c, rows.len()) {
        let mut lanes = [T::Acc::ZERO; TILE];
        tile.rows(rows.start * c, rows.len(), |at| {
            for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                *a += x.wide();
            }
        });
        let sums = tile.join(&mut lanes, |a, b| a + b);
        for (mean, &sum) in mean[tile.columns.clone()].iter_mut().zip(sums) {
            *mean = sum / n;
        }
        let centre = tile.spread(mean);
        let mut lanes = [T::Acc::ZERO; TILE];
        tile.rows(rows.start * c, rows.len(), |at| {
            for ((a, &x), &centre) in lanes.iter_mut().zip(&x[at]).zip(&centre) {
                let d = x.wide() - centre;
                *a += d * d;
            }
        });
        m2[tile.columns.clone()].copy_from_slice(tile.join(&mut lanes, |a, b| a + b));
    }
}

/// `y = (x − mean)·rstd·scale + shift` by column.
fn normalise<T: Float>(
    cpu: &Cpu,
    c: usize,
    x: &[T],
    (scale, shift): Affine<'_, T>,
    mean: &[T::Acc],
    rstd: &[T::Acc],
    y: &mut [T],
) -> Result<()>
where
    T::Acc: Real,
{
    let mut factors = cpu.scratch(T::Acc::DTYPE, 2 * c)?;
    let (a, b) = factors.as_mut_slice::<T::Acc>().split_at_mut(c);
    for i in 0..c {
        a[i] = scale.map_or(rstd[i], |s| rstd[i] * s[i].wide());
        b[i] = shift.map_or(T::Acc::ZERO, |s| s[i].wide());
    }
    let (a, b) = (&*a, &*b);
    chunks_mut(y, c, 2, |first, y| {
        for tile in Tile::cover(c, 0..c, y.len() / c) {
            let (mean, a, b) = (tile.spread(mean), tile.spread(a), tile.spread(b));
            tile.rows(0, y.len() / c, |at| {
                let x = &x[first + at.start..first + at.end];
                for ((y, &x), ((&mean, &a), &b)) in y[at].iter_mut().zip(x).zip(mean.iter().zip(&a).zip(&b)) {
                    *y = T::narrow((x.wide() - mean) * a + b);
                }
            });
        }
    });
    Ok(())
}

pub(super) fn eval<T: Float>(
    cpu: &Cpu,
    p: &BatchNormParams,
    x: &[T],
    affine: Affine<'_, T>,
    (mean, var): (&[T::Acc], &[T::Acc]),
    y: &mut [T],
) -> Result<()>
where
    T::Acc: Real,
{
    let mut rstd = cpu.scratch(T::Acc::DTYPE, var.len())?;
    let rstd = rstd.as_mut_slice::<T::Acc>();
    for (rstd, &var) in rstd.iter_mut().zip(var) {
        *rstd = T::Acc::ONE / (var + T::Acc::of(p.eps)).sqrt();
    }
    normalise(cpu, p.channels as usize, x, affine, mean, rstd, y)
}

pub(super) fn grad<T: Float>(
    cpu: &Cpu,
    p: &BatchNormParams,
    (x, g): (&[T], &[T]),
    scale: Option<&[T]>,
    (mean, rstd): (&[T::Acc], &[T::Acc]),
    dx: &mut [T],
    dscale: &mut [T],
    dshift: &mut [T],
) -> Result<()>
where
    T::Acc: Real,
{
    let (rows, c) = (p.rows as usize, p.channels as usize);
    let mut partial = cpu.scratch(T::Acc::DTYPE, rows.div_ceil(chunk_rows(c)) * 2 * c)?;
    let partial = partial.as_mut_slice::<T::Acc>();
    partials(p, partial, |range, out| {
        let (sum, dot) = out.split_at_mut(c);
        for tile in Tile::cover(c, 0..c, range.len()) {
            let (mut s, mut d) = ([T::Acc::ZERO; TILE], [T::Acc::ZERO; TILE]);
            let centre = tile.spread(mean);
            tile.rows(range.start * c, range.len(), |at| {
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
    let (total, rest) = partial.split_at_mut(2 * c);
    for part in rest.chunks_exact(2 * c) {
        for (a, &b) in total.iter_mut().zip(part) {
            *a += b;
        }
    }
    let n = T::Acc::of(p.rows as f64);
    let mut factors = cpu.scratch(T::Acc::DTYPE, 3 * c)?;
    let (a, rest) = factors.as_mut_slice::<T::Acc>().split_at_mut(c);
    let (shift, slope) = rest.split_at_mut(c);
    for i in 0..c {
        let (sum, dot) = (total[i], total[c + i] * rstd[i]);
        dshift[i] = T::narrow(sum);
        dscale[i] = T::narrow(dot);
        a[i] = scale.map_or(rstd[i], |s| rstd[i] * s[i].wide());
        shift[i] = sum / n;
        slope[i] = rstd[i] * dot / n;
    }
    let (a, shift, slope) = (&*a, &*shift, &*slope);
    chunks_mut(dx, c, 4, |first, dx| {
        for tile in Tile::cover(c, 0..c, dx.len() / c) {
            let (a, mean) = (tile.spread(a), tile.spread(mean));
            let (shift, slope) = (tile.spread(shift), tile.spread(slope));
            tile.rows(0, dx.len() / c, |at| {
                let from = first + at.start..first + at.end;
                let (x, g, dx) = (&x[from.clone()], &g[from], &mut dx[at]);
                let n = dx.len();
                let (a, mean, shift, slope) = (&a[..n], &mean[..n], &shift[..n], &slope[..n]);
                for i in 0..n {
                    let centred = x[i].wide() - mean[i];
                    dx[i] = T::narrow(a[i] * (g[i].wide() - shift[i] - centred * slope[i]));
                }
            });
        }
    });
    Ok(())
}
