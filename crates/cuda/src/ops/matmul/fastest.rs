//! The plan of the least modelled time for a product on tensor cores.

use super::plan::{Algorithm, Plan, SHORTEST_PART};
use crate::ops::tensor_tile::{part_counts, parts_clocks};
use kiln_core::DType;
use kiln_core::ops::MatmulParams;

/// The plan of the least modelled time among the tensor-core variants for rows of multiples of 16 bytes.
pub(super) fn fastest(p: &MatmulParams, dtype: DType, multiprocessors: u64) -> Plan {
    let aligned = Algorithm::ALL.into_iter().filter(|&a| a != Algorithm::Tensor64x64Any);
    let plans = aligned.flat_map(|a| part_counts(p.k / SHORTEST_PART).map(move |n| Plan::new(a).split(n as u32)));
    let timed = plans.filter_map(|plan| Some((clocks(plan, p, dtype, multiprocessors)?, plan)));
    let best = timed.min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(Plan::new(Algorithm::Tensor64x64), |(_, plan)| plan)
}

/// The modelled clocks of a plan, if it is on tensor cores.
fn clocks(plan: Plan, p: &MatmulParams, dtype: DType, multiprocessors: u64) -> Option<f64> {
    let tile = plan.algorithm().tensor_tile()?;
    let (part, parts) = plan.parts(p.k);
    let (steps, parts) = ((part * dtype.size() as u64).div_ceil(64), u64::from(parts));
    let (blocks, sums) = (plan.algorithm().tiles(p) * parts, p.batches() as u64 * p.m * p.n);
    Some(tile.clocks(blocks, steps, multiprocessors) + parts_clocks(sums, parts, multiprocessors))
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

    fn chosen(batch: usize, m: usize, n: usize, k: usize) -> (Algorithm, u32) {
        let plan = fastest(&product(batch, m, n, k), DType::BF16, 132);
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
            let time = |plan| clocks(plan, &p, DType::F16, 108).expect("a tensor-core variant");
            assert!(
                time(fastest(&p, DType::F16, 108)) <= time(Plan::new(Algorithm::Tensor64x64)),
                "{p:?}"
            );
        }
    }
}
