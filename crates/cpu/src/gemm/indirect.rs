//! Products whose rows of A are contiguous in k: matrices, and windows of images through pointers (indirect GEMM).

use crate::epilogue::{Epilogue, finish_rows};
use crate::gemm::CTile;
use crate::gemm::blocking::Blocking;
use crate::gemm::kernels::Gemm;
use crate::gemm::kernels::{Kernels, MicroKernels};
use crate::gemm::microkernel::{Finish, MAX_ROWS, Prefetch, RowTile};
use crate::gemm::pack::{KBlock, Panels};
use kiln_core::ops::Activation;
use std::ops::Range;

/// The mapping from the rows of a product to rows of C.
#[derive(Clone, Copy)]
pub(crate) enum RowMap<'a> {
    /// The first rows of C, in order; their number.
    First(usize),
    /// The row of C for each row of the product.
    Listed(&'a [usize]),
}

impl<'a> RowMap<'a> {
    /// The rows of C as a list; `None` if they are the first ones in order.
    pub(crate) fn listed(self) -> Option<&'a [usize]> {
        match self {
            RowMap::First(_) => None,
            RowMap::Listed(rows) => Some(rows),
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            RowMap::First(rows) => rows,
            RowMap::Listed(rows) => rows.len(),
        }
    }

    /// The row of C of row `i`.
    pub(crate) fn get(self, i: usize) -> usize {
        match self {
            RowMap::First(_) => i,
            RowMap::Listed(rows) => rows[i],
        }
    }
}

/// The taps of a block of k, numbered within it, with their offsets.
#[derive(Default)]
pub(crate) struct Taps {
    list: Vec<(usize, isize)>,
    /// The smallest and the largest offset.
    low: isize,
    high: isize,
}

impl Taps {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn push(&mut self, tap: usize, offset: isize) {
        let (low, high) = match self.list.is_empty() {
            true => (offset, offset),
            false => (self.low.min(offset), self.high.max(offset)),
        };
        (self.low, self.high) = (low, high);
        self.list.push((tap, offset));
    }
}

/// The pointers to the rows of A that a tile reads, filled in tap by tap for one block of k. Missing taps read zeros.
pub(crate) struct Pointers<'p, A> {
    /// A row of `height` pointers for each tap so far.
    table: &'p mut [*const A],
    height: usize,
    data: &'p [A],
    /// The number of elements read from each pointer, at most the length of `zeros`.
    len: usize,
    zeros: &'p [A],
    /// The numbers of the taps so far, and their count.
    order: &'p mut [usize],
    count: usize,
}

impl<A> Pointers<'_, A> {
    /// Adds tap `tap`, numbered within the block of k: row `i < rows` of the tile starts at element `at(i)` of A, or reads
    /// zeros.
    ///
    /// # Panics
    /// If the tap is not inside A: a bug in the op.
    #[inline(always)]
    pub(crate) fn tap(&mut self, tap: usize, rows: usize, at: impl Fn(usize) -> Option<usize>) {
        let row = &mut self.table[self.count * self.height..][..self.height];
        row.fill(self.zeros.as_ptr());
        for (i, to) in row[..rows].iter_mut().enumerate() {
            if let Some(at) = at(i) {
                *to = self.data[at..at + self.len].as_ptr();
            }
        }
        self.order[self.count] = tap;
        self.count += 1;
    }

    /// Adds `taps`, which all rows have: row `i` starts at `starts[i] + first` plus the offset of the tap.
    ///
    /// # Panics
    /// If any of the taps is not inside A: a bug in the op.
    #[inline(always)]
    pub(crate) fn taps(&mut self, starts: &[isize], first: usize, taps: &Taps) {
        let (mut low, mut high) = (isize::MAX, isize::MIN);
        for &start in starts {
            low = low.min(start);
            high = high.max(start);
        }
        let list = &taps.list;
        if starts.is_empty() || list.is_empty() {
            return;
        }
        let first = first as isize;
        let end = (high + first + taps.high) as usize + self.len;
        assert!(low + first + taps.low >= 0 && end <= self.data.len(), "taps inside A");
        let data = self.data.as_ptr();
        let rows = starts.len();
        let mut table = &mut self.table[self.count * self.height..];
        for (order, &(tap, offset)) in self.order[self.count..].iter_mut().zip(list) {
            let (row, after) = table.split_at_mut(self.height);
            table = after;
            let (row, rest) = row.split_at_mut(rows);
            let data = data.wrapping_offset(first + offset);
            for (to, &start) in row.iter_mut().zip(starts) {
                *to = data.wrapping_offset(start);
            }
            rest.fill(self.zeros.as_ptr());
            *order = tap;
        }
        self.count += list.len();
    }
}

