//! Rows of the matrix that turns a convolution into a product (im2col), and their way back (col2im).
//!
//! The row of an output position holds, tap by tap, the input channels of one group that its window covers; taps over
//! the border are zero. Channels-last makes each tap, and with one group and no dilation each line of taps, one run.

use super::geometry::{Geometry, positions};
use crate::scalar::Scalar;
use std::ops::Range;

/// A run of a gathered row: where it lies in the row, its length, and where it lies in the input.
struct Run {
    row: usize,
    len: usize,
    /// `None` for padding.
    input: Option<usize>,
}

/// Calls `f` for the runs of the row of output position `[image, d, h, w]`, in order and covering the whole row.
#[inline(always)]
fn runs(g: &Geometry, group: usize, [image, d, h, w]: [usize; 4], mut f: impl FnMut(Run)) {
    let (per, channels) = (g.group_in(), g.channels);
    let [kd, kh, kw] = g.kernel;
    let (d0, h0, w0) = (g.first(0, d), g.first(1, h), g.first(2, w));
    // Taps w0..w0 + kw cut to the input, when a line of taps is one run.
    let inside = (per == channels && g.dilation[2] == 1).then(|| {
        let from = ((-w0).max(0) as usize).min(kw);
        let to = ((g.input[2] as isize - w0).max(0) as usize).clamp(from, kw);
        (from, to)
    });
    let mut row = 0;
    for i in 0..kd {
        let Some(id) = g.tap(0, d0, i) else {
            f(Run {
                row,
                len: kh * kw * per,
                input: None,
            });
            row += kh * kw * per;
            continue;
        };
        for j in 0..kh {
            let line = row;
            row += kw * per;
            let Some(ih) = g.tap(1, h0, j) else {
                f(Run {
                    row: line,
                    len: kw * per,
                    input: None,
                });
                continue;
            };
            let start = ((image * g.input[0] + id) * g.input[1] + ih) * g.input[2];
            if let Some((from, to)) = inside {
                if from > 0 {
                    f(Run {
                        row: line,
                        len: from * per,
                        input: None,
                    });
                }
                if from < to {
                    f(Run {
                        row: line + from * per,
                        len: (to - from) * per,
                        input: Some((start as isize + w0 + from as isize) as usize * channels),
                    });
                }
                if to < kw {
                    f(Run {
                        row: line + to * per,
                        len: (kw - to) * per,
                        input: None,
                    });
                }
                continue;
            }
            for k in 0..kw {
                let input = g.tap(2, w0, k).map(|iw| (start + iw) * channels + group * per);
                f(Run {
                    row: line + k * per,
                    len: per,
                    input,
                });
            }
        }
    }
}

/// Fills `cols` with the rows `rows` (output positions over all images) of one group.
///
/// Works on stretches of output positions along the last dimension, one line of taps at a time: what depends on the
/// other dimensions is then worked out once per line, which matters for images with few channels.
pub(super) fn gather<A: Scalar>(g: &Geometry, group: usize, rows: Range<usize>, x: &[A], cols: &mut [A]) {
    let (depth, per, channels) = (g.depth(), g.group_in(), g.channels);
    let [kd, kh, kw] = g.kernel;
    let [od, oh, ow] = g.output;
    let (line, width) = (kw * per, g.input[2]);
    let one_run = per == channels && g.dilation[2] == 1;
    let mut at = rows.start;
    while at < rows.end {
        let from = at % ow;
        let count = (ow - from).min(rows.end - at);
        let (image, d, h) = (at / ow / oh / od, at / ow / oh % od, at / ow % oh);
        let block = &mut cols[(at - rows.start) * depth..][..count * depth];
        for (slot, (i, j)) in (0..kd).flat_map(|i| (0..kh).map(move |j| (i, j))).enumerate() {
            let slot = slot * line..(slot + 1) * line;
            let (Some(id), Some(ih)) = (g.tap(0, g.first(0, d), i), g.tap(1, g.first(1, h), j)) else {
                block
                    .chunks_exact_mut(depth)
                    .for_each(|row| row[slot.clone()].fill(A::default()));
                continue;
            };
            let start = ((image * g.input[0] + id) * g.input[1] + ih) * width;
            let x = &x[start * channels..(start + width) * channels];
            for (n, row) in block.chunks_exact_mut(depth).enumerate() {
                let to = &mut row[slot.clone()];
                let first = g.first(2, from + n);
                if one_run && first >= 0 && first as usize + kw <= width {
                    copy(to, &x[first as usize * channels..][..line]);
                    continue;
                }
                for (k, to) in to.chunks_exact_mut(per).enumerate() {
                    match g.tap(2, first, k) {
                        Some(iw) => copy(to, &x[iw * channels + group * per..][..per]),
                        None => to.fill(A::default()),
                    }
                }
            }
        }
        at += count;
    }
}

/// Adds each element of the rows `rows` to the input element of `dx` it was gathered from, in order.
pub(super) fn scatter<A: Scalar>(g: &Geometry, group: usize, rows: Range<usize>, cols: &[A], dx: &mut [A]) {
    let (depth, first) = (g.depth(), rows.start);
    positions(g.output, rows, |r, at| {
        let row = &cols[(r - first) * depth..][..depth];
        runs(g, group, at, |run| {
            if let Some(to) = run.input {
                let from = &row[run.row..run.row + run.len];
                for (d, &c) in dx[to..to + run.len].iter_mut().zip(from) {
                    *d += c;
                }
            }
        });
    });
}

/// `copy_from_slice` without its call for the short runs of images with few channels.
#[inline(always)]
fn copy<A: Copy>(to: &mut [A], from: &[A]) {
    #[inline(always)]
    fn fixed<A: Copy, const N: usize>(to: &mut [A], from: &[A]) {
        to[..N].copy_from_slice(&from[..N]);
    }
    match to.len() {
        1 => fixed::<A, 1>(to, from),
        2 => fixed::<A, 2>(to, from),
        3 => fixed::<A, 3>(to, from),
        4 => fixed::<A, 4>(to, from),
        5 => fixed::<A, 5>(to, from),
        6 => fixed::<A, 6>(to, from),
        9 => fixed::<A, 9>(to, from),
        15 => fixed::<A, 15>(to, from),
        _ => to.copy_from_slice(from),
    }
}
