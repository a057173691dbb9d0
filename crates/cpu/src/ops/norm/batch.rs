//! Batch norm of `[rows, channels]`: a group norm of one sample, whose groups are the channels. Halves are widened, and rounded, a chunk of
//! rows at a time, which stays in cache.

mod grad;

pub(super) use grad::{ResultGrad, data_grad, grad, grad_sums};

use super::combine::combine;
use crate::Cpu;
use crate::parallel::{GRAIN, THREADS, try_chunks_mut};
use crate::scalar::Stored;
use crate::simd::column_tile::{Lanes, Tile};
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::upcast::{Upcast, update_upcast_to, write_upcast_to};
use kiln_core::Result;
use kiln_core::ops::{BatchNormParams, BatchNormTrainParams, GroupNormParams};

/// The operations that follow a batch norm in its op: a residual that is added, and a ReLU.
pub(super) struct Behind<'a, T> {
    pub(super) residual: Option<&'a [T]>,
    pub(super) relu: bool,
}

impl<T> Behind<'_, T> {
    pub(super) const NOTHING: Self = Behind {
        residual: None,
        relu: false,
    };
}

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

/// The number of elements in a chunk of rows of `c` elements, of `n` in all.
fn rows_size((c, cost): (usize, usize), n: usize) -> usize {
    match n <= THREADS / cost {
        true => n,
        false => (THREADS / 2 / cost).next_multiple_of(c),
    }
}

/// Computes `y` in chunks of rows of `c` elements by `f(operands of the chunk, y)`; the work of an element is `cost`.
fn map_rows<T: Stored<Acc = A>, A: Real, const N: usize>(
    cpu: &Cpu,
    of: (usize, usize),
    operands: [&[T]; N],
    y: &mut [T],
    f: impl Fn([&[A]; N], &mut [A]) + Sync,
) -> Result<()> {
    try_chunks_mut(y, rows_size(of, y.len()), true, |at, y| {
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

/// As [`map_rows`] of one operand, of a `y` whose values `f` reads.
fn update_rows<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    of: (usize, usize),
    x: &[T],
    y: &mut [T],
    f: impl Fn(&[A], &mut [A]) + Sync,
) -> Result<()> {
    try_chunks_mut(y, rows_size(of, y.len()), true, |at, y| {
        let [x] = widened(cpu, [&x[at..at + y.len()]])?;
        update_upcast_to::<T>(cpu, y, |y| {
            lanes::<A, _>(
                #[inline(always)]
                || f(x.slice(), y),
            );
            Ok(())
        })
    })
}

/// Computes the mean of each channel, and the sum of squared deviations from it.
pub(super) fn moments_of<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    x: &[T],
    mean: &mut [A],
    m2: &mut [A],
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
    m2.copy_from_slice(&first[c..]);
    for (i, part) in rest.chunks_exact(2 * c).enumerate() {
        let done = (i + 1) * step;
        let (count, n) = (A::of(done as f64), A::of((rows - done).min(step) as f64));
        let (means, m2s) = part.split_at(c);
        for ((mean, m2), (&mean_b, &m2_b)) in mean.iter_mut().zip(&mut *m2).zip(means.iter().zip(m2s)) {
            combine(count, (mean, m2), n, (mean_b, m2_b));
        }
    }
    Ok(())
}

/// Normalises by the batch, whose moments may be given, after `look(mean, m2)` has seen the mean of each channel and the sum of its squared deviations from it.
pub(super) fn forward<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, given): (&[T], Option<&[A]>),
    (affine, behind): (Affine<'_, A>, Behind<'_, T>),
    y: &mut [T],
    mean: &mut [A],
    rstd: &mut [A],
    look: impl FnOnce(&[A], &[A]),
) -> Result<()> {
    let c = p.groups as usize;
    match given {
        Some(moments) => {
            mean.copy_from_slice(&moments[..c]);
            rstd.copy_from_slice(&moments[c..]);
        }
        None => moments_of(cpu, p, x, mean, rstd)?,
    }
    look(mean, rstd);
    let (rows, eps) = (A::of(p.positions as f64), A::of(p.eps));
    for rstd in &mut *rstd {
        *rstd = A::ONE / (*rstd / rows + eps).sqrt();
    }
    normalise(cpu, c, x, (affine, behind), mean, rstd, y)
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

/// `y = (x − mean)·rstd·scale + shift` for each column, and what is behind.
pub(super) fn normalise<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    c: usize,
    x: &[T],
    ((scale, shift), behind): (Affine<'_, A>, Behind<'_, T>),
    mean: &[A],
    rstd: &[A],
    y: &mut [T],
) -> Result<()> {
    let mut factors = cpu.scratch(A::DTYPE, 2 * c)?;
    let (a, b) = factors.as_mut_slice::<A>().split_at_mut(c);
    for i in 0..c {
        (a[i], b[i]) = (rstd[i] * scale[i], shift[i]);
    }
    let of = [mean, &*a, &*b];
    match (behind.residual, behind.relu) {
        (None, false) => map_rows(
            cpu,
            (c, 1),
            [x],
            y,
            #[inline(always)]
            |[x]: [&[A]; 1], y: &mut [A]| tiles(of, x, None, y, |v| v),
        ),
        (None, true) => map_rows(
            cpu,
            (c, 1),
            [x],
            y,
            #[inline(always)]
            |[x]: [&[A]; 1], y: &mut [A]| tiles(of, x, None, y, positive),
        ),
        (Some(r), false) => map_rows(
            cpu,
            (c, 1),
            [x, r],
            y,
            #[inline(always)]
            |[x, r]: [&[A]; 2], y: &mut [A]| tiles(of, x, Some(r), y, |v| v),
        ),
        (Some(r), true) => map_rows(
            cpu,
            (c, 1),
            [x, r],
            y,
            #[inline(always)]
            |[x, r]: [&[A]; 2], y: &mut [A]| tiles(of, x, Some(r), y, positive),
        ),
    }
}

