//! Calls of reductions, along one axis and over several.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32};
use kiln_core::ops::*;

pub(super) fn reductions<B: Backend>() -> Vec<Call<B>> {
    let (p, _) = ReduceParams::new("reduce", Reduce::Sum, &shape(&[2, 3, 4]), &[1], false).expect("an axis");
    let axis = |k| AxisParams::new("axis", &shape(&[2, 3, 4]), 1, k, false).expect("an axis");
    let of_axis = |call: Call<B>| call.small(field!(AxisParams, reverse)).free(field!(AxisParams, pad));
    let k = field!(AxisParams, k);
    vec![
        call("reduce", p, [(F32, 24), (F32, 8)], |on: &B, p, [x, y]| {
            on.reduce(p, x, y)
        })
        .free(unused(field!(ReduceParams, shape), 3))
        .small(field!(ReduceParams, rank))
        .small(field!(ReduceParams, op))
        .free(field!(ReduceParams, pad)),
        of_axis(call(
            "arg_reduce",
            axis(0),
            [(F32, 24), (I32, 8)],
            |on: &B, p, [x, i]| on.arg_reduce(p, x, i),
        ))
        .free(k.clone())
        .untyped(0),
        of_axis(call(
            "add_correct",
            AxisParams::new("axis", &shape(&[2, 4]), 1, 0, false).expect("an axis"),
            [(F32, 8), (I32, 2), (F32, 1)],
            |on: &B, p, [x, labels, sum]| on.add_correct(p, x, labels, 0.5, sum),
        ))
        .free(k.clone())
        .untyped(0),
        of_axis(call("cumsum", axis(0), [(F32, 24); 2], |on: &B, p, [x, y]| {
            on.cumsum(p, x, y)
        }))
        .free(k),
        of_axis(call(
            "top_k",
            axis(2),
            [(F32, 24), (F32, 16), (I32, 16)],
            |on: &B, p, [x, v, i]| on.top_k(p, x, v, i),
        )),
    ]
}
