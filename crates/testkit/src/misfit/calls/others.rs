//! Calls of losses and random ops.

use super::fields::{call, field, shape};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32};
use kiln_core::ops::*;

pub(super) fn others<B: Backend>() -> Vec<Call<B>> {
    let softmax = SoftmaxParams::new("softmax", &shape(&[2, 3, 4]), 1, false).expect("an axis");
    let of_softmax = |call: Call<B>| call.small(field!(SoftmaxParams, log)).free(field!(SoftmaxParams, pad));
    let loss = CrossEntropyParams::new("loss", &shape(&[3, 4]), &shape(&[3]), 0.1, -100).expect("labels");
    let of_loss = |call: Call<B>| {
        call.free(field!(CrossEntropyParams, smoothing).start..field!(CrossEntropyParams, ignore_index).end)
    };
    let ctc = CtcParams::new(
        &shape(&[3, 2, 4]),
        &shape(&[2, 3]),
        &shape(&[2]),
        &shape(&[2]),
        0,
        false,
    )
    .expect("a batch");
    // Another class may be the blank.
    let of_ctc = |call: Call<B>| {
        call.free(field!(CtcParams, pad))
            .small(field!(CtcParams, zero_infinity))
            .small(field!(CtcParams, blank))
    };
    let random = RandomParams::new("random", Distribution::Bernoulli, 5, (0.5, 0.0), 1, 2).expect("a probability");
    let of_random = |call: Call<B>| {
        call.free(field!(RandomParams, seed).start..field!(RandomParams, stream).end)
            .small(field!(RandomParams, distribution))
    };
    vec![
        of_softmax(call("softmax", softmax, [(F32, 24); 2], |on: &B, p, [x, y]| {
            on.softmax(p, x, y)
        })),
        of_softmax(call(
            "softmax_grad",
            softmax,
            [(F32, 24); 3],
            |on: &B, p, [y, g, dx]| on.softmax_grad(p, y, g, dx),
        )),
        of_loss(call(
            "cross_entropy",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3), (F32, 3)],
            |on: &B, p, [x, labels, w, loss, weight]| on.cross_entropy(p, x, labels, Some(w), loss, weight),
        )),
        of_loss(call(
            "cross_entropy_mean",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 1), (F32, 1)],
            |on: &B, p, [x, labels, w, loss, total]| on.cross_entropy_mean(p, x, labels, Some(w), loss, total),
        )),
        of_loss(call(
            "cross_entropy_grad",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 1), (F32, 1), (F32, 12)],
            |on: &B, p, [x, labels, w, g, total, dx]| on.cross_entropy_grad(p, x, labels, Some(w), g, Some(total), dx),
        )),
        of_loss(call(
            "cross_entropy_grad",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3), (F32, 12)],
            |on: &B, p, [x, labels, w, g, dx]| on.cross_entropy_grad(p, x, labels, Some(w), g, None, dx),
        )),
        of_loss(call(
            "cross_entropy_grad_in_place",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3)],
            |on: &B, p, [x, labels, w, g]| on.cross_entropy_grad_in_place(p, x, labels, Some(w), g, None),
        )),
        of_loss(call(
            "cross_entropy_with_grad",
            loss,
            [(F32, 12), (I32, 3), (F32, 4), (F32, 3), (F32, 3)],
            |on: &B, p, [x, labels, w, loss, weight]| on.cross_entropy_with_grad(p, x, labels, Some(w), loss, weight),
        )),
        of_ctc(call(
            "ctc_loss",
            ctc,
            [(F32, 24), (I32, 6), (I32, 2), (I32, 2), (F32, 2), (F32, 42)],
            |on: &B, p, [x, t, times, lengths, loss, alpha]| on.ctc_loss(p, x, t, times, lengths, loss, alpha),
        ))
        .untyped(0),
        of_ctc(call(
            "ctc_loss_grad",
            ctc,
            [(F32, 24), (I32, 6), (I32, 2), (I32, 2), (F32, 42), (F32, 2), (F32, 24)],
            |on: &B, p, [x, t, times, lengths, alpha, g, dx]| on.ctc_loss_grad(p, x, t, times, lengths, alpha, g, dx),
        )),
        of_random(call("random", random, [(I32, 1), (F32, 5)], |on: &B, p, [s, y]| {
            on.random(p, s, y)
        }))
        .untyped(1),
        of_random(call(
            "dropout",
            random,
            [(I32, 1), (F32, 5), (F32, 5)],
            |on: &B, p, [s, x, y]| on.dropout(p, s, x, y),
        ))
        .free(field!(RandomParams, distribution)),
        call("tick", [0u8; 0], [(I32, 1); 2], |on: &B, _, [counter, ticket]| {
            on.tick(counter, ticket)
        }),
        call(
            "tick_each",
            [0u8; 0],
            [(I32, 1); 4],
            |on: &B, _, [a, b, x, y]: &mut [B::Buffer; 4]| on.tick_each(&mut [a, b], &mut [x, y]),
        ),
    ]
}
