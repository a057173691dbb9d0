//! The micro-kernels, generic over the vector register: a tile of C stays in registers while the sum runs over k.
//!
//! Two of them hold `MR × NV` accumulators. B is read along its rows, a vector at a time; every element of A is broadcast.
//! They differ in the layout of A: [`rows`] follows a pointer per row of the tile, so that the windows of a convolution are
//! read from the image in place; [`columns`] reads the elements of the tile for one k side by side, as in a transposed or
//! packed A. The third, [`dots`], is for few rows and a transposed B: vectors run along k, and nothing is packed.

// Closures of the standard library become calls when the inliner's budget is spent, so every loop here runs over an index;
// and an unrolled index is a constant, which may be zero.
#![allow(clippy::needless_range_loop, clippy::absurd_extreme_comparisons)]

use crate::simd::vector::{Vector, opaque};
use crate::simd::widening::Fill;
use std::sync::atomic::{Ordering, compiler_fence};

/// The distance, in steps of k, at which rows of B are prefetched: a panel streams from the L2 cache, whose latency
/// the twelve cycles of a step do not cover.
const PREFETCH_STEPS: usize = 16;

/// The number of rows of the largest tile of any instruction set.
pub(crate) const MAX_ROWS: usize = 12;

/// The largest number of rows whose pointers stay in general registers, of which there are sixteen, beside the loop's own.
const ROWS_IN_REGISTERS: usize = 8;

/// The number of evenly spaced rows that share a register: x86 adds once or twice a second register to an address.
const ROWS_OF_A_BASE: usize = 3;

/// The number of steps of k in a pass of the loop over evenly spaced rows, and after its last whole pass.
const UNROLLED: usize = 4;
const ONE: usize = 1;

/// The smallest number of steps of a tap in a tile whose rows are compared for even distances, and whose results, if they are only
/// written, are not prefetched: the loads of B need the cache's fill buffers more.
const LONG: usize = 32;

/// The bytes of a cache line.
const LINE: usize = 64;

/// The epilogue of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Finish<A> {
    /// True to add the tile to C instead of overwriting C.
    pub(crate) add: bool,
    /// One value per column of the tile, or null.
    pub(crate) bias: *const A,
    /// True to apply ReLU, `max(x, 0)`.
    pub(crate) relu: bool,
}

/// A tile whose rows of A are contiguous in k: `C[i, j] = Σ_t Σ_k a[t][i][k] · B[taps[t]·len + k, j]`.
pub(crate) struct RowTile<'s, A> {
    /// `[taps][MR]` pointers to `len` elements each.
    pub(crate) a: *const *const A,
    pub(crate) taps: &'s [usize],
    pub(crate) len: usize,
    /// Rows of B, `b_step` apart.
    pub(crate) b: *const A,
    pub(crate) b_step: usize,
    /// `[MR]` pointers to rows of C, used from `c_offset` on; rows from `count` on are not accessed.
    pub(crate) c: *const *mut A,
    pub(crate) c_offset: usize,
    pub(crate) count: usize,
    /// The number of columns of C and B, at most `NV` vectors and more than `NV − 1`.
    pub(crate) columns: usize,
    pub(crate) finish: Finish<A>,
    pub(crate) ahead: Prefetch<A>,
}

/// The prefetch during a tile of the rows of A that the next tile reads.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch<A> {
    /// The start of the rows, or null for no prefetch.
    from: *const A,
    /// The distances in elements: between the cache lines fetched together, one per row, and to the next set of lines.
    step: isize,
    next: isize,
}

impl<A> Prefetch<A> {
    /// The number of elements of a cache line.
    const LINE: usize = LINE / size_of::<A>();
    pub(crate) const NONE: Self = Prefetch {
        from: std::ptr::null(),
        step: 0,
        next: 0,
    };