/// A ReLU, which lets NaN pass.
#[inline(always)]
fn positive<A: Real>(v: A) -> A {
    if v < A::ZERO { A::ZERO } else { v }
}

/// `y = f((x − mean)·a + b + residual)` for each column.
#[inline(always)]
fn tiles<A: Real>([mean, a, b]: [&[A]; 3], x: &[A], residual: Option<&[A]>, y: &mut [A], f: impl Fn(A) -> A + Copy) {
    let c = mean.len();
    for tile in Tile::cover(c, 0..c, y.len() / c) {
        let (mean, a, b) = (tile.spread(mean), tile.spread(a), tile.spread(b));
        tile.rows(
            0,
            y.len() / c,
            #[inline(always)]
            |at| {
                let (x, of) = (&x[at.clone()], mean.iter().zip(a.iter()).zip(b.iter()));
                match residual {
                    None => {
                        for ((y, &x), ((&mean, &a), &b)) in y[at].iter_mut().zip(x).zip(of) {
                            *y = f((x - mean) * a + b);
                        }
                    }
                    Some(r) => {
                        let r = &r[at.clone()];
                        for (((y, &x), &r), ((&mean, &a), &b)) in y[at].iter_mut().zip(x).zip(r).zip(of) {
                            *y = f((x - mean) * a + b + r);
                        }
                    }
                }
            },
        );
    }
}

pub(super) fn eval<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &BatchNormParams,
    x: &[T],
    behind: (Affine<'_, A>, Behind<'_, T>),
    (mean, var): (&[A], &[A]),
    y: &mut [T],
) -> Result<()> {
    let mut rstd = cpu.scratch(A::DTYPE, var.len())?;
    let rstd = rstd.as_mut_slice::<A>();
    for (rstd, &var) in rstd.iter_mut().zip(var) {
        *rstd = A::ONE / (var + A::of(p.eps)).sqrt();
    }
    normalise(cpu, p.channels as usize, x, behind, mean, rstd, y)
}
