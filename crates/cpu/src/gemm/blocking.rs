//! The block sizes of a product, chosen for this machine's caches.
//!
//! The names are those of BLIS: `MC` rows of A, `NC` columns of B, `KC` steps of k. Sums are rounded at the end of each
//! block of k, so [`KC`](crate::gemm::UNIT) is the same on every machine, and results depend only on the vector width.
//! `MC` and `NC` differ between machines; they decide which task computes an element and when, but not its value.

use crate::Machine;
use crate::gemm::kernels::{Gemm, Kernels};
use crate::gemm::shape::GemmShape;
use crate::gemm::{BLOCK_WORK, SERIAL_THRESHOLD, UNIT};
use kiln_core::DType;
use std::fmt;
use std::sync::OnceLock;

/// The block sizes for products of one element type, and what else a product's plan takes from the machine's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// `MC`: the largest number of rows of C that are computed with one block of B.
    pub mc: usize,
    /// `NC`: the number of columns of B of which a block of `KC` steps stays in the L2 cache.
    pub nc: usize,
    /// The same where each block of columns packs A again.
    pub nc_of_copied: usize,
    /// The largest number of elements of B that a task packs for itself.
    pub own: usize,
    /// The largest number of elements of B packed at once beside a transposed A, if C is small.
    pub at_once: usize,
    /// The size of a way of the L1 cache in bytes; addresses at this distance share a set.
    pub l1_way: usize,
    /// The cost of reading an element of a transposed A from the L3 cache once more, in multiply-adds: 0 where it is hidden.
    pub again: usize,
}

/// Formats block sizes as `MC 480, NC 256, KC 384`.
impl fmt::Display for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MC {}, NC {}, KC {}", self.mc, self.nc, Blocking::KC)
    }
}

/// The caches assumed for a machine that reports none: L1 of 32 KiB in eight ways, L2 of 1 MiB.
const L1_WAY: usize = 4096;
const L2: usize = 1 << 20;

/// The number of hardware threads of one core, which share its L2 cache.
const THREADS_OF_A_CORE: usize = 2;

impl Blocking {
    /// `KC`: the number of steps of k that are added up before the sum is rounded to the element type.
    pub const KC: usize = UNIT;

    /// The block sizes for elements of `dtype` on `machine`.
    pub fn for_machine(machine: &Machine, dtype: DType) -> Self {
        let cache = |level| machine.caches.iter().find(|c| c.level == level && c.size > 0);
        let l1_way = cache(1).map_or(L1_WAY, |c| c.size / c.ways.max(1));
        let l2 = cache(2).map_or(L2, |c| c.size / c.threads.div_ceil(THREADS_OF_A_CORE).max(1));
        // Server cores of Intel up to Ice Lake, whose L3 cache is slow for one core; measured on a Cascade Lake.
        let slow_l3 = machine.name.contains("Intel") && l2 < 2 << 20;
        let l2 = l2 / dtype.size();
        let wide = machine.instruction_set == "avx512";
        // Three eighths of L2; the rest is for A, C and the next block. 256 columns of f32 on Zen 4, and 512 on Sapphire
        // and Emerald Rapids, were the fastest.
        let nc = l2 * 3 / 8 / UNIT;
        Blocking {
            // Ten or more tiles use a panel that is read from the L3 cache once.
            mc: 480,
            nc,
            // Tiles of six rows are packed twice as often; B streams from the L3 cache of a Zen 3 in time.
            nc_of_copied: if wide { 2 * nc } else { 3 * nc },
            own: l2 / 4,
            // Both operands are long and read once: on a Zen 3, a copy of B that is written again stays nearer.
            at_once: if wide { PACKED_AT_ONCE } else { 2 * l2 },
            l1_way: l1_way.max(64),
            again: match (wide, slow_l3) {
                (true, true) => 13,
                (true, false) => 0,
                // A tile of six rows uses less of each cache line of A; measured on a Zen 3.
                (false, _) => 3,
            },
        }
    }

    /// The block sizes for elements of `A` on this machine.
    pub(crate) fn this<A: Gemm>() -> &'static Blocking {
        static FOUND: OnceLock<[Blocking; 2]> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let machine = Machine::this();
            [DType::F32, DType::F64].map(|dtype| Blocking::for_machine(&machine, dtype))
        });
        &found[usize::from(A::DTYPE == DType::F64)]
    }

    /// True if rows that are `step` bytes apart fall into the same set of the L1 cache, which holds only a few of them.
    pub(crate) fn rows_alias(&self, step: usize) -> bool {
        step.is_multiple_of(self.l1_way)
    }
}

