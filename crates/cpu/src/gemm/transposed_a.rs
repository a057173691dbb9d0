//! Products whose A has contiguous columns: transposed matrices, and the gradients of weights.

use crate::gemm::CTile;
use crate::gemm::blocking::Blocking;
use crate::gemm::kernels::Gemm;
use crate::gemm::kernels::{Kernels, MicroKernels};
use crate::gemm::microkernel::{ColumnTile, Segment};
use crate::gemm::pack::{FETCH, Panels};
use crate::simd::vector::fetch;

/// A, stored by k: step `k` of a segment is the `rows` elements from `segment.a + k·step` on.
#[derive(Clone, Copy)]
pub(crate) struct AOperand<'a, A> {
    pub(crate) data: &'a [A],
    pub(crate) step: usize,
}

impl<A> AOperand<'_, A> {
    fn from(&self, start: usize) -> Self {
        AOperand {
            data: &self.data[start..],
            step: self.step,
        }
    }
}

/// Computes `C[i, j] (+)= Σ_s Σ_k A[s.a + k·a.step + i] · B[s.b + k·b.step + j]` for every element of the target, on the
/// calling thread; with `add` it is added to C.
pub(crate) fn gemm_tn_segmented<A: Gemm>(
    kernels: &Kernels<A>,
    segments: &[Segment],
    a: AOperand<'_, A>,
    b: AOperand<'_, A>,
    mut c: CTile<'_, A>,
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
            let strip = TileOperands {
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

/// As [`gemm_tn_segmented`] with one segment and B in panels: `C[i, j] (+)= Σ A[k·a.step + i] · B[k, first + j]`.
/// `first` is a multiple of the panel width.
pub(crate) fn gemm_tn<A: Gemm>(
    kernels: &Kernels<A>,
    a: AOperand<'_, A>,
    b: &Panels<'_, A>,
    first: usize,
    mut c: CTile<'_, A>,
    add: bool,
) {
    let (rows, columns) = (c.rows, c.columns);
    if b.units.is_empty() && !add {
        (0..rows).for_each(|i| c.slice(i).fill(A::default()));
    }
    // With more panels than this, or steps of k that share a set of the cache, a tile of A is packed.
    let copied = columns > 2 * kernels.panel() || Blocking::this::<A>().rows_alias(a.step * size_of::<A>());
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
                AOperand {
                    data: &packed,
                    step: height.rows,
                }
            } else {
                AOperand {
                    data: &a.data[from + start..],
                    step: a.step,
                }
            };
            // Prefetches the line where the next tile ends; the line where it starts may belong to this tile.
            let next = (
                a.data[from + start..].as_ptr().wrapping_add(2 * height.rows - 1),
                a.step,
            );
            for j in (0..columns).step_by(kernels.panel()) {
                let width = kernels.panel().min(columns - j);
                let last_panel = j + width == columns;
                let (panel, step) = b.rows(u, first + j);
                let whole = Segment { a: 0, b: 0, len };
                let strip = TileOperands {
                    segments: &[whole],
                    a: tile,
                    b: AOperand { data: panel, step },
                    ahead: if last_panel {
                        next
                    } else {
                        (tile.data.as_ptr(), tile.step)
                    },
                };
                run(
                    kernels,
                    height,
                    &strip,
                    &mut c,
                    [start, done - start, j, width],
                    add || u > 0,
                );
            }
            done = start + height.rows;
        }
    }
}

/// Copies `rows` elements of each of `len` steps side by side.
fn gather<A: Gemm>(a: &[A], step: usize, rows: usize, len: usize, to: &mut [A]) {
    #[inline(always)]
    fn copy<A: Gemm>(a: &[A], step: usize, rows: usize, len: usize, to: &mut [A]) {
        for (to, a) in to.chunks_exact_mut(rows).zip(a.chunks(step)).take(len) {
            fetch(a.as_ptr().wrapping_add(FETCH * step), 1);
            to.copy_from_slice(&a[..rows]);
        }
    }
    // A copy of a constant number of rows compiles to a few moves instead of a call.
    match rows {
        12 => copy(a, step, 12, len, to),
        8 => copy(a, step, 8, len, to),
        6 => copy(a, step, 6, len, to),
        _ => copy(a, step, rows, len, to),
    }
}

/// The operands of one tile of C, from its first row and column on.
struct TileOperands<'a, A> {
    segments: &'a [Segment],
    a: AOperand<'a, A>,
    b: AOperand<'a, A>,
    /// The start and the distance of the prefetches.
    ahead: (*const A, usize),
}

/// Computes the tile of C at row `start` and column `from`, of `width` columns; its first `skip` rows are not written.
fn run<A: Gemm>(
    kernels: &Kernels<A>,
    height: &MicroKernels<A>,
    s: &TileOperands<'_, A>,
    c: &mut CTile<'_, A>,
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
    // SAFETY: A and B: both callers compared every segment with the lengths in every build. C: compared above, and exclusively
    // borrowed. The instructions are this machine's, as `Kernels` hands out no others.
    unsafe { kernel(&tile) };
}

/// The kernels of the tile for the rows from `done` on, and its first row: a last tile that would reach past the end starts
/// earlier and skips the rows that are done.
fn tile<A>(kernels: &Kernels<A>, rows: usize, done: usize) -> (&'static MicroKernels<A>, usize) {
    let fits = |h: &&MicroKernels<A>| h.rows <= rows;
    let mut height = kernels.heights.iter().find(fits).expect("there is a height of one row");
    for lower in kernels.heights.iter().filter(fits) {
        if lower.rows >= rows - done {
            height = lower;
        }
    }
    (height, done.min(rows - height.rows))
}
