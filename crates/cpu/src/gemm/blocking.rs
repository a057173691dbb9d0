//! The sizes of the blocks of a product, as this machine's caches have room for them.
//!
//! The names are BLIS's: `MC` rows of A, `NC` columns of B, `KC` steps of k. Sums are rounded where a block of k ends, so
//! [`KC`](crate::gemm::UNIT) is the same everywhere and results depend on the width of vectors alone. Machines differ in `MC` and
//! `NC`, which say who computes an element and when, but not how.

use crate::Machine;
use crate::gemm::kernels::{Gemm, Kernels};
use crate::gemm::plan::GemmShape;
use crate::gemm::{BLOCK_WORK, SERIAL_THRESHOLD, UNIT};
use kiln_core::DType;
use std::sync::OnceLock;

/// How products of one element type are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocking {
    /// Rows of a block of C, at most, that stay with a block of B.
    pub(crate) mc: usize,
    /// Columns of B of which a block of k stays in the second-level cache.
    pub(crate) nc: usize,
    /// Elements of B that a task packs for itself.
    pub(crate) own: usize,
    /// Bytes after which lines share the ways of a set of the first-level cache.
    pub(crate) l1_way: usize,
}

/// Caches of which a machine tells nothing: 32 KiB in eight ways, and a second level of 1 MiB.
const L1_WAY: usize = 4096;
const L2: usize = 1 << 20;

/// Hardware threads that share the second level of a core of its own.
const THREADS_OF_A_CORE: usize = 2;

impl Blocking {
    /// The blocks of elements of `dtype` on `machine`.
    pub(crate) fn for_machine(machine: &Machine, dtype: DType) -> Self {
        let cache = |level| machine.caches.iter().find(|c| c.level == level && c.size > 0);
        let l1_way = cache(1).map_or(L1_WAY, |c| c.size / c.ways.max(1));
        let l2 = cache(2).map_or(L2, |c| c.size / c.threads.div_ceil(THREADS_OF_A_CORE).max(1));
        let l2 = l2 / dtype.size();
        Blocking {
            // Ten and more tiles read a panel that comes from the third level once.
            mc: 480,
            // Three eighths: the rest is for A, C and the next block. 256 columns of f32 on Zen 4, and 512 on Sapphire and Emerald
            // Rapids, were the fastest there.
            nc: l2 * 3 / 8 / UNIT,
            own: l2 / 4,
            l1_way: l1_way.max(64),
        }
    }

    /// The blocks for elements of `A` on this machine.
    pub(crate) fn this<A: Gemm>() -> &'static Blocking {
        static FOUND: OnceLock<[Blocking; 2]> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let machine = Machine::this();
            [DType::F32, DType::F64].map(|dtype| Blocking::for_machine(&machine, dtype))
        });
        &found[usize::from(A::DTYPE == DType::F64)]
    }

    /// True if rows that are `step` bytes apart fall into one set of the first-level cache, which holds few of their lines.
    pub(crate) fn rows_alias(&self, step: usize) -> bool {
        step.is_multiple_of(self.l1_way)
    }
}

/// Blocks of a large product, about: enough to share.
const TASKS: usize = 16;

/// Elements of B that are packed at once where C is small, and what that is: the copy is then no more than what a third-level
/// cache keeps beside the operands, and C is seldom read again.
const PACKED_AT_ONCE: usize = 1 << 20;
const SMALL_C: usize = 1 << 20;

/// Rows of a block of few rows.
const FEW_ROWS: usize = 48;

/// The least multiple of `unit` in which `size` falls into as few parts as parts of `most` would be.
fn even(size: usize, most: usize, unit: usize) -> usize {
    size.div_ceil(size.div_ceil(most.max(1)).max(1))
        .max(1)
        .next_multiple_of(unit)
}

/// Rows and columns of the blocks of C that tasks compute, and the steps of k that they take at once.
impl Blocking {
    /// Steps of k that a product takes at once when all tasks share the panels of B.
    pub(crate) fn k_step(&self, s: &GemmShape) -> usize {
        let &GemmShape { m, n, k, .. } = s;
        if m.saturating_mul(n) > SMALL_C || k.saturating_mul(n) <= PACKED_AT_ONCE {
            return k.max(1);
        }
        let parts = k.div_ceil((PACKED_AT_ONCE / n).max(UNIT));
        k.div_ceil(parts).next_multiple_of(UNIT)
    }

    /// Blocks of tasks that share the panels of B.
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
        // Some A are copied for every block.
        let copied = s.trans_a || self.rows_alias(k * size_of::<A>());
        let nc = if copied { 2 * self.nc } else { self.nc };
        let columns = even(n, nc.max(panel), panel);
        let task = (work / TASKS).clamp(4 * BLOCK_WORK, 128 * BLOCK_WORK);
        let rows = task / columns.saturating_mul(k).max(1);
        [even(m, rows.clamp(2 * tile, self.mc.max(2 * tile)), tile), columns]
    }

    /// Blocks of tasks that pack the columns of B that they need.
    pub(crate) fn own<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> [usize; 2] {
        let &GemmShape { m, n, k, .. } = s;
        let work = s.work();
        if work <= SERIAL_THRESHOLD {
            return [m, n];
        }
        let panel = kernels.panel();
        let tasks = (work / SERIAL_THRESHOLD).clamp(2, TASKS / 2);
        let most = n.div_ceil(tasks).min(self.own / k).max(panel);
        [even(m, self.mc, kernels.tile()), even(n, most, panel)]
    }

    /// Blocks of tasks that read B where it lies.
    pub(crate) fn thin<A: Gemm>(&self, s: &GemmShape, kernels: &Kernels<A>) -> [usize; 2] {
        let &GemmShape { m, n, k, .. } = s;
        if s.work() <= SERIAL_THRESHOLD {
            return [m, n];
        }
        let (rows, panel) = (m.min(FEW_ROWS), kernels.panel());
        let most = BLOCK_WORK / rows.saturating_mul(k).max(1);
        [rows, even(n, most.clamp(panel, 8 * panel), panel)]
    }

    /// Columns of C that tasks compute as rows of its transpose.
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
