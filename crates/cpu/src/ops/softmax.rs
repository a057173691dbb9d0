//! Softmax and log-softmax along one axis.
//!
//! Rows along the last axis are done one by one; along another axis, per-column statistics come first and one
//! elementwise pass follows.

use crate::dispatch::float;
use crate::math::Math;
use crate::parallel::chunks_mut;
use crate::real::Real;
use crate::rows::{max_row, sum_row};
use crate::tile::TILE;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Buffer, Element, Float, Result};

/// Multiplications that an exponential costs.
const EXP_COST: usize = 8;

/// Whether storage keeps every bit of the accumulator, so that `y` can hold intermediate results.
const fn exact<T: Float>() -> bool {
    size_of::<T>() == size_of::<T::Acc>()
}

fn softmax_row<T: Float>(log: bool, x: &[T], y: &mut [T])
where
    T::Acc: Real,
{
    let m = max_row(x);
    if log {
        let s = sum_row(x.len(), |i| (x[i].wide() - m).exp()).ln();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = T::narrow(x.wide() - m - s);
        }
    } else if exact::<T>() {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = T::narrow((x.wide() - m).exp());
        }
        let s = sum_row(y.len(), |i| y[i].wide());
        for y in y {
            *y = T::narrow(y.wide() / s);
        }
    } else {
        let s = sum_row(x.len(), |i| (x[i].wide() - m).exp());
        for (y, &x) in y.iter_mut().zip(x) {
            *y = T::narrow((x.wide() - m).exp() / s);
        }
    }
}

fn softmax_grad_row<T: Float>(log: bool, y: &[T], g: &[T], dx: &mut [T])
where
    T::Acc: Real,
{
    if log {
        let s = sum_row(g.len(), |i| g[i].wide());
        for ((dx, &y), &g) in dx.iter_mut().zip(y).zip(g) {
            *dx = T::narrow(g.wide() - y.wide().exp() * s);
        }
    } else {
        let s = sum_row(g.len(), |i| g[i].wide() * y[i].wide());
        for ((dx, &y), &g) in dx.iter_mut().zip(y).zip(g) {
            *dx = T::narrow(y.wide() * (g.wide() - s));
        }
    }
}

/// Fills `stats[o, i]` with a fold over `j` of `[outer, n, inner]`: `step(accumulator, position, column of stats)`.
fn columns<A: Real>(p: &SoftmaxParams, start: A, stats: &mut [A], step: impl Fn(A, usize, usize) -> A + Sync) {
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(stats, 1, n * EXP_COST, |first, stats| {
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
    });
}

/// Writes `y[o, j, i] = f(position, column of the statistics)`.
fn spread<T: Float>(p: &SoftmaxParams, y: &mut [T], f: impl Fn(usize, usize) -> T + Sync) {
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(y, inner, EXP_COST, |first, y| {
        for (r, y) in (first / inner..).zip(y.chunks_exact_mut(inner)) {
            for (i, y) in y.iter_mut().enumerate() {
                *y = f(r * inner + i, r / n * inner + i);
            }
        }
    });
}

fn softmax<T: Float>(cpu: &Cpu, p: &SoftmaxParams, x: &[T], y: &mut [T]) -> Result<()>
where
    T::Acc: Real,
{
    let (n, log) = (p.n as usize, p.log == 1);
    if p.inner == 1 {
        chunks_mut(y, n, EXP_COST, |first, y| {
            for (y, x) in y.chunks_exact_mut(n).zip(x[first..].chunks_exact(n)) {
                softmax_row(log, x, y);
            }
        });
        return Ok(());
    }
    let columns_of = (p.outer * p.inner) as usize;
    let mut m = cpu.scratch(T::Acc::DTYPE, columns_of)?;
    let m = m.as_mut_slice::<T::Acc>();
    columns(p, T::Acc::NEG_INFINITY, m, |a, at, _| {
        let x = x[at].wide();
        if x > a || x.is_nan() { x } else { a }
    });
    let m = &*m;
    let mut s = cpu.scratch(T::Acc::DTYPE, columns_of)?;
    let s = s.as_mut_slice::<T::Acc>();
    columns(p, T::Acc::default(), s, |a, at, c| a + (x[at].wide() - m[c]).exp());
    if log {
        s.iter_mut().for_each(|s| *s = s.ln());
        let s = &*s;
        spread(p, y, |at, c| T::narrow(x[at].wide() - m[c] - s[c]));
    } else {
        let s = &*s;
        spread(p, y, |at, c| T::narrow((x[at].wide() - m[c]).exp() / s[c]));
    }
    Ok(())
}

fn softmax_grad<T: Float>(cpu: &Cpu, p: &SoftmaxParams, y: &[T], g: &[T], dx: &mut [T]) -> Result<()>
where
    T::Acc: Real,
{
    let (n, log) = (p.n as usize, p.log == 1);
    if p.inner == 1 {
        chunks_mut(dx, n, if log { EXP_COST } else { 2 }, |first, dx| {
            let rows = y[first..].chunks_exact(n).zip(g[first..].chunks_exact(n));
            for (dx, (y, g)) in dx.chunks_exact_mut(n).zip(rows) {
                softmax_grad_row(log, y, g, dx);
            }
        });
        return Ok(());
    }
    let mut s = cpu.scratch(T::Acc::DTYPE, (p.outer * p.inner) as usize)?;
    let s = s.as_mut_slice::<T::Acc>();
    if log {
        columns(p, T::Acc::default(), s, |a, at, _| a + g[at].wide());
        let s = &*s;
        spread(p, dx, |at, c| T::narrow(g[at].wide() - y[at].wide().exp() * s[c]));
    } else {
        columns(p, T::Acc::default(), s, |a, at, _| a + g[at].wide() * y[at].wide());
        let s = &*s;
        spread(p, dx, |at, c| T::narrow(y[at].wide() * (g[at].wide() - s[c])));
    }
    Ok(())
}

impl SoftmaxOps for Cpu {
    fn softmax(&self, p: &SoftmaxParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!(x.len(), y.len());
        if y.is_empty() {
            return Ok(());
        }
        float!(x.dtype(), T => softmax::<T>(self, p, x.as_slice(), y.as_mut_slice()))
    }

    fn softmax_grad(&self, p: &SoftmaxParams, y: &CpuBuffer, g: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!((y.len(), g.len()), (dx.len(), dx.len()));
        if dx.is_empty() {
            return Ok(());
        }
        float!(y.dtype(), T => softmax_grad::<T>(self, p, y.as_slice(), g.as_slice(), dx.as_mut_slice()))
    }
}