    /// The prefetch of as many rows as `rows` after them, of `len` elements and evenly spaced.
    pub(crate) fn after(rows: &[*const A], len: usize) -> Self {
        let bytes = rows[1].addr().wrapping_sub(rows[0].addr()).cast_signed();
        let step = bytes / size_of::<A>().cast_signed();
        let from = rows[rows.len() - 1].wrapping_offset(step);
        let line = Self::LINE.cast_signed();
        // Adjacent rows are one contiguous range of lines.
        let (step, next) = if step == len.cast_signed() {
            (line, line * rows.len().cast_signed())
        } else {
            (step, line)
        };
        Prefetch { from, step, next }
    }
}

/// A range of k: `len` steps of A and B from the elements `a` and `b` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) len: usize,
}

/// A tile whose columns of A are contiguous: `C[i, j] = Σ_s Σ_k A[s.a + k·a_step + i] · B[s.b + k·b_step + j]`.
pub(crate) struct ColumnTile<'s, A> {
    pub(crate) a: *const A,
    pub(crate) b: *const A,
    pub(crate) segments: &'s [Segment],
    pub(crate) a_step: usize,
    pub(crate) b_step: usize,
    /// `[MR, columns]`, rows `c_step` apart; rows before `skip` are not accessed.
    pub(crate) c: *mut A,
    pub(crate) c_step: usize,
    pub(crate) skip: usize,
    /// As in [`RowTile`].
    pub(crate) columns: usize,
    pub(crate) add: bool,
    /// The address to prefetch, a line for each step, when `a` is at its first element; and the distance of the next.
    pub(crate) ahead: *const A,
    pub(crate) ahead_step: usize,
}

/// Expands `$body` for every constant `$i` below `$n`: accumulators indexed by a variable would not stay in registers.
macro_rules! unrolled {
    ($i:ident < $n:ident $body:block) => {
        unrolled!(@ $i $n $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24)
    };
    (@ $i:ident $n:ident $body:block $($value:literal)+) => {
        $(if const { $value < $n } {
            #[allow(non_upper_case_globals)]
            const $i: usize = $value;
            $body
        })+
    };
}
pub(crate) use unrolled;

/// Computes a [`RowTile`] of `MR` rows and up to `NV` vectors of columns.
///
/// # Safety
/// Every pointer of the tile reaches what its comment says, C's rows are not aliased, and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn rows<V: Vector, const MR: usize, const NV: usize>(t: &RowTile<'_, V::Element>) {
    // Masked loads compete with multiply-adds for execution ports, so whole vectors have their own kernel.
    // SAFETY: the caller's contract.
    unsafe {
        if t.columns < NV * V::LANES {
            rows_of::<V, MR, NV, false, false>(t);
            return;
        }
        // The first condition is a constant, so that kernels that are never called are not compiled.
        if const { MR > ROWS_IN_REGISTERS } && t.len >= LONG && evenly_spaced::<V::Element, MR>(t) {
            rows_of::<V, MR, NV, true, true>(t);
            return;
        }
        rows_of::<V, MR, NV, true, false>(t);
    }
}

/// True if in every tap all rows of A are at the same distance from the row before.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn evenly_spaced<A, const MR: usize>(t: &RowTile<'_, A>) -> bool {
    let mut different = 0;
    for tap in 0..t.taps.len() {
        // SAFETY: there are `MR` pointers for each tap.
        let row = |i: usize| unsafe { *t.a.add(tap * MR + i) }.addr();
        let distance = row(1).wrapping_sub(row(0));
        for i in 2..MR {
            different |= row(i).wrapping_sub(row(i - 1)) ^ distance;
        }
    }
    different == 0
}