/// Fills in the pointers of the rows of a tile for one block of k: the steps `steps` of each of `taps`.
pub(crate) type Fill<'f, A> = dyn FnMut(Range<usize>, &KBlock, &mut Pointers<'_, A>) + 'f;

/// Computes `C[places[i], j] = f(Σ A[i, k]·B[k, first + j] + bias[first + j])` for all rows `places` and all columns of the
/// target, on the calling thread. `first` is a multiple of the panel width.
pub(crate) fn gemm_indirect<A: Gemm>(
    kernels: &Kernels<A>,
    a: &[A],
    fill: &mut Fill<'_, A>,
    b: &Panels<'_, A>,
    first: usize,
    mut c: CTile<'_, A>,
    places: RowMap<'_>,
    e: Epilogue<'_, A>,
) {
    let rows = places.len();
    let most = |f: fn(&KBlock) -> usize| b.units.iter().map(f).max().unwrap_or(0);
    let (taps, steps) = (most(|u| u.taps.len()), most(|u| u.steps.len()));
    let zeros = vec![A::default(); steps];
    let mut order = vec![0; taps];
    let mut table = vec![std::ptr::null(); taps * MAX_ROWS];
    let mut staged = Vec::new();
    for (u, unit) in b.units.iter().enumerate() {
        let panels = BlockPanels::new(kernels, b, u, first, c.columns, e, u > 0);
        let len = unit.steps.len();
        let mut start = 0;
        while start < rows {
            let height = kernels.height(rows - start);
            let count = height.rows.min(rows - start);
            let mut pointers = Pointers {
                table: &mut table,
                height: height.rows,
                data: a,
                len,
                zeros: &zeros,
                order: &mut order,
                count: 0,
            };
            fill(start..start + count, unit, &mut pointers);
            let kept = pointers.count;
            let mut ahead = Prefetch::NONE;
            if kept == 1 && count > 1 {
                if start + count < rows {
                    ahead = Prefetch::after(&table[..count], len);
                }
                stage(&mut table[..count], len, &mut staged);
            }
            let mut targets = [std::ptr::null_mut(); MAX_ROWS];
            match places {
                RowMap::First(_) => c.rows(start, &mut targets[..count]),
                RowMap::Listed(rows) => {
                    for (target, &row) in targets.iter_mut().zip(&rows[start..start + count]) {
                        *target = c.row(row);
                    }
                }
            }
            // SAFETY: A: `Pointers` compared every length; the rest reads `zeros`, which has as many; `order` holds taps of the
            // block. C: the rows lie in the target, exclusively borrowed, and have its columns.
            unsafe { panels.run(height, count, &table, &order[..kept], &targets, ahead) };
            start += count;
        }
    }
    finish(b, first, &mut c, places, e);
}

