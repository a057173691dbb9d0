//! Batch norm of `[rows, channels]`: a group norm of one sample, whose groups are the channels. Halves are widened, and rounded, a chunk of
//! rows at a time, which stays in cache.

use super::combine::combine;
use crate::Cpu;
use crate::parallel::{GRAIN, THREADS, try_chunks_mut};
use crate::scalar::Stored;
use crate::simd::column_tile::{Lanes, Tile};
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::upcast::{Upcast, write_upcast_to};
use kiln_core::Result;
use kiln_core::ops::{BatchNormParams, BatchNormTrainParams, GroupNormParams};

/// The scale and the shift of each channel.
pub(super) type Affine<'a, A> = (&'a [A], &'a [A]);

/// The number of rows in the chunk of one partial result.
fn chunk_rows(channels: usize) -> usize {
    (GRAIN / channels).max(16)
}

/// Computes a partial result `[2, channels]` for each chunk of rows by `f(operands of the chunk, partial)`.
fn partials<T: Stored<Acc = A>, A: Real, const N: usize>(
    cpu: &Cpu,
    p: &GroupNormParams,
    operands: [&[T]; N],
    partial: &mut [A],
    f: impl Fn([&[A]; N], &mut [A]) + Sync,
) -> Result<()> {
    let (rows, step) = (p.positions as usize, chunk_rows(p.groups as usize));
    let c = p.groups as usize;
    try_chunks_mut(partial, 2 * c, rows * c > THREADS, |at, out| {
        let first = at / (2 * c) * step;
        let chunk = first * c..(first + step).min(rows) * c;
        let wide = widened(cpu, operands.map(|x| &x[chunk.clone()]))?;
        lanes::<A, _>(
            #[inline(always)]
            || f(std::array::from_fn(|i| wide[i].slice()), out),
        );
        Ok(())
    })
}

fn widened<'x, T: Stored<Acc = A>, A: Real, const N: usize>(
    cpu: &Cpu,
    operands: [&'x [T]; N],
) -> Result<[Upcast<'x, A>; N]> {
    let mut wide = [const { Upcast::Same(&[]) }; N];
    for (wide, x) in wide.iter_mut().zip(operands) {
        *wide = Upcast::of(cpu, x)?;
    }
    Ok(wide)
}

/// Computes `y` in chunks of rows by `f(operands of the chunk, y)`; `cost` is the work of an element.
fn map_rows<T: Stored<Acc = A>, A: Real, const N: usize>(
    cpu: &Cpu,
    (c, cost): (usize, usize),
    operands: [&[T]; N],
    y: &mut [T],
    f: impl Fn([&[A]; N], &mut [A]) + Sync,
) -> Result<()> {
    let size = match y.len() <= THREADS / cost {
        true => y.len(),
        false => (THREADS / 2 / cost).next_multiple_of(c),
    };
    try_chunks_mut(y, size, true, |at, y| {
        let wide = widened(cpu, operands.map(|x| &x[at..at + y.len()]))?;
        write_upcast_to::<T>(cpu, y, |y| {
            lanes::<A, _>(
                #[inline(always)]
                || f(std::array::from_fn(|i| wide[i].slice()), y),
            );
            Ok(())
        })
    })
}

