//! Calls of matrix products and attention.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::F32;
use kiln_core::ops::*;

pub(super) fn products<B: Backend>() -> Vec<Call<B>> {
    let marked = |call: Call<B>, rank| {
        call.free(unused(field!(MatmulParams, batch), rank))
            .free(unused(field!(MatmulParams, a_batch), rank))
            .free(unused(field!(MatmulParams, b_batch), rank))
            .small(field!(MatmulParams, batch_rank))
            .small(field!(MatmulParams, trans_a))
            .small(field!(MatmulParams, trans_b))
            .small(field!(MatmulParams, activation))
    };
    let product = |a: &[usize], b: &[usize], [ta, tb]: [bool; 2]| {
        MatmulParams::new("matmul", &shape(a), &shape(b), ta, tb)
            .expect("they fit")
            .0
    };
    let (batched, one) = (
        product(&[2, 5, 3], &[2, 5, 4], [true, false]),
        product(&[3, 5], &[4, 5], [false, true]),
    );
    let mut all = vec![
        marked(
            call(
                "matmul",
                batched,
                [(F32, 30), (F32, 40), (F32, 24)],
                |on: &B, p, [a, b, c]| on.matmul(p, a, b, c),
            ),
            1,
        ),
        marked(
            call(
                "linear",
                one,
                [(F32, 15), (F32, 20), (F32, 4), (F32, 12)],
                |on: &B, p, [x, w, b, y]| on.linear(p, x, w, Some(b), y),
            ),
            0,
        ),
        marked(
            call(
                "linear_grad",
                MatmulParams {
                    activation: Activation::Relu as u32,
                    ..one
                },
                [
                    (F32, 15),
                    (F32, 20),
                    (F32, 12),
                    (F32, 12),
                    (F32, 15),
                    (F32, 20),
                    (F32, 4),
                ],
                |on: &B, p, [x, w, y, g, dx, dw, db]| {
                    let of = LinearInputs { x, w, y: Some(y) };
                    let to = LinearGrads {
                        dx: Some(dx),
                        dw: Some(dw),
                        db: Some(db),
                    };
                    on.linear_grad(p, &of, g, to)
                },
            ),
            0,
        ),
    ];
    // A stored as it is and transposed, with few columns and with many: backends have other algorithms for these.
    for (trans_a, columns) in [(false, 1), (false, 70), (true, 1), (true, 70)] {
        let a: [usize; 2] = if trans_a { [7, 40] } else { [40, 7] };
        let p = product(&a, &[7, columns], [trans_a, false]);
        all.push(marked(
            call(
                "matmul",
                p,
                [(F32, 280), (F32, 7 * columns), (F32, 40 * columns)],
                |on: &B, p, [a, b, c]| on.matmul(p, a, b, c),
            ),
            0,
        ));
    }
    let (p, _) = AttentionParams::new("attention", &shape(&[2, 3, 24]), 2, true).expect("heads fit");
    let attention = |call: Call<B>| {
        call.free(field!(AttentionParams, scale))
            .small(field!(AttentionParams, causal))
            .free(field!(AttentionParams, pad))
    };
    all.push(attention(call(
        "attention",
        p,
        [(F32, 144), (F32, 48), (F32, 12)],
        |on: &B, p, [x, y, l]| on.attention(p, x, y, l),
    )));
    all.push(attention(call(
        "attention_grad",
        p,
        [(F32, 144), (F32, 48), (F32, 12), (F32, 48), (F32, 144)],
        |on: &B, p, [x, y, l, g, dx]| on.attention_grad(p, x, y, l, g, dx),
    )));
    all
}