/// [`rows`] for a tile whose columns are whole vectors (`WHOLE`), or not, and whose rows of A are [`evenly_spaced`] (`SPACED`), or
/// need not be: three evenly spaced rows share a register, so that no pointer is loaded in the loop.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_of<V: Vector, const MR: usize, const NV: usize, const WHOLE: bool, const SPACED: bool>(
    t: &RowTile<'_, V::Element>,
) {
    let mut sums = [[V::zero(); NV]; MR];
    let last = if WHOLE {
        V::LANES
    } else {
        t.columns - (NV - 1) * V::LANES
    };
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        // Sums that are added to C read it at the end.
        if t.finish.add || t.len < LONG {
            for i in 0..t.count {
                prefetch::<V, NV>((*t.c.add(i)).wrapping_add(t.c_offset));
            }
        }
        for (i, tap) in t.taps.iter().enumerate() {
            let mut b = t.b.add(tap.wrapping_mul(t.len).wrapping_mul(t.b_step));
            let places = t.a.add(i.wrapping_mul(MR));
            let mut a = [std::ptr::null(); MR];
            for i in 0..MR {
                a[i] = *places.add(i);
            }
            // The first of the rows that share a register, and the distance in elements to the next row.
            let mut bases = [std::ptr::null(); MR];
            for i in 0..MR.div_ceil(ROWS_OF_A_BASE) {
                bases[i] = opaque(a[i * ROWS_OF_A_BASE]);
            }
            let distance = a[MR.min(2) - 1].addr().wrapping_sub(a[0].addr()) / size_of::<V::Element>();
            let mut ahead = t.ahead.from;
            let mut k = 0;
            while k < t.len {
                let mut end = t.len;
                if !t.ahead.from.is_null() {
                    end = t.len.min(k.wrapping_add(Prefetch::<V::Element>::LINE));
                    let mut line = ahead;
                    for _ in 0..MR {
                        V::prefetch(line);
                        line = line.wrapping_offset(t.ahead.step);
                    }
                    ahead = ahead.wrapping_offset(t.ahead.next);
                }
                if SPACED {
                    macro_rules! steps {
                        ($steps:expr, $unrolled:ident) => {
                            for _ in 0..$steps {
                                unrolled!(step < $unrolled {
                                    prefetch::<V, NV>(b.wrapping_add(t.b_step.wrapping_mul(PREFETCH_STEPS)));
                                    let row = load::<V, NV>(b, last);
                                    unrolled!(i < MR {
                                        let base = bases[i / ROWS_OF_A_BASE].add(step);
                                        let x = V::splat(*base.wrapping_add(distance.wrapping_mul(i % ROWS_OF_A_BASE)));
                                        sums[i] = add_products(sums[i], x, row);
                                    });
                                    b = b.wrapping_add(t.b_step);
                                    // Loads of later steps would take the registers of sums.
                                    compiler_fence(Ordering::SeqCst);
                                });
                                for i in 0..MR.div_ceil(ROWS_OF_A_BASE) {
                                    bases[i] = opaque(bases[i].wrapping_add($unrolled));
                                }
                            }
                        };
                    }
                    let steps = end.wrapping_sub(k);
                    steps!(steps / UNROLLED, UNROLLED);
                    steps!(steps % UNROLLED, ONE);
                    k = end;
                    continue;
                }
                while k < end {
                    prefetch::<V, NV>(b.wrapping_add(t.b_step.wrapping_mul(PREFETCH_STEPS)));
                    let row = load::<V, NV>(b, last);
                    unrolled!(i < MR {
                        let x = V::splat(*a[i].add(k));
                        sums[i] = add_products(sums[i], x, row);
                    });
                    // Past the last step the pointer may leave its allocation; it is not read there.
                    b = b.wrapping_add(t.b_step);
                    k += 1;
                }
            }
        }
        let f = &t.finish;
        // Conditions are tested once for all rows of a whole tile, because branches take as long as a short sum.
        let whole = t.count == MR;
        if f.add {
            unrolled!(i < MR {
                if whole || i < t.count {
                    sums[i] = join(sums[i], load::<V, NV>((*t.c.add(i)).add(t.c_offset), last));
                }
            });
        }
        if !f.bias.is_null() {
            let bias = load::<V, NV>(f.bias, last);
            unrolled!(i < MR {
                sums[i] = join(sums[i], bias);
            });
        }
        if f.relu {
            unrolled!(i < MR {
                sums[i] = relu(sums[i]);
            });
        }
        unrolled!(i < MR {
            if whole || i < t.count {
                store(sums[i], (*t.c.add(i)).add(t.c_offset), last);
            }
        });
    }
}

