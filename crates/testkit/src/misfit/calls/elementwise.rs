//! Calls of functions of one, two and three tensors.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::DType::{BF16, F32, I32, U8};
use kiln_core::ops::*;
use kiln_core::{Backend, Shape};

pub(super) fn elementwise<B: Backend>() -> Vec<Call<B>> {
    let p = UnaryParams::new(Unary::Relu, 5, 0.0, 0.0);
    let value = |call: Call<B>| {
        let values = field!(UnaryParams, a).start..field!(UnaryParams, b).end;
        let code = field!(UnaryParams, op);
        call.free(values).small(code).free(field!(UnaryParams, pad))
    };
    let (a, b, mask) = (shape(&[2, 1, 3]), shape(&[2, 4, 1]), shape(&[4, 3]));
    let three =
        |op, code, mask: Option<&Shape>| BroadcastParams::new(op, code, &a, &b, mask).expect("they broadcast").0;
    let broadcast = |call: Call<B>, masked: bool| {
        let used = if masked { 3 } else { 0 };
        call.free(unused(field!(BroadcastParams, shape), 3))
            .free(unused(field!(BroadcastParams, a), 3))
            .free(unused(field!(BroadcastParams, b), 3))
            .free(unused(field!(BroadcastParams, mask), used))
            .small(field!(BroadcastParams, rank))
            .small(field!(BroadcastParams, op))
    };
    let (add, eq) = (Binary::Add as u32, Compare::Eq as u32);
    let select = three("select", 0, Some(&mask));
    vec![
        value(call("unary", p, [(F32, 5); 2], |on: &B, p, [x, y]| on.unary(p, x, y))),
        value(call("unary_grad", p, [(F32, 5); 4], |on: &B, p, [x, y, g, dx]| {
            on.unary_grad(p, x, y, g, dx)
        })),
        broadcast(
            call(
                "binary",
                three("binary", add, None),
                [(F32, 6), (F32, 8), (F32, 24)],
                |on: &B, p, [a, b, y]| on.binary(p, a, b, y),
            ),
            false,
        ),
        broadcast(
            call(
                "compare",
                three("compare", eq, None),
                [(F32, 6), (F32, 8), (U8, 24)],
                |on: &B, p, [a, b, m]| on.compare(p, a, b, m),
            ),
            false,
        ),
        broadcast(
            call(
                "integer_binary",
                three("integer_binary", Integer::Add as u32, None),
                [(I32, 6), (I32, 8), (I32, 24)],
                |on: &B, p, [a, b, y]| on.integer_binary(p, a, b, y),
            ),
            false,
        ),
        broadcast(
            call(
                "select",
                select,
                [(U8, 12), (F32, 6), (F32, 8), (F32, 24)],
                |on: &B, p, [m, a, b, y]| on.select(p, m, a, b, y),
            ),
            true,
        )
        .free(field!(BroadcastParams, op)),
        call("cast", [0u8; 0], [(F32, 5), (I32, 5)], |on: &B, _, [x, y]| {
            on.cast(x, y)
        })
        .untyped(0)
        .untyped(1),
        call(
            "cast_each",
            [0u8; 0],
            [(BF16, 5), (BF16, 3), (F32, 5), (F32, 3)],
            |on: &B, _, [a, b, x, y]| on.cast_each(&[a, b], &mut [x, y]),
        ),
        call("fill", [0u8; 0], [(F32, 5)], |on: &B, _, [y]| on.fill(1.0, y))
            .untyped(0)
            .unsized_(0),
        call("accumulate", [0u8; 0], [(F32, 5); 2], |on: &B, _, [x, y]| {
            on.accumulate(x, y)
        }),
    ]
}
