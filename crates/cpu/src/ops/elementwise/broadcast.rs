//! Functions of two tensors under broadcasting.
//!
//! Operands are contiguous, and after dimensions are merged the inner stride is 1 or 0, so every output is a sequence of
//! rows in which an operand is a slice or one value. Equal shapes, a scalar operand and a row vector against rows all use
//! the same loop, with one, one and many rows.

use crate::parallel;
use crate::simd::isa::vectorized;
use crate::simd::lanes::{self as blocks, Kernel, Run, exact, map2};
use crate::simd::math::Math;
use bytemuck::{cast_slice, cast_slice_mut};
use kiln_core::ops::{Binary, BroadcastParams, Compare, Strides};
use kiln_core::{Float, MAX_RANK};

/// One operand along a row: consecutive values, or one value repeated.
#[derive(Clone, Copy)]
enum Row<'a, T> {
    Slice(&'a [T]),
    One(T),
}

fn row<T: Copy>(x: &[T], at: usize, stride: i64, len: usize) -> Row<'_, T> {
    debug_assert!(stride == 0 || stride == 1, "inner stride of a contiguous operand");
    if stride == 0 {
        Row::One(x[at])
    } else {
        Row::Slice(&x[at..at + len])
    }
}

/// Calls `f(offset in chunk, length, operand offsets)` for each row of `start .. start + len`.
fn rows<const N: usize>(
    p: &BroadcastParams,
    strides: [&Strides; N],
    start: usize,
    len: usize,
    mut f: impl FnMut(usize, usize, [usize; N]),
) {
    let rank = p.rank as usize;
    if rank == 0 {
        return f(0, len, [0; N]);
    }
    let inner = p.shape[rank - 1] as usize;
    // The index of `start`, and the start of each operand's row.
    let mut index = [0u64; MAX_RANK];
    let mut left = (start / inner) as u64;
    for d in (0..rank - 1).rev() {
        index[d] = left % p.shape[d];
        left /= p.shape[d];
    }
    let mut base = strides.map(|s| (0..rank - 1).map(|d| index[d] as i64 * s[d]).sum::<i64>());
    let mut column = start % inner;
    let mut done = 0;
    while done < len {
        let run = (inner - column).min(len - done);
        let mut at = [0; N];
        for k in 0..N {
            at[k] = (base[k] + column as i64 * strides[k][rank - 1]) as usize;
        }
        f(done, run, at);
        done += run;
        column = 0;
        for d in (0..rank - 1).rev() {
            index[d] += 1;
            for k in 0..N {
                base[k] += strides[k][d];
            }
            if index[d] < p.shape[d] {
                break;
            }
            for k in 0..N {
                base[k] -= strides[k][d] * p.shape[d] as i64;
            }
            index[d] = 0;
        }
    }
}

/// The inner stride of an operand; a rank of 0 means one element.
fn inner(p: &BroadcastParams, s: &Strides) -> i64 {
    match p.rank {
        0 => 0,
        r => s[r as usize - 1],
    }
}

/// `y = f(a, b)`.
pub(in crate::ops) fn zip<T: Copy + Sync, U: Send>(
    p: &BroadcastParams,
    a: &[T],
    b: &[T],
    y: &mut [U],
    cost: usize,
    f: impl Fn(T, T) -> U + Sync,
) {
    debug_assert_eq!(p.n as usize, y.len());
    let (sa, sb) = (inner(p, &p.a), inner(p, &p.b));
    parallel::chunks_mut(y, 1, cost, |start, y| {
        rows(p, [&p.a, &p.b], start, y.len(), |at, len, [ia, ib]| {
            let y = &mut y[at..at + len];
            match (row(a, ia, sa, len), row(b, ib, sb, len)) {
                (Row::Slice(a), Row::Slice(b)) => {
                    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                        *y = f(a, b);
                    }
                }
                (Row::Slice(a), Row::One(b)) => {
                    for (y, &a) in y.iter_mut().zip(a) {
                        *y = f(a, b);
                    }
                }
                (Row::One(a), Row::Slice(b)) => {
                    for (y, &b) in y.iter_mut().zip(b) {
                        *y = f(a, b);
                    }
                }
                (Row::One(a), Row::One(b)) => {
                    for y in y {
                        *y = f(a, b);
                    }
                }
            }
        });
    });
}