/// Computes a [`ColumnTile`] of `MR` rows and up to `NV` vectors of columns.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
pub(crate) unsafe fn columns<V: Vector, const MR: usize, const NV: usize>(t: &ColumnTile<'_, V::Element>) {
    // Masked loads compete with multiply-adds for execution ports, so whole vectors have their own kernel.
    // SAFETY: the caller's contract.
    unsafe {
        match t.columns == NV * V::LANES {
            true => columns_of::<V, MR, NV, true>(t),
            false => columns_of::<V, MR, NV, false>(t),
        }
    }
}

/// [`columns`] for a tile whose columns are whole vectors (`WHOLE`), or not.
///
/// # Safety
/// As [`columns`].
#[inline(always)]
unsafe fn columns_of<V: Vector, const MR: usize, const NV: usize, const WHOLE: bool>(t: &ColumnTile<'_, V::Element>) {
    let mut sums = [[V::zero(); NV]; MR];
    let last = if WHOLE {
        V::LANES
    } else {
        t.columns - (NV - 1) * V::LANES
    };
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        // Sums that are added to C read it at the end.
        if t.add {
            for i in t.skip..MR {
                prefetch::<V, NV>(t.c.wrapping_add(i.wrapping_mul(t.c_step)));
            }
        }
        for segment in t.segments {
            let (mut a, mut b) = (t.a.wrapping_add(segment.a), t.b.wrapping_add(segment.b));
            let mut ahead = t.ahead.wrapping_add(segment.a);
            for _ in 0..segment.len {
                V::prefetch(ahead);
                ahead = ahead.wrapping_add(t.ahead_step);
                prefetch::<V, NV>(b.wrapping_add(t.b_step.wrapping_mul(PREFETCH_STEPS)));
                let row = load::<V, NV>(b, last);
                unrolled!(i < MR {
                    let x = V::splat(*a.add(i));
                    sums[i] = add_products(sums[i], x, row);
                });
                // Past the last step, and in an empty segment, the pointers may leave their allocation; they are not read.
                a = a.wrapping_add(t.a_step);
                b = b.wrapping_add(t.b_step);
            }
        }
        unrolled!(i < MR {
            if i >= t.skip {
                let c = t.c.add(i * t.c_step);
                let sums = if t.add { join(sums[i], load::<V, NV>(c, last)) } else { sums[i] };
                store(sums, c, last);
            }
        });
    }
}

/// A tile whose rows of A and columns of B are both contiguous in k: `C[i, j] = Σ_k a[i][k] · b[j][k]`. The elements of B may be
/// narrower: they are widened as they are loaded.
pub(crate) struct DotTile<A, B = A> {
    /// [`DOTS`] pointers to `len` elements each.
    pub(crate) a: [*const A; DOTS],
    pub(crate) b: [*const B; DOTS],
    pub(crate) len: usize,
    /// The number of rows that are needed.
    pub(crate) rows: usize,
    /// The address from which memory is prefetched, as much of it as the tile reads of B; it need not be readable.
    pub(crate) ahead: *const B,
}

/// The number of rows and columns of a [`DotTile`].
pub(crate) const DOTS: usize = 4;

/// Computes the rows of the tile that are needed, `MR` at a time, which must divide [`DOTS`]; the others may be computed too.
///
/// # Safety
/// Every pointer of the tile reaches `len` elements, and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn dots<V: Vector, B: Fill<V>, const MR: usize>(
    t: &DotTile<V::Element, B>,
    c: &mut [[V::Element; DOTS]; DOTS],
) {
    for first in (0..t.rows.min(DOTS)).step_by(MR) {
        // SAFETY: the caller's contract.
        unsafe { dots_of::<V, B, MR>(t, first, c) };
    }
}

