//! Pooling with 2×2 windows of stride 2, which halves the size in most networks. A row of windows covers two rows of
//! the input, every input belongs to one window, and the four taps of a window are read or written together.

use crate::conv::geometry::Geometry;
use crate::parallel::{rows_per_chunk, zip2_mut};
use crate::simd::lanes::lanes;
use crate::simd::real::{Real, max_with_index};

/// True if `g` has 2×2 windows of stride 2, without padding, dilation and depth.
pub(in crate::ops) fn is_2x2_stride2(g: &Geometry) -> bool {
    g.kernel == [1, 2, 2]
        && g.stride[1..] == [2, 2]
        && g.padding == [0; 3]
        && g.dilation[1..] == [1, 1]
        && g.input[0] == 1
        && g.output[0] == 1
        && (1..3).all(|i| 2 * g.output[i] <= g.input[i])
}

/// The four taps of window `w`: `c` channels each, from two rows of the input.
#[inline(always)]
fn taps<A>(rows: [&[A]; 2], w: usize, c: usize) -> [&[A]; 4] {
    let at = 2 * w * c;
    let (left, right) = (at..at + c, at + c..at + 2 * c);
    let [top, bottom] = rows;
    [&top[left.clone()], &top[right.clone()], &bottom[left], &bottom[right]]
}

/// As [`taps`], for writing.
#[inline(always)]
fn taps_mut<'a, A>(top: &'a mut [A], bottom: &'a mut [A], w: usize, c: usize) -> [&'a mut [A]; 4] {
    let at = 2 * w * c;
    let (a, b) = top[at..at + 2 * c].split_at_mut(c);
    let (d, e) = bottom[at..at + 2 * c].split_at_mut(c);
    [a, b, d, e]
}

/// The two rows of the input under row `r` of windows, counted over all images.
#[inline(always)]
fn rows_under<'a, A>(g: &Geometry, x: &'a [A], r: usize) -> [&'a [A]; 2] {
    let line = g.input[2] * g.channels;
    let from = (r / g.output[1] * g.input[1] + r % g.output[1] * 2) * line;
    [&x[from..from + line], &x[from + line..from + 2 * line]]
}

/// The indices, within their image, of the four taps of window `w` of row `r`.
#[inline(always)]
fn places(g: &Geometry, r: usize, w: usize) -> [i32; 4] {
    let line = g.input[2] as i32;
    let first = (r % g.output[1] * 2) as i32 * line + (2 * w) as i32;
    [first, first + 1, first + line, first + line + 1]
}

/// The number of lanes for a window of few channels; 0 if the channels fill whole vectors. The lanes beyond the channels
/// hold elements of the next window, which overwrites their results.
fn few(channels: usize) -> usize {
    match channels {
        1..=4 => 4,
        5..=8 => 8,
        9..=16 => 16,
        _ => 0,
    }
}

/// The `L` elements from `at` on.
#[inline(always)]
fn take<A: Copy + Default, const L: usize>(x: &[A], at: usize) -> [A; L] {
    let mut lanes = [A::default(); L];
    lanes.copy_from_slice(&x[at..at + L]);
    lanes
}

pub(super) fn max_pool<A: Real>(g: &Geometry, x: &[A], y: &mut [A], index: &mut [i32]) {
    match few(g.channels) {
        4 => max_pool_few::<A, 4>(g, x, y, index),
        8 => max_pool_few::<A, 8>(g, x, y, index),
        16 => max_pool_few::<A, 16>(g, x, y, index),
        _ => max_pool_many(g, x, y, index),
    }
}

/// [`max_pool`] of at most `L` channels.
fn max_pool_few<A: Real, const L: usize>(g: &Geometry, x: &[A], y: &mut [A], index: &mut [i32]) {
    let (c, line) = (g.channels, g.input[2] * g.channels);
    let width = g.output[2] * c;
    let rows = rows_per_chunk(g.batch * g.output[1], width, 4);
    zip2_mut((y, rows * width), (index, rows * width), |chunk, y, index| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let end = y.len();
                for (row, r) in (0..end).step_by(width).zip(chunk * rows..) {
                    let from = (r / g.output[1] * g.input[1] + r % g.output[1] * 2) * line;
                    for w in 0..g.output[2] {
                        let (to, first, places) = (row + w * c, from + 2 * w * c, places(g, r, w));
                        let at = [first, first + c, first + line, first + line + c];
                        if to + L <= end && at[3] + L <= x.len() {
                            let (best, place) = largest_of::<A, L>(x, at, places);
                            y[to..to + L].copy_from_slice(&best);
                            index[to..to + L].copy_from_slice(&place);
                        } else {
                            let [a, b, d, e] = at;
                            let taps = [&x[a..a + c], &x[b..b + c], &x[d..d + c], &x[e..e + c]];
                            largest(taps, places, &mut y[to..to + c], &mut index[to..to + c]);
                        }
                    }
                }
            },
        );
    });
}