/// Normalises by the batch, after `look(mean, m2)` has seen the mean of each channel and the sum of its squared deviations from it.
pub(super) fn forward<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    x: &[T],
    affine: Affine<'_, A>,
    y: &mut [T],
    mean: &mut [A],
    rstd: &mut [A],
    look: impl FnOnce(&[A], &[A]),
) -> Result<()> {
    let (rows, c, step) = (p.positions as usize, p.groups as usize, chunk_rows(p.groups as usize));
    let mut partial = cpu.scratch(A::DTYPE, rows.div_ceil(step) * 2 * c)?;
    let partial = partial.as_mut_slice::<A>();
    partials(
        cpu,
        p,
        [x],
        partial,
        #[inline(always)]
        |[x]: [&[A]; 1], out: &mut [A]| {
            let (mean, m2) = out.split_at_mut(c);
            moments(x, c, mean, m2);
        },
    )?;
    let (first, rest) = partial.split_at(2 * c);
    mean.copy_from_slice(&first[..c]);
    rstd.copy_from_slice(&first[c..]);
    for (i, part) in rest.chunks_exact(2 * c).enumerate() {
        let done = (i + 1) * step;
        let (count, n) = (A::of(done as f64), A::of((rows - done).min(step) as f64));
        let (means, m2s) = part.split_at(c);
        for ((mean, m2), (&mean_b, &m2_b)) in mean.iter_mut().zip(&mut *rstd).zip(means.iter().zip(m2s)) {
            combine(count, (mean, m2), n, (mean_b, m2_b));
        }
    }
    look(mean, rstd);
    let (rows, eps) = (A::of(p.positions as f64), A::of(p.eps));
    for rstd in &mut *rstd {
        *rstd = A::ONE / (*rstd / rows + eps).sqrt();
    }
    normalise(cpu, c, x, affine, mean, rstd, y)
}

/// Moves running means and variances towards the mean and the unbiased variance of a batch.
pub(super) fn move_running<A: Real>(
    p: &BatchNormTrainParams,
    (mean, m2): (&[A], &[A]),
    (running_mean, running_var): (&mut [A], &mut [A]),
) {
    let (keep, rate, n) = (A::of(1.0 - p.momentum), A::of(p.momentum), A::of((p.rows - 1) as f64));
    for (running, &mean) in running_mean.iter_mut().zip(mean) {
        *running = keep * *running + rate * mean;
    }
    for (running, &m2) in running_var.iter_mut().zip(m2) {
        *running = keep * *running + rate * (m2 / n);
    }
}

/// Computes the mean of each column of `x`, and the sum of squared deviations from it.
#[inline(always)]
fn moments<A: Real>(x: &[A], c: usize, mean: &mut [A], m2: &mut [A]) {
    let rows = x.len() / c;
    let n = A::of(rows as f64);
    for tile in Tile::cover(c, 0..c, rows) {
        let mut lanes = Lanes::filled(A::ZERO);
        tile.rows(
            0,
            rows,
            #[inline(always)]
            |at| {
                for (a, &x) in lanes.iter_mut().zip(&x[at]) {
                    *a += x;
                }
            },
        );
        let sums = tile.join(&mut lanes, |a, b| a + b);
        for (mean, &sum) in mean[tile.columns.clone()].iter_mut().zip(sums) {
            *mean = sum / n;
        }
        let centre = tile.spread(mean);
        let mut lanes = Lanes::filled(A::ZERO);
        tile.rows(
            0,
            rows,
            #[inline(always)]
            |at| {
                for ((a, &x), &centre) in lanes.iter_mut().zip(&x[at]).zip(centre.iter()) {
                    let d = x - centre;
                    *a += d * d;
                }
            },
        );
        m2[tile.columns.clone()].copy_from_slice(tile.join(&mut lanes, |a, b| a + b));
    }
}

/// `y = (x − mean)·rstd·scale + shift` for each column.
fn normalise<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    c: usize,
    x: &[T],
    (scale, shift): Affine<'_, A>,
    mean: &[A],
    rstd: &[A],
    y: &mut [T],
) -> Result<()> {
    let mut factors = cpu.scratch(A::DTYPE, 2 * c)?;
    let (a, b) = factors.as_mut_slice::<A>().split_at_mut(c);
    for i in 0..c {
        (a[i], b[i]) = (rstd[i] * scale[i], shift[i]);
    }
    let (a, b) = (&*a, &*b);
    map_rows(
        cpu,
        (c, 1),
        [x],
        y,
        #[inline(always)]
        |[x]: [&[A]; 1], y: &mut [A]| {
            for tile in Tile::cover(c, 0..c, y.len() / c) {
                let (mean, a, b) = (tile.spread(mean), tile.spread(a), tile.spread(b));
                tile.rows(
                    0,
                    y.len() / c,
                    #[inline(always)]
                    |at| {
                        let x = &x[at.clone()];
                        for ((y, &x), ((&mean, &a), &b)) in
                            y[at].iter_mut().zip(x).zip(mean.iter().zip(a.iter()).zip(b.iter()))
                        {
                            *y = (x - mean) * a + b;
                        }
                    },
                );
            }
        },
    )
}

