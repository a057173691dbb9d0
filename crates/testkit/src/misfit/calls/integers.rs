//! Calls of reductions and of joins by index of integers.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::I32;
use kiln_core::ops::*;

pub(super) fn integers<B: Backend>() -> Vec<Call<B>> {
    let (fold, _) = ReduceParams::new("reduce", Reduce::Sum, &shape(&[2, 3, 4]), &[1], false).expect("an axis");
    let axis = AxisParams::new("axis", &shape(&[2, 3, 4]), 1, 0, false).expect("an axis");
    let at = IndexParams::new("index", &shape(&[2, 4, 3]), 1, 5).expect("an axis");
    vec![
        call("integer_reduce", fold, [(I32, 24), (I32, 8)], |on: &B, p, [x, y]| {
            on.integer_reduce(IntegerFold::Sum, p, x, y)
        })
        .free(unused(field!(ReduceParams, shape), 3))
        .small(field!(ReduceParams, rank))
        .free(field!(ReduceParams, op))
        .free(field!(ReduceParams, pad)),
        call("integer_cumsum", axis, [(I32, 24); 2], |on: &B, p, [x, y]| {
            on.integer_cumsum(p, x, y)
        })
        .small(field!(AxisParams, reverse))
        .free(field!(AxisParams, pad))
        .free(field!(AxisParams, k)),
        call(
            "integer_scatter",
            at,
            [(I32, 30), (I32, 30), (I32, 24)],
            |on: &B, p, [x, i, y]| on.integer_scatter(IntegerFold::Sum, p, x, i, y),
        ),
    ]
}