/// The number of elements in a block of operands that are not read in place.
const BLOCK: usize = 1024;

/// The layout of an operand relative to the result.
#[derive(Clone, Copy, PartialEq)]
enum Pattern {
    /// The layout of the result.
    Same,
    /// One row, or one value, repeated for all rows.
    Repeated,
    Other,
}

fn pattern(p: &BroadcastParams, strides: &Strides) -> Pattern {
    let rank = p.rank as usize;
    let mut below = 1;
    let same = (0..rank).rev().all(|d| {
        let same = strides[d] == below;
        below *= p.shape[d] as i64;
        same
    });
    match () {
        () if same => Pattern::Same,
        () if strides[..rank.saturating_sub(1)].iter().all(|&s| s == 0) => Pattern::Repeated,
        () => Pattern::Other,
    }
}

/// Writes the elements of an operand for the outputs from `start` on to `wide`, in the accumulation type.
fn gather<T: Float>(p: &BroadcastParams, strides: &Strides, x: &[T], start: usize, wide: &mut [T::Acc]) {
    let stride = inner(p, strides);
    rows(p, [strides], start, wide.len(), |at, len, [from]| {
        let wide = &mut wide[at..at + len];
        match row(x, from, stride, len) {
            Row::One(x) => wide.fill(x.to_acc()),
            Row::Slice(x) if len < 16 => wide.iter_mut().zip(x).for_each(|(y, x)| *y = x.to_acc()),
            Row::Slice(x) => blocks::to_acc(x, wide),
        }
    });
}

/// Runs `kernel` over the pairs of `a` and `b`. An operand with the layout of the result is read in place; any other is
/// copied block by block, or once per chunk if all blocks read the same elements.
pub(super) fn pairs<T: Float>(
    p: &BroadcastParams,
    a: &[T],
    b: &[T],
    y: &mut [T],
    cost: usize,
    kernel: Kernel<'_, T::Acc, 2>,
) {
    debug_assert_eq!(p.n as usize, y.len());
    if y.is_empty() {
        return;
    }
    let patterns = [pattern(p, &p.a), pattern(p, &p.b)];
    if patterns == [Pattern::Same; 2] {
        return blocks::each([a, b], y, cost, kernel);
    }
    let row = (p.rank.checked_sub(1)).map_or(1, |last| p.shape[last as usize] as usize);
    let block = if row <= BLOCK { BLOCK / row * row } else { BLOCK };
    parallel::chunks_mut(y, 1, cost, |start, y| {
        let (mut wide, mut out) = ([[T::Acc::default(); BLOCK]; 2], [T::Acc::default(); BLOCK]);
        for (i, y) in y.chunks_mut(block).enumerate() {
            let (at, n) = (start + i * block, y.len());
            for (k, (x, strides)) in [(a, &p.a), (b, &p.b)].into_iter().enumerate() {
                let wide = &mut wide[k][..n];
                match patterns[k] {
                    Pattern::Same if exact::<T>() => {}
                    Pattern::Same => blocks::to_acc(&x[at..at + n], wide),
                    // A block has whole rows, or the operand is one value, so the first block's copy serves the others.
                    Pattern::Repeated if i > 0 && (row <= BLOCK || inner(p, strides) == 0) => {}
                    _ => gather(p, strides, x, at, wide),
                }
            }
            let operands = [0, 1].map(|k| match patterns[k] {
                Pattern::Same if exact::<T>() => cast_slice(&[a, b][k][at..at + n]),
                _ => &wide[k][..n],
            });
            if exact::<T>() {
                kernel(operands, cast_slice_mut(y));
            } else {
                kernel(operands, &mut out[..n]);
                blocks::from_acc(&out[..n], y);
            }
        }
    });
}

/// Runs `y = f(a, b)`.
macro_rules! pairs {
    ($run:ident, $cost:expr, |$a:ident, $b:ident| $f:expr) => {
        $run(
            $cost,
            &map2(
                #[inline(always)]
                |$a: A, $b: A| $f,
            ),
        )
    };
}

