//! The choice of a plan for a product: by a table, and on tensor cores by the least modelled time.

use super::plan::{Algorithm, Plan, SHORTEST_PART, fold, rows_aligned};
use crate::tensor_tile::{Multiprocessors, part_counts, parts_clocks};
use kiln_core::DType;
use kiln_core::ops::MatmulParams;

/// Blocks for each multiprocessor that a split product of f32 aims at: small tiles leave room for several.
const BLOCKS_EACH: u64 = 2;

impl Plan {
    /// The plan for a product on a device with these multiprocessors. A batch of A times one B counts as one product
    /// of all rows, which is how it is computed.
    ///
    /// | product | variant |
    /// |---|---|
    /// | k < 8 | naive: nothing is used often enough to be worth a tile |
    /// | f32; at most 32×32; short k or many in a batch | tiled: larger tiles would be mostly empty |
    /// | f32; 128×128 tiles for every multiprocessor | registers128 |
    /// | f32, else | registers64 |
    /// | bf16, f16, or f32 as TF32; rows of 16 bytes | the tile and the parts of k of the least modelled time |
    /// | bf16, f16, or f32 as TF32; else | tensor64x64-any |
    ///
    /// Rows that are no multiple of 16 bytes arrive by narrower copies, more of which have to be under way: that takes
    /// the small tiles, of which more blocks run beside each other. Where tiles are too few to fill the multiprocessors, the
    /// sum along k is split, into parts of at least 256, by the variants that can. Every device that the
    /// kernels load on (compute capability 8.0) has the tensor cores they use, but for products of warp groups (9.0), which are among
    /// the variants of modelled time where the device has them.
    pub fn choose(p: &MatmulParams, dtype: DType, on: Multiprocessors, tf32: bool) -> Self {
        let p = &fold(p);
        let tensor = dtype != DType::F32 || tf32;
        let fills = |a: Algorithm| a.tiles(p) >= on.count;
        if p.k < 8 {
            return Self::new(Algorithm::Naive);
        }
        if tensor && rows_aligned(p, dtype) {
            return fastest(p, dtype, on);
        }
        let algorithm = if tensor {
            Algorithm::Tensor64x64Any
        } else if p.m.max(p.n) <= 32 && (p.k <= 2 * SHORTEST_PART || fills(Algorithm::Tiled)) {
            Algorithm::Tiled
        } else if fills(Algorithm::Registers128) {
            Algorithm::Registers128
        } else {
            Algorithm::Registers64
        };
        let tiles = algorithm.tiles(p).max(1);
        let splits = (BLOCKS_EACH * on.count / tiles).min(p.k / SHORTEST_PART);
        Self::new(algorithm).split(splits as u32)
    }
}

/// The plan of the least modelled time among the tensor-core variants for rows of multiples of 16 bytes.
fn fastest(p: &MatmulParams, dtype: DType, on: Multiprocessors) -> Plan {
    let fits = |a: &Algorithm| *a != Algorithm::Tensor64x64Any && a.fits(p, dtype, on);
    let aligned = Algorithm::ALL.into_iter().filter(fits);
    let plans = aligned.flat_map(|a| part_counts(p.k / SHORTEST_PART).map(move |n| Plan::new(a).split(n as u32)));
    let timed = plans.filter_map(|plan| Some((clocks(plan, p, dtype, on)?, plan)));
    let best = timed.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(Plan::new(Algorithm::Tensor64x64), |(_, plan)| plan)
}

/// The modelled clocks of a plan, if it is on tensor cores.
fn clocks(plan: Plan, p: &MatmulParams, dtype: DType, on: Multiprocessors) -> Option<f64> {
    let tile = plan.algorithm().tensor_tile()?;
    let (part, parts) = plan.parts(p.k);
    let (steps, parts) = (tile.steps(part * dtype.size() as u64), u64::from(parts));
    let (blocks, sums) = (plan.algorithm().tiles(p) * parts, p.batches() as u64 * p.m * p.n);
    Some(tile.clocks(blocks, steps, on.count) + parts_clocks(sums, parts, on.count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_core::Shape;

    fn product(batch: usize, m: usize, n: usize, k: usize) -> MatmulParams {
        let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
        let (a, b) = (shape(&[batch, m, k]), shape(&[batch, k, n]));
        MatmulParams::new("matmul", &a, &b, false, false).expect("they fit").0
    }

    const A100: Multiprocessors = Multiprocessors {
        count: 108,
        warpgroups: false,
    };
    const H100: Multiprocessors = Multiprocessors {
        count: 132,
        warpgroups: true,
    };
    /// As many multiprocessors as an H100, without products of warp groups.
    const LARGE: Multiprocessors = Multiprocessors {
        warpgroups: false,
        ..H100
    };

    fn chosen(batch: usize, m: usize, n: usize, k: usize) -> (Algorithm, u32) {
        let plan = fastest(&product(batch, m, n, k), DType::BF16, LARGE);
        (plan.algorithm(), plan.splits())
    }

    #[test]
    fn tiles_are_full_and_fill_the_device() {
        assert_eq!(chosen(1, 8192, 8192, 8192), (Algorithm::Tensor128x256, 1));
        // Wider tiles would be half empty.
        assert_eq!(chosen(768, 1024, 64, 1024).0, Algorithm::Tensor128x64);
        // 72 tiles of the largest kind leave half of the multiprocessors idle: parts of k give them work.
        let (algorithm, splits) = chosen(1, 768, 3072, 8192);
        let [rows, columns] = algorithm.tile();
        let blocks = 768u64.div_ceil(rows) * 3072u64.div_ceil(columns) * u64::from(splits);
        assert!(splits > 1 && blocks >= 132, "{algorithm:?} in {splits}");
        // Too short to be worth parts.
        assert_eq!(chosen(1, 64, 64, 128).1, 1);
    }

    #[test]
    fn large_products_are_those_of_warp_groups_where_there_are_such() {
        let p = product(1, 65536, 768, 3072);
        let by = |dtype, on| fastest(&p, dtype, on).algorithm();
        for dtype in [DType::BF16, DType::F16] {
            let tile = by(dtype, H100).tensor_tile().expect("a variant on tensor cores");
            assert!(tile.warpgroups(), "{tile:?}");
        }
        for (dtype, on) in [(DType::F32, H100), (DType::BF16, LARGE)] {
            let tile = by(dtype, on).tensor_tile().expect("a variant on tensor cores");
            assert!(!tile.warpgroups(), "{tile:?}");
        }
        // Rows of 10 elements cannot be copied 16 bytes at a time.
        let odd = product(1, 4096, 4096, 4090);
        assert_eq!(
            Plan::choose(&odd, DType::BF16, H100, false).algorithm(),
            Algorithm::Tensor64x64Any
        );
    }

    #[test]
    fn no_plan_is_modelled_slower_than_the_smallest_tile_in_one_part() {
        for (m, n, k) in [
            (1, 1, 8),
            (64, 4096, 512),
            (200, 776, 1000),
            (4096, 16, 4096),
            (3000, 3000, 64),
            (0, 8, 8),
        ] {
            let p = product(1, m, n, k);
            let time = |plan| clocks(plan, &p, DType::F16, A100).expect("a tensor-core variant");
            assert!(
                time(fastest(&p, DType::F16, A100)) <= time(Plan::new(Algorithm::Tensor64x64)),
                "{p:?}"
            );
        }
    }
}
