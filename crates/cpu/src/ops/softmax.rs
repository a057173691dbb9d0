//! Softmax and log-softmax along one axis.
//!
//! Along the last axis each row is computed by itself; along another axis the statistics of each column are computed first,
//! and then one elementwise pass.

use crate::dispatch::float;
use crate::parallel::chunks_mut;
use crate::simd::column_tile::TILE;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::{max_row, sum, sums};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Buffer, Result, checks};

/// The cost of an exponential, in multiplications.
const EXP_COST: usize = 4;

#[inline(always)]
fn softmax_row<A: Real>(log: bool, x: &[A], y: &mut [A]) {
    let m = max_row(x);
    if log {
        let s = sum(
            x,
            #[inline(always)]
            |x| (x - m).exp(),
        )
        .ln();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x - m - s;
        }
    } else {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - m).exp();
        }
        let s = sum(
            y,
            #[inline(always)]
            |y| y,
        );
        for y in y {
            *y = *y / s;
        }
    }
}

#[inline(always)]
fn softmax_grad_row<A: Real>(log: bool, y: &[A], g: &[A], dx: &mut [A]) {
    if log {
        let s = sum(
            g,
            #[inline(always)]
            |g| g,
        );
        for ((dx, &y), &g) in dx.iter_mut().zip(y).zip(g) {
            *dx = g - y.exp() * s;
        }
    } else {
        let [s] = sums(
            [g, y],
            #[inline(always)]
            |[g, y]| [g * y],
        );
        for ((dx, &y), &g) in dx.iter_mut().zip(y).zip(g) {
            *dx = y * (g - s);
        }
    }
}

/// Sets `stats[o, i]` to a fold over `j` of `[outer, n, inner]` by `step(accumulator, position, column of stats)`.
fn columns<A: Real>(p: &SoftmaxParams, start: A, stats: &mut [A], step: impl Fn(A, usize, usize) -> A + Sync) {
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(stats, 1, n * EXP_COST, |first, stats| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let mut i = 0;
                while i < stats.len() {
                    let (o, column) = ((first + i) / inner, (first + i) % inner);
                    let width = (inner - column).min(stats.len() - i).min(TILE);
                    let lanes = &mut stats[i..i + width];
                    lanes.fill(start);
                    for j in 0..n {
                        let at = (o * n + j) * inner + column;
                        for (lane, a) in lanes.iter_mut().enumerate() {
                            *a = step(*a, at + lane, first + i + lane);
                        }
                    }
                    i += width;
                }
            },
        );
    });
}

/// Sets `y[o, j, i] = f(position, column of the statistics)`.
fn spread<A: Real>(p: &SoftmaxParams, y: &mut [A], f: impl Fn(usize, usize) -> A + Sync) {
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(y, inner, EXP_COST, |first, y| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (r, y) in (first / inner..).zip(y.chunks_exact_mut(inner)) {
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = f(r * inner + i, r / n * inner + i);
                    }
                }
            },
        );
    });
}

fn softmax<A: Real>(cpu: &Cpu, p: &SoftmaxParams, x: &[A], y: &mut [A]) -> Result<()> {
    let (n, log) = (p.n as usize, p.log == 1);
    if p.inner == 1 {
        chunks_mut(y, n, 2 * EXP_COST, |first, y| {
            lanes::<A, _>(
                #[inline(always)]
                || {
                    for (y, x) in y.chunks_exact_mut(n).zip(x[first..].chunks_exact(n)) {
                        softmax_row(log, x, y);
                    }
                },
            );
        });
        return Ok(());
    }
    let columns_of = (p.outer * p.inner) as usize;
    let mut m = cpu.scratch(A::DTYPE, columns_of)?;
    let m = m.as_mut_slice::<A>();
    columns(
        p,
        A::NEG_INFINITY,
        m,
        #[inline(always)]
        |a, at, _| {
            let x = x[at];
            if x > a || x.is_nan() { x } else { a }
        },
    );
    let m = &*m;
    let mut s = cpu.scratch(A::DTYPE, columns_of)?;
    let s = s.as_mut_slice::<A>();
    columns(
        p,
        A::ZERO,
        s,
        #[inline(always)]
        |a, at, c| a + (x[at] - m[c]).exp(),
    );
    if log {
        s.iter_mut().for_each(|s| *s = s.ln());
        let s = &*s;
        spread(
            p,
            y,
            #[inline(always)]
            |at, c| x[at] - m[c] - s[c],
        );
    } else {
        let s = &*s;
        spread(
            p,
            y,
            #[inline(always)]
            |at, c| (x[at] - m[c]).exp() / s[c],
        );
    }
    Ok(())
}

fn softmax_grad<A: Real>(cpu: &Cpu, p: &SoftmaxParams, y: &[A], g: &[A], dx: &mut [A]) -> Result<()> {
    let (n, log) = (p.n as usize, p.log == 1);
    if p.inner == 1 {
        chunks_mut(dx, n, if log { EXP_COST } else { 2 }, |first, dx| {
            lanes::<A, _>(
                #[inline(always)]
                || {
                    let rows = y[first..].chunks_exact(n).zip(g[first..].chunks_exact(n));
                    for (dx, (y, g)) in dx.chunks_exact_mut(n).zip(rows) {
                        softmax_grad_row(log, y, g, dx);
                    }
                },
            );
        });
        return Ok(());
    }
    let mut s = cpu.scratch(A::DTYPE, (p.outer * p.inner) as usize)?;
    let s = s.as_mut_slice::<A>();
    if log {
        columns(
            p,
            A::ZERO,
            s,
            #[inline(always)]
            |a, at, _| a + g[at],
        );
        let s = &*s;
        spread(
            p,
            dx,
            #[inline(always)]
            |at, c| g[at] - y[at].exp() * s[c],
        );
    } else {
        columns(
            p,
            A::ZERO,
            s,
            #[inline(always)]
            |a, at, _| a + g[at] * y[at],
        );
        let s = &*s;
        spread(
            p,
            dx,
            #[inline(always)]
            |at, c| y[at] * (g[at] - s[c]),
        );
    }
    Ok(())
}

impl SoftmaxOps for Cpu {
    fn softmax(&self, p: &SoftmaxParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::softmax(self, p, x, y)?;
        debug_assert_eq!(x.len(), y.len());
        if y.is_empty() {
            return Ok(());
        }
        float!(x.dtype(), T => {
            let x = Upcast::new::<T>(self, x)?;
            write_upcast::<T>(self, y, |y| softmax(self, p, x.slice(), y))
        })
    }

    fn softmax_grad(&self, p: &SoftmaxParams, y: &CpuBuffer, g: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::softmax_grad(self, p, y, g, dx)?;
        debug_assert_eq!((y.len(), g.len()), (dx.len(), dx.len()));
        if dx.is_empty() {
            return Ok(());
        }
        float!(y.dtype(), T => {
            let (y, g) = (Upcast::new::<T>(self, y)?, Upcast::new::<T>(self, g)?);
            write_upcast::<T>(self, dx, |dx| softmax_grad(self, p, y.slice(), g.slice(), dx))
        })
    }
}