/// Computes the `MR` rows of the tile from `first` on.
///
/// # Safety
/// As [`dots`].
#[inline(always)]
unsafe fn dots_of<V: Vector, B: Fill<V>, const MR: usize>(
    t: &DotTile<V::Element, B>,
    first: usize,
    c: &mut [[V::Element; DOTS]; DOTS],
) {
    // The cache lines that a step reads of B, which later rows find in the cache.
    let lines = if first == 0 {
        DOTS * V::LANES * size_of::<B>() / LINE
    } else {
        0
    };
    let mut a = [std::ptr::null(); MR];
    a.copy_from_slice(&t.a[first..first + MR]);
    let mut sums = [[V::zero(); DOTS]; MR];
    let whole = t.len / V::LANES * V::LANES;
    let mut ahead = t.ahead.cast::<V::Element>();
    // SAFETY: the caller's contract bounds every offset below; a prefetch need not be readable.
    unsafe {
        for k in (0..whole).step_by(V::LANES) {
            let mut b = [V::zero(); DOTS];
            for j in 0..DOTS {
                if j < lines {
                    V::prefetch(ahead);
                    ahead = ahead.wrapping_byte_add(LINE);
                }
                b[j] = B::load(t.b[j].add(k));
            }
            for i in 0..MR {
                sums[i] = add_products(sums[i], V::load(a[i].add(k)), b);
            }
        }
        let rest = t.len - whole;
        if rest > 0 {
            let mut b = [V::zero(); DOTS];
            for j in 0..DOTS {
                b[j] = B::load_first(t.b[j].add(whole), rest);
            }
            for i in 0..MR {
                sums[i] = add_products(sums[i], V::load_first(a[i].add(whole), rest), b);
            }
        }
    }
    for i in 0..MR {
        for j in 0..DOTS {
            c[first + i][j] = sums[i][j].sum();
        }
    }
}

/// Prefetches a row of a tile or a panel, which need not be readable.
#[inline(always)]
fn prefetch<V: Vector, const NV: usize>(row: *const V::Element) {
    for j in 0..NV {
        V::prefetch(row.wrapping_add(j * V::LANES));
    }
}

#[inline(always)]
pub(crate) unsafe fn load<V: Vector, const NV: usize>(p: *const V::Element, last: usize) -> [V; NV] {
    let mut out = [V::zero(); NV];
    for j in 0..NV {
        // SAFETY: the caller's contract: whole vectors, and `last` elements in the last one.
        out[j] = unsafe {
            if j + 1 < NV {
                V::load(p.add(j * V::LANES))
            } else {
                V::load_first(p.add(j * V::LANES), last)
            }
        };
    }
    out
}

#[inline(always)]
pub(crate) fn join<V: Vector, const NV: usize>(a: [V; NV], b: [V; NV]) -> [V; NV] {
    let mut out = a;
    for j in 0..NV {
        out[j] = a[j].add(b[j]);
    }
    out
}

#[inline(always)]
pub(crate) fn relu<V: Vector, const NV: usize>(a: [V; NV]) -> [V; NV] {
    let mut out = a;
    for j in 0..NV {
        out[j] = a[j].relu();
    }
    out
}

/// `sums + a·b`
#[inline(always)]
pub(crate) fn add_products<V: Vector, const NV: usize>(sums: [V; NV], a: V, b: [V; NV]) -> [V; NV] {
    let mut out = sums;
    for j in 0..NV {
        out[j] = sums[j].add_product(a, b[j]);
    }
    out
}

#[inline(always)]
pub(crate) unsafe fn store<V: Vector, const NV: usize>(sums: [V; NV], c: *mut V::Element, last: usize) {
    for j in 0..NV {
        // SAFETY: as `load`.
        unsafe {
            if j + 1 < NV {
                sums[j].store(c.add(j * V::LANES));
            } else {
                sums[j].store_first(c.add(j * V::LANES), last);
            }
        }
    }
}
