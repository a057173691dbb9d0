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
                for (from, to, real) in [(0, from, false), (from, to, true), (to, kw, false)] {
                    if from < to {
                        f(Run {
                            row: line + from * per,
                            len: (to - from) * per,
                            input: real.then(|| (start as isize + w0 + from as isize) as usize * channels),
                        });
                    }
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
pub(super) fn gather<A: Scalar>(g: &Geometry, group: usize, rows: Range<usize>, x: &[A], cols: &mut [A]) {
    let (depth, first) = (g.depth(), rows.start);
    positions(g.output, rows, |r, at| {
        let row = &mut cols[(r - first) * depth..][..depth];
        runs(g, group, at, |run| {
            let to = &mut row[run.row..run.row + run.len];
            match run.input {
                Some(from) => copy(to, &x[from..from + run.len]),
                None => to.fill(A::default()),
            }
        });
    });
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
    if to.len() >= 16 {
        to.copy_from_slice(from);
    } else {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = from;
        }
    }
}
