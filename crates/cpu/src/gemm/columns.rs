//! Products whose left operand has columns that are contiguous: transposed matrices, and the gradients of weights.

use super::Target;
use super::isa::{Height, Kernels};
use super::kernel::{ColumnTile, Segment};
use super::panels::Panels;
use crate::scalar::Scalar;

/// The left operand, stored by k: step `k` of a segment is `rows` elements from `segment.a + k·step`.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a, A> {
    pub(crate) data: &'a [A],
    pub(crate) step: usize,
}

impl<A> Left<'_, A> {
    fn from(&self, start: usize) -> Self {
        Left {
            data: &self.data[start..],
            step: self.step,
        }
    }
}

/// `C[i, j] (+)= Σ_s Σ_k A[s.a + k·a.step + i] · B[s.b + k·b.step + j]` for every element of the target, on the calling
/// thread; `add` keeps what C holds.
pub(crate) fn by_columns<A: Scalar>(
    kernels: &Kernels<A>,
    segments: &[Segment],
    a: Left<'_, A>,
    b: Left<'_, A>,
    mut c: Target<'_, A>,
    add: bool,
) {
    let (rows, columns) = (c.rows, c.columns);
    if segments.iter().all(|s| s.len == 0) {
        if !add {
            (0..rows).for_each(|i| c.slice(i).fill(A::default()));
        }
        return;
    }
    for s in segments.iter().filter(|s| s.len > 0) {
        assert!(s.a + (s.len - 1) * a.step + rows <= a.data.len(), "{s:?} of A");
        assert!(s.b + (s.len - 1) * b.step + columns <= b.data.len(), "{s:?} of B");
    }
    for from in (0..columns).step_by(kernels.panel()) {
        let width = kernels.panel().min(columns - from);
        let mut done = 0;
        while done < rows {
            let (height, start) = tile(kernels, rows, done);
            let strip = Strip {
                segments,
                a: a.from(start),
                b: b.from(from),
                ahead: (a.data[start..].as_ptr(), a.step),
            };
            run(kernels, height, &strip, &mut c, [start, done - start, from, width], add);
            done = start + height.rows;
        }
    }
}

/// As [`by_columns`] with one segment, for a B in panels: `C[i, j] = Σ A[k·a.step + i] · B[k, first + j]`. `first` is a
/// multiple of a panel's width.
pub(crate) fn by_panels<A: Scalar>(
    kernels: &Kernels<A>,
    a: Left<'_, A>,
    b: &Panels<'_, A>,
    first: usize,
    mut c: Target<'_, A>,
) {
    let (rows, columns) = (c.rows, c.columns);
    if b.units.is_empty() {
        (0..rows).for_each(|i| c.slice(i).fill(A::default()));
    }
    // With more panels than this, a tile of A is copied to lie in one piece.
    let copied = columns > 2 * kernels.panel();
    let mut packed = vec![A::default(); if copied { b.longest() * kernels.tile() } else { 0 }];
    for (u, unit) in b.units.iter().enumerate() {
        assert!(unit.taps == (0..1), "a matrix has one tap");
        let from = unit.steps.start * a.step;
        let len = unit.steps.len();
        assert!(
            len == 0 || from + (len - 1) * a.step + rows <= a.data.len(),
            "rows of A"
        );
        let mut done = 0;
        while done < rows {
            let (height, start) = tile(kernels, rows, done);
            let tile = if copied {
                gather(&a.data[from + start..], a.step, height.rows, len, &mut packed);
                Left {
                    data: &packed,
                    step: height.rows,
                }
            } else {
                Left {
                    data: &a.data[from + start..],
                    step: a.step,
                }
            };
            // The line where the next tile ends: where it begins may be one that this tile has.
            let next = (
                a.data[from + start..].as_ptr().wrapping_add(2 * height.rows - 1),
                a.step,
            );
            for j in (0..columns).step_by(kernels.panel()) {
                let width = kernels.panel().min(columns - j);
                let last_panel = j + width == columns;
                let (panel, step) = b.rows(u, first + j);
                let whole = Segment { a: 0, b: 0, len };
                let strip = Strip {
                    segments: &[whole],
                    a: tile,
                    b: Left { data: panel, step },
                    ahead: if last_panel {
                        next
                    } else {
                        (tile.data.as_ptr(), tile.step)
                    },
                };
                run(kernels, height, &strip, &mut c, [start, done - start, j, width], u > 0);
            }
            done = start + height.rows;
        }
    }
}