/// As [`largest`], for the taps at `at` in `L` lanes. (An array's `map` is not always inlined, so nothing here uses it.)
#[inline(always)]
fn largest_of<A: Real, const L: usize>(x: &[A], at: [usize; 4], places: [i32; 4]) -> ([A; L], [i32; L]) {
    let first = (take(x, at[0]), [places[0]; L]);
    let second = max_with_index(first, take(x, at[1]), places[1]);
    let third = max_with_index(second, take(x, at[2]), places[2]);
    max_with_index(third, take(x, at[3]), places[3])
}

fn max_pool_many<A: Real>(g: &Geometry, x: &[A], y: &mut [A], index: &mut [i32]) {
    let c = g.channels;
    let width = g.output[2] * c;
    let rows = rows_per_chunk(g.batch * g.output[1], width, 4);
    zip2_mut((y, rows * width), (index, rows * width), |chunk, y, index| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let outputs = y.chunks_exact_mut(width).zip(index.chunks_exact_mut(width));
                for (r, (y, index)) in (chunk * rows..).zip(outputs) {
                    let under = rows_under(g, x, r);
                    let windows = y.chunks_exact_mut(c).zip(index.chunks_exact_mut(c));
                    for (w, (y, index)) in windows.enumerate() {
                        largest(taps(under, w, c), places(g, r, w), y, index);
                    }
                }
            },
        );
    });
}

/// Computes the largest of four taps and its index; a NaN is the largest, and of equal taps the first is chosen.
#[inline(always)]
fn largest<A: Real>(x: [&[A]; 4], places: [i32; 4], y: &mut [A], index: &mut [i32]) {
    let outputs = y.iter_mut().zip(index);
    let taps = x[0].iter().zip(x[1]).zip(x[2].iter().zip(x[3]));
    for ((y, index), ((&a, &b), (&c, &d))) in outputs.zip(taps) {
        let (mut best, mut place) = (a, places[0]);
        for (x, at) in [(b, places[1]), (c, places[2]), (d, places[3])] {
            let wins = (x > best) | (x.is_nan() & !best.is_nan());
            best = if wins { x } else { best };
            place = if wins { at } else { place };
        }
        (*y, *index) = (best, place);
    }
}

/// Calls `f(row of windows, upper row of the input, lower row)` for all rows of windows; uncovered elements become zero.
fn each_row<A: Real>(g: &Geometry, dx: &mut [A], f: impl Fn(usize, &mut [A], &mut [A]) + Sync) {
    let line = g.input[2] * g.channels;
    let (image, covered) = (g.input[1] * line, 2 * g.output[2] * g.channels);
    let images = rows_per_chunk(g.batch, image, 2);
    crate::parallel::items_mut(dx, images * image, dx.len().saturating_mul(2), |chunk, dx| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (i, dx) in dx.chunks_exact_mut(image).enumerate() {
                    let (windows, rest) = dx.split_at_mut(2 * g.output[1] * line);
                    rest.fill(A::ZERO);
                    let first = (chunk * images + i) * g.output[1];
                    for (r, rows) in (first..).zip(windows.chunks_exact_mut(2 * line)) {
                        let (top, bottom) = rows.split_at_mut(line);
                        f(r, top, bottom);
                        top[covered..].fill(A::ZERO);
                        bottom[covered..].fill(A::ZERO);
                    }
                }
            },
        );
    });
}

