//! Strided views: rows that are contiguous on both sides are copied as a whole, transposes go tile by tile, all others
//! element by element.

use crate::fork::in_pool;
use crate::parallel::{self, THREADS};
use kiln_core::MAX_RANK;
use kiln_core::ops::ViewParams;
use rayon::prelude::*;

/// The number of rows and columns of a transposed tile; a tile of f32 touches 16 cache lines on either side.
const TILE: usize = 16;

/// The offset of row `row` of the view, counting rows of its last dimension.
fn row_offset(p: &ViewParams, row: usize) -> i64 {
    let mut left = row as u64;
    let mut at = p.offset as i64;
    for d in (0..(p.rank as usize).saturating_sub(1)).rev() {
        at += (left % p.shape[d]) as i64 * p.strides[d];
        left /= p.shape[d];
    }
    at
}

/// Calls `f(row, offset)` for rows `first .. first + count` of the view, incrementing an index in every dimension.
fn rows(p: &ViewParams, first: usize, count: usize, mut f: impl FnMut(usize, i64)) {
    let outer = (p.rank as usize).saturating_sub(1);
    let mut index = [0u64; MAX_RANK];
    let mut left = first as u64;
    for d in (0..outer).rev() {
        index[d] = left % p.shape[d];
        left /= p.shape[d];
    }
    let mut at = row_offset(p, first);
    for row in 0..count {
        f(row, at);
        for d in (0..outer).rev() {
            index[d] += 1;
            at += p.strides[d];
            if index[d] < p.shape[d] {
                break;
            }
            at -= p.strides[d] * p.shape[d] as i64;
            index[d] = 0;
        }
    }
}

/// The length and stride of the last dimension.
fn last(p: &ViewParams) -> (usize, i64) {
    match p.rank {
        0 => (1, 1),
        r => (p.shape[r as usize - 1] as usize, p.strides[r as usize - 1]),
    }
}

/// True if the last two dimensions are transposed: elements adjacent in the source are in adjacent rows of the view.
fn transposed(p: &ViewParams) -> bool {
    let r = p.rank as usize;
    r >= 2 && p.strides[r - 2] == 1 && p.strides[r - 1] > 1 && p.shape[r - 2] > 1
}

/// `y = view of x`.
pub(super) fn read<T: Copy + Send + Sync>(p: &ViewParams, x: &[T], y: &mut [T]) {
    let (len, stride) = last(p);
    if transposed(p) {
        return read_transposed(p, x, y);
    }
    if p.rank <= 1 && stride == 1 {
        // A single contiguous run can be split anywhere.
        let x = &x[p.offset as usize..];
        return parallel::chunks_mut(y, 1, 1, |at, y| y.copy_from_slice(&x[at..at + y.len()]));
    }
    parallel::chunks_mut(y, len, 1, |at, y| {
        rows(p, at / len, y.len() / len, |r, from| {
            let y = &mut y[r * len..(r + 1) * len];
            match stride {
                1 => y.copy_from_slice(&x[from as usize..from as usize + len]),
                0 => y.fill(x[from as usize]),
                _ => {
                    let mut from = from;
                    for y in y {
                        *y = x[from as usize];
                        from += stride;
                    }
                }
            }
        });
    });
}

fn read_transposed<T: Copy + Send + Sync>(p: &ViewParams, x: &[T], y: &mut [T]) {
    let r = p.rank as usize;
    let (height, len) = (p.shape[r - 2] as usize, p.shape[r - 1] as usize);
    let stride = p.strides[r - 1] as usize;
    parallel::chunks_mut(y, len * TILE, 2, |at, y| {
        let (mut row, mut y) = (at / len, y);
        while !y.is_empty() {
            // The next rows, at most `TILE`, within one matrix.
            let band = TILE.min(height - row % height).min(y.len() / len);
            let (now, rest) = std::mem::take(&mut y).split_at_mut(band * len);
            let from = row_offset(p, row) as usize;
            for left in (0..len).step_by(TILE) {
                let right = (left + TILE).min(len);
                for (i, out) in now.chunks_exact_mut(len).enumerate() {
                    for (c, out) in (left..right).zip(&mut out[left..right]) {
                        *out = x[from + i + c * stride];
                    }
                }
            }
            row += band;
            y = rest;
        }
    });
}

/// `view of y = x`.
pub(super) fn write<T: Copy + Send + Sync>(p: &ViewParams, x: &[T], y: &mut [T]) {
    if x.is_empty() {
        return;
    }
    // If the leading stride spans all inner dimensions, slices of `y` along the first dimension are disjoint.
    let r = p.rank as usize;
    let below = |s: &[i64], d: &[u64]| s.iter().zip(d).map(|(&s, &d)| s * (d as i64 - 1)).sum::<i64>();
    let apart =
        r >= 2 && p.strides[..r].iter().all(|&s| s > 0) && below(&p.strides[1..r], &p.shape[1..r]) < p.strides[0];
    if !apart || x.len() <= THREADS {
        return write_rows(p, x, y);
    }
    let outer = p.shape[0] as usize;
    let (from, step) = (x.len() / outer, p.strides[0] as usize);
    let group = (THREADS / 2).div_ceil(from).min(outer);
    let y = &mut y[p.offset as usize..];
    in_pool(|| {
        y.par_chunks_mut(step * group)
            .zip(x.par_chunks(from * group))
            .with_max_len(1)
            .for_each(|(y, x)| {
                let mut part = *p;
                part.offset = 0;
                part.shape[0] = (x.len() / from) as u64;
                part.n = x.len() as u64;
                write_rows(&part, x, y);
            });
    });
}

fn write_rows<T: Copy>(p: &ViewParams, x: &[T], y: &mut [T]) {
    let (len, stride) = last(p);
    rows(p, 0, x.len() / len, |r, to| {
        let x = &x[r * len..(r + 1) * len];
        if stride == 1 {
            y[to as usize..to as usize + len].copy_from_slice(x);
        } else {
            let mut to = to;
            for &x in x {
                y[to as usize] = x;
                to += stride;
            }
        }
    });
}
