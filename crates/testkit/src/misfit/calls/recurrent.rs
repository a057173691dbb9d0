//! Calls of recurrent layers.

use super::fields::{call, field, shape};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32};
use kiln_core::ops::*;

pub(super) fn recurrent<B: Backend>() -> Vec<Call<B>> {
    let made = |cell: RecurrentCell, last| {
        let rows = 5 * cell.gates();
        let (x, w) = (shape(&[3, 2, rows]), shape(&[rows, 5]));
        RecurrentParams::new("recurrent", cell, &x, &w, false, last)
            .expect("shapes that fit")
            .0
    };
    let fields = |call: Call<B>| {
        call.small(field!(RecurrentParams, cell))
            .small(field!(RecurrentParams, reverse))
            .free(field!(RecurrentParams, pad))
    };
    let (lstm, gru) = (made(RecurrentCell::Lstm, true), made(RecurrentCell::Gru, false));
    vec![
        fields(call(
            "recurrent",
            lstm,
            [
                (F32, 120),
                (F32, 100),
                (F32, 20),
                (F32, 10),
                (F32, 10),
                (I32, 2),
                (F32, 150),
                (F32, 40),
            ],
            |on: &B, p, [x, w, b, h0, c0, lengths, kept, y]| {
                let of = RecurrentOperands {
                    w,
                    bias: Some(b),
                    h0,
                    c0: Some(c0),
                    lengths: Some(lengths),
                };
                on.recurrent(p, x, &of, Some(kept), y)
            },
        )),
        fields(call(
            "recurrent_grad",
            lstm,
            [
                (F32, 100),
                (F32, 10),
                (F32, 10),
                (F32, 150),
                (F32, 40),
                (F32, 40),
                (F32, 120),
                (F32, 30),
                (F32, 10),
                (F32, 10),
            ],
            |on: &B, p, [w, h0, c0, kept, y, g, dx, before, dh0, dc0]| {
                let of = RecurrentOperands {
                    w,
                    bias: None,
                    h0,
                    c0: Some(c0),
                    lengths: None,
                };
                let to = RecurrentGrads {
                    dx,
                    dr: None,
                    before,
                    dh0,
                    dc0: Some(dc0),
                };
                on.recurrent_grad(p, &of, kept, y, g, to)
            },
        )),
        fields(call(
            "recurrent_grad",
            gru,
            [
                (F32, 75),
                (F32, 15),
                (F32, 10),
                (I32, 2),
                (F32, 120),
                (F32, 30),
                (F32, 30),
                (F32, 90),
                (F32, 90),
                (F32, 30),
                (F32, 10),
            ],
            |on: &B, p, [w, b, h0, lengths, kept, y, g, dx, dr, before, dh0]| {
                let of = RecurrentOperands {
                    w,
                    bias: Some(b),
                    h0,
                    c0: None,
                    lengths: Some(lengths),
                };
                let to = RecurrentGrads {
                    dx,
                    dr: Some(dr),
                    before,
                    dh0,
                    dc0: None,
                };
                on.recurrent_grad(p, &of, kept, y, g, to)
            },
        )),
    ]
}