pub(super) fn max_pool_grad<A: Real>(p: &Geometry, g: &[A], index: &[i32], dx: &mut [A]) {
    match few(p.channels) {
        4 => max_pool_grad_few::<A, 4>(p, g, index, dx),
        8 => max_pool_grad_few::<A, 8>(p, g, index, dx),
        16 => max_pool_grad_few::<A, 16>(p, g, index, dx),
        _ => max_pool_grad_many(p, g, index, dx),
    }
}

/// [`max_pool_grad`] of at most `L` channels.
fn max_pool_grad_few<A: Real, const L: usize>(p: &Geometry, g: &[A], index: &[i32], dx: &mut [A]) {
    let c = p.channels;
    let width = p.output[2] * c;
    each_row(
        p,
        dx,
        #[inline(always)]
        |r, top, bottom| {
            for w in 0..p.output[2] {
                let (from, at, places) = (r * width + w * c, 2 * w * c, places(p, r, w));
                if from + L <= g.len() && at + c + L <= top.len() {
                    let (g, index) = (take::<A, L>(g, from), take::<i32, L>(index, from));
                    place_lanes(&g, &index, places[0], &mut top[at..]);
                    place_lanes(&g, &index, places[1], &mut top[at + c..]);
                    place_lanes(&g, &index, places[2], &mut bottom[at..]);
                    place_lanes(&g, &index, places[3], &mut bottom[at + c..]);
                } else {
                    place_window(
                        (&g[from..from + c], &index[from..from + c]),
                        places,
                        taps_mut(top, bottom, w, c),
                    );
                }
            }
        },
    );
}

/// Writes `g` where `index` equals `place`, zero elsewhere.
#[inline(always)]
fn place_lanes<A: Real, const L: usize>(g: &[A; L], index: &[i32; L], place: i32, dx: &mut [A]) {
    let mut lanes = [A::ZERO; L];
    for i in 0..L {
        lanes[i] = if index[i] == place { g[i] } else { A::ZERO };
    }
    dx[..L].copy_from_slice(&lanes);
}

/// Writes the gradients of the four taps of a window.
#[inline(always)]
fn place_window<A: Real>((g, index): (&[A], &[i32]), places: [i32; 4], taps: [&mut [A]; 4]) {
    for (dx, place) in taps.into_iter().zip(places) {
        for (dx, (&g, &i)) in dx.iter_mut().zip(g.iter().zip(index)) {
            *dx = if i == place { g } else { A::ZERO };
        }
    }
}

fn max_pool_grad_many<A: Real>(p: &Geometry, g: &[A], index: &[i32], dx: &mut [A]) {
    let c = p.channels;
    let width = p.output[2] * c;
    each_row(
        p,
        dx,
        #[inline(always)]
        |r, top, bottom| {
            let windows = g[r * width..][..width].chunks_exact(c);
            let windows = windows.zip(index[r * width..][..width].chunks_exact(c));
            for (w, window) in windows.enumerate() {
                place_window(window, places(p, r, w), taps_mut(top, bottom, w, c));
            }
        },
    );
}

pub(super) fn average<A: Real>(g: &Geometry, x: &[A], y: &mut [A]) {
    let c = g.channels;
    let width = g.output[2] * c;
    crate::parallel::chunks_mut(y, width, 4, |first, y| {
        lanes::<A, _>(
            #[inline(always)]
            || {
                for (r, y) in (first / width..).zip(y.chunks_exact_mut(width)) {
                    let under = rows_under(g, x, r);
                    for (w, y) in y.chunks_exact_mut(c).enumerate() {
                        let [a, b, d, e] = taps(under, w, c);
                        let inputs = a.iter().zip(b).zip(d.iter().zip(e));
                        for (y, ((&a, &b), (&d, &e))) in y.iter_mut().zip(inputs) {
                            *y = (a + b + d + e) * A::of(0.25);
                        }
                    }
                }
            },
        );
    });
}

pub(super) fn average_grad<A: Real>(p: &Geometry, g: &[A], dx: &mut [A]) {
    let c = p.channels;
    let width = p.output[2] * c;
    each_row(
        p,
        dx,
        #[inline(always)]
        |r, top, bottom| {
            for (w, g) in g[r * width..][..width].chunks_exact(c).enumerate() {
                for dx in taps_mut(top, bottom, w, c) {
                    for (dx, &g) in dx.iter_mut().zip(g) {
                        *dx = g * A::of(0.25);
                    }
                }
            }
        },
    );
}
