//! Products whose A has contiguous columns: transposed matrices, and the gradients of weights.

use crate::gemm::CTile;
use crate::gemm::blocking::Blocking;
use crate::gemm::kernels::Gemm;
use crate::gemm::kernels::{Kernels, MicroKernels};
use crate::gemm::microkernel::{ColumnTile, Segment};
use crate::gemm::pack::{Panels, copy_rows};

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
    // With more panels than this, or steps of k that share a set of the cache, tiles of A are packed.
    let copied = columns > 2 * kernels.panel() || Blocking::this::<A>().rows_alias(a.step * size_of::<A>());
    let mut packed = PackedTiles::new(if copied { rows } else { 0 }, b.longest());
    for (u, unit) in b.units.iter().enumerate() {
        assert!(unit.taps == (0..1), "a matrix has one tap");
        let from = unit.steps.start * a.step;
        let len = unit.steps.len();
        assert!(
            len == 0 || from + (len - 1) * a.step + rows <= a.data.len(),
            "rows of A"
        );
        let panels: Vec<_> = (0..columns)
            .step_by(kernels.panel())
            .map(|j| (j, b.rows(u, first + j)))
            .collect();
        let mut done = 0;
        while done < rows {
            let (height, start) = tile(kernels, rows, done);
            let count = match copied {
                true => packed.fill(&a.data[from + start..], a.step, (rows - start, height.rows), len),
                false => 1,
            };
            for i in 0..count {
                let start = start + i * height.rows;
                let tile = match copied {
                    true => packed.tile(i),
                    false => AOperand {
                        data: &a.data[from + start..],
                        step: a.step,
                    },
                };
                let next = match i + 1 < count {
                    true => (packed.tile(i + 1).data.as_ptr(), height.rows),
                    // The line where the next tile ends; the line where it starts may belong to this tile.
                    false => (
                        a.data[from + start..].as_ptr().wrapping_add(2 * height.rows - 1),
                        a.step,
                    ),
                };
                for &(j, (panel, step)) in &panels {
                    let width = kernels.panel().min(columns - j);
                    let last_panel = j + width == columns;
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
                        [start, done.max(start) - start, j, width],
                        add || u > 0,
                    );
                }
                done = start + height.rows;
            }
        }
    }
}

/// The rows of A that are packed at once, in tiles: whole lines of the cache, of which a tile alone reads parts.
const ROWS_AT_ONCE: usize = 48;

/// The distance in steps of k at which packing prefetches.
const AHEAD: usize = 8;

/// The elements that lie between two packed tiles.
const BETWEEN: usize = 16;

/// A few tiles of A, one below the other, each with its elements of a step of k side by side.
struct PackedTiles<A> {
    packed: Vec<A>,
    /// The number of rows of a tile.
    height: usize,
    /// The distance between tiles.
    apart: usize,
}

impl<A: Gemm> PackedTiles<A> {
    /// Room for tiles of at most `rows` rows and `longest` steps of k.
    fn new(rows: usize, longest: usize) -> Self {
        let rows = rows.min(ROWS_AT_ONCE);
        PackedTiles {
            packed: vec![A::default(); rows * (longest + BETWEEN)],
            height: 0,
            apart: 0,
        }
    }

    /// Packs as many tiles of `height` rows as there are in `rows`, at least one and at most as many as there is room for, of `len`
    /// steps of k that are `step` apart. Returns their number.
    fn fill(&mut self, a: &[A], step: usize, (rows, height): (usize, usize), len: usize) -> usize {
        (self.height, self.apart) = (height, len * height + BETWEEN);
        let most = (rows / height).min(ROWS_AT_ONCE / height).max(1);
        let to = &mut self.packed[..];
        // A copy of a constant number of rows compiles to a few moves instead of a call.
        match height {
            12 => copy_rows::<A, 12, 16>(a, step, len, AHEAD, (to, most, self.apart)),
            8 => copy_rows::<A, 8, 8>(a, step, len, AHEAD, (to, most, self.apart)),
            6 => copy_rows::<A, 6, 8>(a, step, len, AHEAD, (to, most, self.apart)),
            _ => {
                for (to, a) in to.chunks_exact_mut(height).zip(a.chunks(step)).take(len) {
                    to.copy_from_slice(&a[..height]);
                }
                return 1;
            }
        }
        most
    }

    /// Tile `i` of those packed last.
    fn tile(&self, i: usize) -> AOperand<'_, A> {
        AOperand {
            data: &self.packed[i * self.apart..],
            step: self.height,
        }
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