/// As [`gemm_indirect`] for a matrix A with rows `a_step` apart and all rows of the target in order; with `add` the
/// product is added to C.
pub(crate) fn gemm_nn<A: Gemm>(
    kernels: &Kernels<A>,
    (a, a_step): (&[A], usize),
    b: &Panels<'_, A>,
    first: usize,
    mut c: CTile<'_, A>,
    e: Epilogue<'_, A>,
    add: bool,
) {
    let rows = c.rows;
    let (mut table, mut targets) = ([std::ptr::null(); MAX_ROWS], [std::ptr::null_mut(); MAX_ROWS]);
    let mut staged = Vec::new();
    for (u, unit) in b.units.iter().enumerate() {
        assert!(unit.taps == (0..1), "a matrix has one tap");
        let inside = rows == 0 || (rows - 1) * a_step + unit.steps.end <= a.len();
        assert!(inside, "rows inside A");
        let panels = BlockPanels::new(kernels, b, u, first, c.columns, e, add || u > 0);
        let mut start = 0;
        while start < rows {
            let height = kernels.height(rows - start);
            let count = height.rows.min(rows - start);
            // Rows past the last one repeat it; their results are not stored.
            let row = a.as_ptr().wrapping_add(start * a_step + unit.steps.start);
            for (i, to) in table.iter_mut().enumerate() {
                *to = row.wrapping_add(i.min(count - 1).wrapping_mul(a_step));
            }
            c.rows(start, &mut targets[..count]);
            let mut ahead = Prefetch::NONE;
            if count > 1 {
                if start + count < rows {
                    ahead = Prefetch::after(&table[..count], panels.len);
                }
                stage(&mut table[..count], panels.len, &mut staged);
            }
            // SAFETY: A: compared above for every row. C: the rows lie in the target, which is exclusively borrowed, and have
            // its columns.
            unsafe { panels.run(height, count, &table, &[0], &targets, ahead) };
            start += count;
        }
    }
    finish(b, first, &mut c, RowMap::First(rows), e);
}

/// As [`gemm_nn`] from the first column on, for few rows, whose tiles all read a panel of B before the next panel is: from a farther
/// cache a panel comes once. `backwards` begins with the last panel, which a call before may have left in cache.
pub(crate) fn gemm_few_rows<A: Gemm>(
    kernels: &Kernels<A>,
    (a, a_step): (&[A], usize),
    b: &Panels<'_, A>,
    mut c: CTile<'_, A>,
    e: Epilogue<'_, A>,
    add: bool,
    backwards: bool,
) {
    let rows = c.rows;
    // Tiles of equal heights: a low one at the end would wait for its loads.
    let each = rows.div_ceil(rows.div_ceil(kernels.tile()).max(1)).max(1);
    let height = kernels.height(each);
    let (mut table, mut targets) = ([std::ptr::null(); MAX_ROWS], [std::ptr::null_mut(); MAX_ROWS]);
    for (u, unit) in b.units.iter().enumerate() {
        assert!(unit.taps == (0..1), "a matrix has one tap");
        let inside = rows == 0 || (rows - 1) * a_step + unit.steps.end <= a.len();
        assert!(inside, "rows inside A");
        let panels = BlockPanels::new(kernels, b, u, 0, c.columns, e, add || u > 0);
        let count = panels.list.len();
        for i in 0..count {
            let panel = if backwards { count - 1 - i } else { i };
            for start in (0..rows).step_by(each) {
                let count = each.min(rows - start);
                let row = a.as_ptr().wrapping_add(start * a_step + unit.steps.start);
                for (i, to) in table.iter_mut().enumerate() {
                    *to = row.wrapping_add(i.min(count - 1).wrapping_mul(a_step));
                }
                c.rows(start, &mut targets[..count]);
                // SAFETY: as in `gemm_nn`; `panel` is one of the list.
                unsafe { panels.tile(panel, height, count, &table, &[0], &targets, Prefetch::NONE) };
            }
        }
    }
    finish(b, 0, &mut c, RowMap::First(rows), e);
}

/// Completes C after all blocks of k: the epilogue alone if there are none, or an activation that the kernels lack.
fn finish<A: Gemm>(b: &Panels<'_, A>, first: usize, c: &mut CTile<'_, A>, places: RowMap<'_>, e: Epilogue<'_, A>) {
    let empty = b.units.is_empty();
    if !empty && matches!(e.activation, Activation::None | Activation::Relu) {
        return;
    }
    for i in 0..places.len() {
        let c = c.slice(places.get(i));
        if empty {
            match e.bias {
                Some(bias) => c.copy_from_slice(&bias[first..first + c.len()]),
                None => c.fill(A::default()),
            }
        }
        finish_rows(c, c.len(), None, e.activation);
    }
}