pub(super) fn eval<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &BatchNormParams,
    x: &[T],
    affine: Affine<'_, A>,
    (mean, var): (&[A], &[A]),
    y: &mut [T],
) -> Result<()> {
    let mut rstd = cpu.scratch(A::DTYPE, var.len())?;
    let rstd = rstd.as_mut_slice::<A>();
    for (rstd, &var) in rstd.iter_mut().zip(var) {
        *rstd = A::ONE / (var + A::of(p.eps)).sqrt();
    }
    normalise(cpu, p.channels as usize, x, affine, mean, rstd, y)
}

pub(super) fn grad<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, g): (&[T], &[T]),
    scale: &[A],
    (mean, rstd): (&[A], &[A]),
    dx: &mut [T],
    dscale: &mut [A],
    dshift: &mut [A],
) -> Result<()> {
    let (rows, c) = (p.positions as usize, p.groups as usize);
    let mut partial = cpu.scratch(A::DTYPE, rows.div_ceil(chunk_rows(c)) * 2 * c)?;
    let partial = partial.as_mut_slice::<A>();
    partials(
        cpu,
        p,
        [x, g],
        partial,
        #[inline(always)]
        |[x, g]: [&[A]; 2], out: &mut [A]| {
            let (sum, dot) = out.split_at_mut(c);
            for tile in Tile::cover(c, 0..c, x.len() / c) {
                let (mut s, mut d) = (Lanes::filled(A::ZERO), Lanes::filled(A::ZERO));
                let centre = tile.spread(mean);
                tile.rows(
                    0,
                    x.len() / c,
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
    )?;
    let (total, rest) = partial.split_at_mut(2 * c);
    for part in rest.chunks_exact(2 * c) {
        for (a, &b) in total.iter_mut().zip(part) {
            *a += b;
        }
    }
    let n = A::of(p.positions as f64);
    let mut factors = cpu.scratch(A::DTYPE, 3 * c)?;
    let (a, rest) = factors.as_mut_slice::<A>().split_at_mut(c);
    let (shift, slope) = rest.split_at_mut(c);
    for i in 0..c {
        let (sum, dot) = (total[i], total[c + i] * rstd[i]);
        dshift[i] = sum;
        dscale[i] = dot;
        a[i] = rstd[i] * scale[i];
        shift[i] = sum / n;
        slope[i] = rstd[i] * dot / n;
    }
    let (a, shift, slope) = (&*a, &*shift, &*slope);
    map_rows(
        cpu,
        (c, 2),
        [x, g],
        dx,
        #[inline(always)]
        |[x, g]: [&[A]; 2], dx: &mut [A]| {
            for tile in Tile::cover(c, 0..c, dx.len() / c) {
                let (a, mean) = (tile.spread(a), tile.spread(mean));
                let (shift, slope) = (tile.spread(shift), tile.spread(slope));
                tile.rows(
                    0,
                    dx.len() / c,
                    #[inline(always)]
                    |at| {
                        let (x, g, dx) = (&x[at.clone()], &g[at.clone()], &mut dx[at]);
                        let n = dx.len();
                        let (a, mean, shift, slope) = (&a[..n], &mean[..n], &shift[..n], &slope[..n]);
                        for i in 0..n {
                            let centred = x[i] - mean[i];
                            dx[i] = a[i] * (g[i] - shift[i] - centred * slope[i]);
                        }
                    },
                );
            }
        },
    )
}