/// Copies `rows` elements of each of `len` steps next to one another.
fn gather<A: Scalar>(a: &[A], step: usize, rows: usize, len: usize, to: &mut [A]) {
    #[inline(always)]
    fn copy<A: Scalar>(a: &[A], step: usize, rows: usize, len: usize, to: &mut [A]) {
        for (to, a) in to.chunks_exact_mut(rows).zip(a.chunks(step)).take(len) {
            to.copy_from_slice(&a[..rows]);
        }
    }
    // With a constant count of rows, a copy is a few moves in place of a call.
    match rows {
        12 => copy(a, step, 12, len, to),
        8 => copy(a, step, 8, len, to),
        6 => copy(a, step, 6, len, to),
        _ => copy(a, step, rows, len, to),
    }
}

/// What one tile of C is the product of, from its first row and column on.
struct Strip<'a, A> {
    segments: &'a [Segment],
    a: Left<'a, A>,
    b: Left<'a, A>,
    /// What to ask for meanwhile: from where on, and how far apart.
    ahead: (*const A, usize),
}

/// Computes the tile of C at row `start` and column `from`, `width` columns of it, leaving its first `skip` rows alone.
fn run<A: Scalar>(
    kernels: &Kernels<A>,
    height: &Height<A>,
    s: &Strip<'_, A>,
    c: &mut Target<'_, A>,
    [start, skip, from, width]: [usize; 4],
    add: bool,
) {
    for segment in s.segments.iter().filter(|s| s.len > 0) {
        debug_assert!(
            segment.a + (segment.len - 1) * s.a.step + height.rows <= s.a.data.len(),
            "{segment:?} of A"
        );
        debug_assert!(
            segment.b + (segment.len - 1) * s.b.step + width <= s.b.data.len(),
            "{segment:?} of B"
        );
    }
    assert!(
        from + width <= c.columns && start + height.rows <= c.rows,
        "a tile inside C"
    );
    let tile = ColumnTile {
        a: s.a.data.as_ptr(),
        b: s.b.data.as_ptr(),
        segments: s.segments,
        a_step: s.a.step,
        b_step: s.b.step,
        // SAFETY: the row has `c.columns` elements, of which `from` is one.
        c: unsafe { c.row(start).add(from) },
        c_step: c.step,
        skip,
        columns: width,
        add,
        ahead: s.ahead.0,
        ahead_step: s.ahead.1,
    };
    let kernel = height.by_column[usize::from(width > kernels.lanes)];
    // SAFETY: A and B: both callers compared every segment with the lengths in every build. C: compared above, and exclusively borrowed.
    // The instructions are this machine's, as `Kernels` hands out no others.
    unsafe { kernel(&tile) };
}

/// The tile for the rows from `done` on, and where it starts: a last tile that would reach past the end starts earlier and
/// leaves alone what is done.
fn tile<A>(kernels: &Kernels<A>, rows: usize, done: usize) -> (&'static Height<A>, usize) {
    let fits = |h: &&Height<A>| h.rows <= rows;
    let mut height = kernels.heights.iter().find(fits).expect("there is a height of one row");
    for lower in kernels.heights.iter().filter(fits) {
        if lower.rows >= rows - done {
            height = lower;
        }
    }
    (height, done.min(rows - height.rows))
}