/// A block of k of the columns of B that a block of C needs, and the epilogue of its sums.
struct BlockPanels<'p, A: 'static> {
    kernels: &'p Kernels<A>,
    /// The number of steps of k of each tap, and of all taps together.
    len: usize,
    all: usize,
    columns: usize,
    /// The panels, each with the distance between its rows.
    list: Vec<(&'p [A], usize)>,
    add: bool,
    /// The bias of the columns; only in the last block of k.
    bias: Option<&'p [A]>,
    relu: bool,
}

impl<'p, A: Gemm> BlockPanels<'p, A> {
    fn new(
        kernels: &'p Kernels<A>,
        b: &'p Panels<'_, A>,
        u: usize,
        first: usize,
        columns: usize,
        e: Epilogue<'p, A>,
        add: bool,
    ) -> Self {
        let unit = &b.units[u];
        let last = u + 1 == b.units.len();
        let (len, all) = (unit.steps.len(), unit.taps.len() * unit.steps.len());
        let list: Vec<_> = (0..columns)
            .step_by(kernels.panel())
            .map(|from| {
                let (panel, step) = b.rows(u, first + from);
                let width = kernels.panel().min(columns - from);
                assert!((all - 1) * step + width <= panel.len(), "a panel holds its unit");
                (panel, step)
            })
            .collect();
        BlockPanels {
            kernels,
            len,
            all,
            columns,
            list,
            add,
            bias: e.bias.filter(|_| last).map(|bias| &bias[first..first + columns]),
            relu: last && e.activation == Activation::Relu,
        }
    }

    /// Computes `count` rows of C in tiles of `height`, one for each panel.
    ///
    /// # Safety
    /// `a` has `height.rows` pointers to `len` elements for each of `taps`, which are taps of the block; `c` has `count`
    /// pointers to as many elements as there are columns, which nobody else accesses.
    unsafe fn run(
        &self,
        height: &MicroKernels<A>,
        count: usize,
        a: &[*const A],
        taps: &[usize],
        c: &[*mut A; MAX_ROWS],
        ahead: Prefetch<A>,
    ) {
        for i in 0..self.list.len() {
            let last = i + 1 == self.list.len();
            let ahead = if last { ahead } else { Prefetch::NONE };
            // SAFETY: the caller's contract.
            unsafe { self.tile(i, height, count, a, taps, c, ahead) };
        }
    }

    /// Computes the tile of panel `i` alone.
    ///
    /// # Safety
    /// As [`BlockPanels::run`]; the list has a panel `i`.
    unsafe fn tile(
        &self,
        i: usize,
        height: &MicroKernels<A>,
        count: usize,
        a: &[*const A],
        taps: &[usize],
        c: &[*mut A; MAX_ROWS],
        ahead: Prefetch<A>,
    ) {
        debug_assert!(taps.iter().all(|tap| (tap + 1) * self.len <= self.all));
        let (panel, b_step) = self.list[i];
        let from = i * self.kernels.panel();
        let columns = self.kernels.panel().min(self.columns - from);
        let tile = RowTile {
            a: a.as_ptr(),
            taps,
            len: self.len,
            b: panel.as_ptr(),
            b_step,
            c: c.as_ptr(),
            c_offset: from,
            count,
            columns,
            ahead,
            finish: Finish {
                add: self.add,
                bias: self.bias.map_or(std::ptr::null(), |bias| bias[from..].as_ptr()),
                relu: self.relu,
            },
        };
        let kernel = height.by_row[usize::from(columns > self.kernels.lanes)];
        // SAFETY: A and C: the caller's contract. B: `new` compared every panel with the unit. The bias has as many
        // elements as there are columns. The instructions are this machine's, as `Kernels` hands out no others.
        unsafe { kernel(&tile) };
    }
}

/// Copies the rows of a tile side by side and redirects the pointers to the copies, if the rows fall into one set of the
/// L1 cache. Even a single panel is computed faster so.
fn stage<A: Gemm>(rows: &mut [*const A], len: usize, staged: &mut Vec<A>) {
    let apart = rows[1].addr().wrapping_sub(rows[0].addr());
    if rows.len() <= 4 || !Blocking::this::<A>().rows_alias(apart) {
        return;
    }
    // One cache line more than a row, so that the copies do not alias either.
    let step = len.next_multiple_of(16) + 16;
    staged.resize(MAX_ROWS * step, A::default());
    for (row, to) in rows.iter_mut().zip(staged.chunks_exact_mut(step)) {
        // SAFETY: the callers pass pointers to `len` readable elements.
        to[..len].copy_from_slice(unsafe { std::slice::from_raw_parts(*row, len) });
        *row = to.as_ptr();
    }
}
