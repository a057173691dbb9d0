//! Ops along one axis that depend on its order: arg-reductions, cumulative sums, top-k.

use super::folds::{Fold, Max, Min};
use crate::Cpu;
use crate::parallel::{chunks_mut, rows_per_chunk, zip3_mut};
use crate::simd::column_tile::TILE;
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::row_reduce::{LANES, fold};
use kiln_core::ops::AxisParams;
use kiln_core::{Float, Result};
use std::cmp::Ordering;

/// True if `a` comes before `b`: the larger first (the smaller with `reverse`), and NaN as `nan_first` says.
#[inline(always)]
fn before<A: Real>(a: A, b: A, reverse: bool, nan_first: bool) -> bool {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => {
            if reverse {
                a < b
            } else {
                a > b
            }
        }
        (true, false) => nan_first,
        (false, true) => !nan_first,
        (true, true) => false,
    }
}

/// The index of the first NaN of a row or, without one, of the first largest element (smallest with `reverse`).
#[inline(always)]
fn arg_row<A: Real>(x: &[A], reverse: bool) -> usize {
    let (load, unit) = (
        #[inline(always)]
        |x| x,
        if reverse { A::INFINITY } else { A::NEG_INFINITY },
    );
    let best = match reverse {
        true => fold(x, unit, load, Min::join),
        false => fold(x, unit, load, Max::join),
    };
    let (mut at, nan) = (0, best.is_nan());
    for block in x.chunks(LANES) {
        if block
            .iter()
            .fold(false, |any, &x| any | (x == best) | (nan & x.is_nan()))
        {
            break;
        }
        at += block.len();
    }
    at + x[at..]
        .iter()
        .position(|&x| x == best || nan && x.is_nan())
        .unwrap_or(0)
}

pub(super) fn arg_reduce<A: Real>(p: &AxisParams, x: &[A], index: &mut [i32]) {
    let (n, inner, reverse) = (p.n as usize, p.inner as usize, p.reverse == 1);
    if inner == 1 {
        return chunks_mut(index, 1, 2 * n, |first, index| {
            lanes::<A, _>(
                #[inline(always)]
                || {
                    for (index, x) in index.iter_mut().zip(x[first * n..].chunks_exact(n)) {
                        *index = arg_row(x, reverse) as i32;
                    }
                },
            );
        });
    }
    chunks_mut(index, 1, n, |first, index| {
        let mut best = [A::default(); TILE];
        let mut i = 0;
        while i < index.len() {
            let (o, column) = ((first + i) / inner, (first + i) % inner);
            let width = (inner - column).min(index.len() - i).min(TILE);
            let index = &mut index[i..i + width];
            index.fill(0);
            for j in 0..n {
                let at = (o * n + j) * inner + column;
                for ((best, index), &x) in best.iter_mut().zip(&mut *index).zip(&x[at..at + width]) {
                    if j == 0 || before(x, *best, reverse, true) {
                        (*best, *index) = (x, j as i32);
                    }
                }
            }
            i += width;
        }
    });
}

pub(super) fn cumsum<T: Float>(p: &AxisParams, x: &[T], y: &mut [T])
where
    T::Acc: Real,
{
    /// The number of elements summed by themselves before they are added to the running total, to reduce rounding errors.
    const BLOCK: usize = 64;
    let (n, inner) = (p.n as usize, p.inner as usize);
    chunks_mut(y, n * inner, 4, |first, y| {
        for (o, y) in y.chunks_exact_mut(n * inner).enumerate() {
            let x = &x[first + o * n * inner..][..n * inner];
            for column in (0..inner).step_by(TILE) {
                let width = (inner - column).min(TILE);
                let (mut total, mut part) = ([T::Acc::default(); TILE], [T::Acc::default(); TILE]);
                for step in 0..n {
                    let j = if p.reverse == 1 { n - 1 - step } else { step };
                    let at = j * inner + column..j * inner + column + width;
                    let lanes = part.iter_mut().zip(&total);
                    for ((y, &x), (part, &total)) in y[at.clone()].iter_mut().zip(&x[at]).zip(lanes) {
                        *part += x.to_acc();
                        *y = T::from_acc(total + *part);
                    }
                    if step % BLOCK == BLOCK - 1 {
                        for (total, part) in total[..width].iter_mut().zip(&mut part) {
                            *total += std::mem::take(part);
                        }
                    }
                }
            }
        }
    });
}

pub(super) fn top_k<T: Float>(cpu: &Cpu, p: &AxisParams, x: &[T], values: &mut [T], index: &mut [i32]) -> Result<()>
where
    T::Acc: Real,
{
    let (outer, n, inner, k) = (p.outer as usize, p.n as usize, p.inner as usize, p.k as usize);
    if values.is_empty() {
        return Ok(());
    }
    let reverse = p.reverse == 1;
    let mut order = cpu.scratch(kiln_core::DType::I32, outer * n)?;
    let rows = rows_per_chunk(outer, n * inner, 8);
    let chunks = (
        (values, rows * k * inner),
        (index, rows * k * inner),
        (order.as_mut_slice::<i32>(), rows * n),
    );
    zip3_mut(chunks.0, chunks.1, chunks.2, |chunk, values, index, order| {
        let rows_of = values
            .chunks_exact_mut(k * inner)
            .zip(index.chunks_exact_mut(k * inner))
            .zip(order.chunks_exact_mut(n));
        for (o, ((values, index), order)) in rows_of.enumerate() {
            let x = &x[(chunk * rows + o) * n * inner..][..n * inner];
            for i in 0..inner {
                let at = |j: i32| x[j as usize * inner + i].to_acc();
                // No two entries compare equal, so unstable sorting has one result.
                let compare = |&a: &i32, &b: &i32| match (at(a), at(b)) {
                    (u, v) if before(u, v, reverse, !reverse) => Ordering::Less,
                    (u, v) if before(v, u, reverse, !reverse) => Ordering::Greater,
                    _ => a.cmp(&b),
                };
                for (j, slot) in order.iter_mut().enumerate() {
                    *slot = j as i32;
                }
                if k < n {
                    order.select_nth_unstable_by(k - 1, compare);
                }
                order[..k].sort_unstable_by(compare);
                for (j, &from) in order[..k].iter().enumerate() {
                    values[j * inner + i] = x[from as usize * inner + i];
                    index[j * inner + i] = from;
                }
            }
        }
    });
    Ok(())
}
