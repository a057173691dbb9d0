//! Functions of two tensors under broadcasting.
//!
//! Operands are contiguous, and merged dimensions leave an inner stride of 1 or 0: every output is a sequence of rows
//! in which an operand is a slice or one value. Equal shapes, a scalar operand and a row vector against rows are all
//! the same loop with one, one and many rows.

use crate::math::Math;
use crate::parallel;
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

/// Walks the rows of `start .. start + len` and hands each as `f(offset in chunk, length, operand offsets)`.
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
    // Position of `start`, and where each operand's row begins.
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

fn zip<T: Copy + Sync, U: Send>(
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

/// `y = f(a, b)`.
pub(super) fn binary<T: Float<Acc = A>, A: Math>(p: &BroadcastParams, a: &[T], b: &[T], y: &mut [T]) {
    match Binary::from_code(p.op) {
        Binary::Add => zip(p, a, b, y, 1, |a, b| T::narrow(a.wide() + b.wide())),
        Binary::Sub => zip(p, a, b, y, 1, |a, b| T::narrow(a.wide() - b.wide())),
        Binary::Mul => zip(p, a, b, y, 1, |a, b| T::narrow(a.wide() * b.wide())),
        Binary::Div => zip(p, a, b, y, 2, |a, b| T::narrow(a.wide() / b.wide())),
        Binary::Pow => zip(p, a, b, y, 32, |a, b| T::narrow(a.wide().powf(b.wide()))),
        // A NaN in `a` is kept by the self-comparison, one in `b` because the comparison fails.
        Binary::Maximum => zip(p, a, b, y, 1, |a, b| {
            let (wa, wb) = (a.wide(), b.wide());
            if wa > wb || is_nan(wa) { a } else { b }
        }),
        Binary::Minimum => zip(p, a, b, y, 1, |a, b| {
            let (wa, wb) = (a.wide(), b.wide());
            if wa < wb || is_nan(wa) { a } else { b }
        }),
    }
}

#[inline(always)]
fn is_nan<A: Math>(x: A) -> bool {
    x.partial_cmp(&x).is_none()
}

/// `mask = a ⋈ b`.
pub(super) fn compare<T: Copy + PartialOrd + Sync>(p: &BroadcastParams, a: &[T], b: &[T], mask: &mut [u8]) {
    match Compare::from_code(p.op) {
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
            match (row(mask, im, strides[0], len), a, b) {
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
            }
        });
    });
}
