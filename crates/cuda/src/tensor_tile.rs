//! The tiles of products and convolutions on tensor cores, and the modelled time by which they are chosen.
//!
//! The model knows two numbers of a tile's main loop: how many blocks a multiprocessor holds, by their registers, and the
//! clocks that a full one takes for a step along k, of 64 bytes or, of warp groups, 128. Those of `mma.sync` follow from what the loop asks of a multiprocessor of
//! compute capability 9.0: instructions issued (4 a clock), products (a `mma.sync` of m16n8k16 takes each of the 4 tensor
//! cores 6.35 clocks: 63 % of the peak, Luo et al., arXiv 2402.13499), 128 bytes of shared memory and 37 bytes from L2 a
//! clock (te42kyfo/gpu-benches), taken together as the root of the sum of their squares: modelled, not measured. Those of warp groups
//! are what products took on an H200, but for the narrowest tile, whose clocks are modelled. All serve to compare plans with each other.

/// Clocks before the first product of a block and after its last one: the first copies' way, and the results'.
const FRAME: f64 = 3200.0;
/// The fewest clocks of a step, however little else there is to do: the way of a copy from L2, which is two steps ahead.
const STEP: f64 = 400.0;
/// Clocks of a second launch, which adds up the parts of a sum.
const LAUNCH: f64 = 2400.0;
/// Bytes of partial sums that a multiprocessor writes or reads a clock.
const PART_BYTES: f64 = 24.0;

/// The multiprocessors of a device, as far as the choice of a kernel depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessors {
    /// How many there are.
    pub count: u64,
    /// Their tensor cores take products of warp groups (`wgmma`): those of compute capability 9.0, and no other, do.
    pub warpgroups: bool,
}

/// A tile of `kernels/src/common/tensor_tile.cuh`, or of `warpgroup_tile.cuh`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TensorTile {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of a step along k.
    step: u64,
    /// Blocks on a multiprocessor.
    resident: u64,
    /// Clocks of a step of all of them.
    clocks: f64,
}

impl TensorTile {
    pub(crate) const T64X64: Self = Self::new([64, 64], 64, 64, 6, 1800.0);
    pub(crate) const T128X64: Self = Self::new([128, 64], 64, 64, 4, 1830.0);
    pub(crate) const T128X128: Self = Self::new([128, 128], 128, 64, 2, 1460.0);
    pub(crate) const T128X256: Self = Self::new([128, 256], 256, 64, 1, 1300.0);
    pub(crate) const WARPGROUP_128X64: Self = Self::new([128, 64], 256, 128, 2, 1200.0);
    pub(crate) const WARPGROUP_128X128: Self = Self::new([128, 128], 256, 128, 2, 1850.0);
    pub(crate) const WARPGROUP_128X256: Self = Self::new([128, 256], 256, 128, 1, 1350.0);

    const fn new([rows, columns]: [u64; 2], threads: u32, step: u64, resident: u64, clocks: f64) -> Self {
        Self {
            rows,
            columns,
            threads,
            step,
            resident,
            clocks,
        }
    }

    /// True if only multiprocessors with products of warp groups have it.
    pub(crate) fn warpgroups(&self) -> bool {
        self.step == 128
    }

    /// The steps of a sum of terms whose operands have `bytes` bytes a row.
    pub(crate) fn steps(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.step)
    }

    /// The number of tiles of a result.
    pub(crate) fn tiles(&self, rows: u64, columns: u64) -> u64 {
        rows.div_ceil(self.rows).saturating_mul(columns.div_ceil(self.columns))
    }

    /// The modelled clocks of `blocks` blocks that make `steps` steps each.
    pub(crate) fn clocks(&self, blocks: u64, steps: u64, multiprocessors: u64) -> f64 {
        // The busiest multiprocessor has this many blocks, a few at a time.
        let blocks = blocks.div_ceil(multiprocessors.max(1));
        if blocks == 0 {
            return 0.0;
        }
        let round = |blocks: u64| match blocks {
            0 => 0.0,
            _ => steps as f64 * (self.clocks * blocks as f64 / self.resident as f64).max(STEP),
        };
        // Blocks that share a multiprocessor drift apart, so that the products of the others hide what one does before and after its own.
        let others = (blocks.div_ceil(self.resident) - 1) as f64 / self.resident as f64;
        (blocks / self.resident) as f64 * round(self.resident) + round(blocks % self.resident) + FRAME * (1.0 + others)
    }
}

/// The modelled clocks of writing and adding up `sums` results' partial sums in `parts` parts; nothing for one part.
pub(crate) fn parts_clocks(sums: u64, parts: u64, multiprocessors: u64) -> f64 {
    match parts {
        0 | 1 => 0.0,
        _ => LAUNCH + 2.0 * 4.0 * (sums as f64 * parts as f64) / multiprocessors.max(1) as f64 / PART_BYTES,
    }
}

/// Numbers of parts that are tried: every small one, and fewer of the larger ones.
pub(crate) fn part_counts(most: u64) -> impl Iterator<Item = u64> {
    let next = |&n: &u64| Some(n + (n / 6).max(1));
    std::iter::successors(Some(1), next).take_while(move |&n| n <= most.max(1))
}