/// `y = f(a, b)`.
pub(super) fn binary<A: Math>(p: &BroadcastParams, run: Run<'_, A, 2>) {
    match Binary::ALL[p.op as usize] {
        Binary::Add => pairs!(run, 1, |a, b| a + b),
        Binary::Sub => pairs!(run, 1, |a, b| a - b),
        Binary::Mul => pairs!(run, 1, |a, b| a * b),
        Binary::Div => pairs!(run, 2, |a, b| a / b),
        Binary::Pow => pairs!(run, 128, |a, b| a.powf(b)),
        // A NaN in `a` is kept by the test for NaN, one in `b` because the comparison fails.
        Binary::Maximum => pairs!(run, 1, |a, b| if a > b || is_nan(a) { a } else { b }),
        Binary::Minimum => pairs!(run, 1, |a, b| if a < b || is_nan(a) { a } else { b }),
        Binary::Atan2 => pairs!(run, 128, |a, b| a.atan2(b)),
        Binary::Remainder => pairs!(run, 64, |a, b| a.remainder(b)),
    }
}

// x ≠ x tests for NaN in a form that vectorises.
#[allow(clippy::eq_op)]
#[inline(always)]
fn is_nan<A: Math>(x: A) -> bool {
    x != x
}

/// `mask = a ⋈ b`.
pub(super) fn compare<T: Copy + PartialOrd + Sync>(p: &BroadcastParams, a: &[T], b: &[T], mask: &mut [u8]) {
    match Compare::ALL[p.op as usize] {
        Compare::Eq => zip(p, a, b, mask, 1, |a, b| u8::from(a == b)),
        Compare::Ne => zip(p, a, b, mask, 1, |a, b| u8::from(a != b)),
        Compare::Lt => zip(p, a, b, mask, 1, |a, b| u8::from(a < b)),
        Compare::Le => zip(p, a, b, mask, 1, |a, b| u8::from(a <= b)),
        Compare::Gt => zip(p, a, b, mask, 1, |a, b| u8::from(a > b)),
        Compare::Ge => zip(p, a, b, mask, 1, |a, b| u8::from(a >= b)),
    }
}

/// `y = mask ? a : b`.
pub(super) fn select<T: Copy + Send + Sync>(p: &BroadcastParams, mask: &[u8], a: &[T], b: &[T], y: &mut [T]) {
    debug_assert_eq!(p.n as usize, y.len());
    let strides = [inner(p, &p.mask), inner(p, &p.a), inner(p, &p.b)];
    parallel::chunks_mut(y, 1, 1, |start, y| {
        rows(p, [&p.mask, &p.a, &p.b], start, y.len(), |at, len, [im, ia, ib]| {
            let y = &mut y[at..at + len];
            let (a, b) = (row(a, ia, strides[1], len), row(b, ib, strides[2], len));
            let mask = row(mask, im, strides[0], len);
            vectorized(
                #[inline(always)]
                || match (mask, a, b) {
                    (Row::One(m), a, b) => match if m != 0 { a } else { b } {
                        Row::Slice(x) => y.copy_from_slice(x),
                        Row::One(x) => y.fill(x),
                    },
                    (Row::Slice(m), Row::Slice(a), Row::Slice(b)) => {
                        for (((y, &m), &a), &b) in y.iter_mut().zip(m).zip(a).zip(b) {
                            *y = if m != 0 { a } else { b };
                        }
                    }
                    (Row::Slice(m), Row::Slice(a), Row::One(b)) => {
                        for ((y, &m), &a) in y.iter_mut().zip(m).zip(a) {
                            *y = if m != 0 { a } else { b };
                        }
                    }
                    (Row::Slice(m), Row::One(a), Row::Slice(b)) => {
                        for ((y, &m), &b) in y.iter_mut().zip(m).zip(b) {
                            *y = if m != 0 { a } else { b };
                        }
                    }
                    (Row::Slice(m), Row::One(a), Row::One(b)) => {
                        for (y, &m) in y.iter_mut().zip(m) {
                            *y = if m != 0 { a } else { b };
                        }
                    }
                },
            );
        });
    });
}