/// The approximate number of blocks of a large product, enough to distribute over threads.
const TASKS: usize = 16;

/// The largest number of elements of B packed at once if C is small, and the largest such C in elements. The copy then
/// stays in the L3 cache beside the operands, and C is seldom read again.
const PACKED_AT_ONCE: usize = 1 << 20;
const SMALL_C: usize = 1 << 20;

/// The number of rows up to which a product counts as having few rows.
const FEW_ROWS: usize = 48;

/// The smallest multiple of `unit` that cuts `size` into as few equal parts as parts of at most `most` would.
fn even(size: usize, most: usize, unit: usize) -> usize {
    size.div_ceil(size.div_ceil(most.max(1)).max(1))
        .max(1)
        .next_multiple_of(unit)
}

/// The rows and columns of the blocks of C that tasks compute, and the steps of k that they process at once.
impl Blocking {
    /// The number of blocks of k that a product packs at once when all tasks share the panels of B.
    pub(crate) fn units_at_once(&self, s: &GemmShape) -> usize {
        let &GemmShape { m, n, k, .. } = s;
        let most = if s.trans_a { self.at_once } else { PACKED_AT_ONCE };
        let all = k.div_ceil(UNIT).max(1);
        if m.saturating_mul(n) > SMALL_C || k.saturating_mul(n) <= most {
            return all;
        }
        even(all, most.div_ceil(n.saturating_mul(UNIT)), 1)
    }

    /// The blocks of tasks that share the panels of B.
    pub(crate) fn shared<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> [usize; 2] {
        let &GemmShape { m, n, k, .. } = s;
        if m <= FEW_ROWS {
            return self.thin(s, kernels);
        }
        let work = s.work();
        if work <= SERIAL_THRESHOLD {
            return [m, n];
        }
        let (panel, tile) = (kernels.panel(), kernels.tile());
        // A transposed or aliasing A is packed for every block, so blocks are wider.
        let copied = s.trans_a || self.rows_alias(k * size_of::<A>());
        let nc = if copied { self.nc_of_copied } else { self.nc };
        let columns = even(n, nc.max(panel), panel);
        let task = (work / TASKS).clamp(4 * BLOCK_WORK, 128 * BLOCK_WORK);
        let rows = task / columns.saturating_mul(k).max(1);
        [even(m, rows.clamp(2 * tile, self.mc.max(2 * tile)), tile), columns]
    }

    /// The blocks of tasks that pack the columns of B that they need.
    pub(crate) fn own<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> [usize; 2] {
        if s.work() <= SERIAL_THRESHOLD {
            return [s.m, s.n];
        }
        [even(s.m, self.mc, kernels.tile()), self.own_columns(s, kernels.panel())]
    }

    /// The number of columns of a task that packs the columns of B that it needs, in panels of `panel` columns.
    pub(crate) fn own_columns(&self, s: &GemmShape, panel: usize) -> usize {
        let work = s.work();
        if work <= SERIAL_THRESHOLD {
            return s.n;
        }
        let tasks = (work / SERIAL_THRESHOLD).clamp(2, TASKS / 2);
        even(s.n, s.n.div_ceil(tasks).min(self.own / s.k).max(panel), panel)
    }

    /// The blocks of tasks that read B in place.
    pub(crate) fn thin<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> [usize; 2] {
        let &GemmShape { m, n, k, .. } = s;
        if s.work() <= SERIAL_THRESHOLD {
            return [m, n];
        }
        let (rows, panel) = (m.min(FEW_ROWS), kernels.panel());
        let most = BLOCK_WORK / rows.saturating_mul(k).max(1);
        [rows, even(n, most.clamp(panel, 8 * panel), panel)]
    }

    /// The number of columns of C that a task computes as rows of its transpose.
    pub(crate) fn transposed<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> usize {
        let &GemmShape { m, n, k, .. } = s;
        if s.work() <= SERIAL_THRESHOLD {
            return n;
        }
        let tile = kernels.tile();
        let most = 4 * BLOCK_WORK / m.saturating_mul(k).max(1);
        even(n, most.clamp(2 * tile, 20 * tile), tile)
    }
}
