//! Calls of matrix products and attention.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32, U8};
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
                |on: &B, p, [x, w, b, y]| on.linear(p, x, w, Some(b), None, y),
            ),
            0,
        ),
        marked(
            call(
                "linear",
                MatmulParams {
                    activation: Activation::Gelu as u32,
                    ..one
                },
                [(F32, 15), (F32, 20), (F32, 4), (F32, 12), (F32, 12)],
                |on: &B, p, [x, w, b, h, y]| on.linear(p, x, w, Some(b), Some(h), y),
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
                    (F32, 15),
                ],
                |on: &B, p, [x, w, y, g, dx, dw, db, at]| {
                    let f = Activation::GeluTanh;
                    let slope = Some(Slope { f, at });
                    let of = LinearInputs {
                        x: Some(x),
                        w,
                        y: Some(y),
                        slope,
                        norm: None,
                    };
                    let to = LinearGrads {
                        x: None,
                        dx: Some(dx),
                        dw: Some(dw),
                        db: Some(db),
                    };
                    on.linear_grad(p, &of, g, to)
                },
            ),
            0,
        ),
        marked(
            call(
                "linear_grad",
                one,
                [(F32, 15), (F32, 20), (F32, 12), (F32, 15), (F32, 20), (F32, 15)],
                |on: &B, p, [x, w, g, dx, dw, at]| {
                    let f = Activation::Gelu;
                    let slope = Some(Slope { f, at });
                    let of = LinearInputs {
                        x: None,
                        w,
                        y: None,
                        slope,
                        norm: None,
                    };
                    let to = LinearGrads {
                        x: Some(x),
                        dx: Some(dx),
                        dw: Some(dw),
                        db: None,
                    };
                    on.linear_grad(p, &of, g, to)
                },
            ),
            0,
        ),
        marked(
            call(
                "linear_grad",
                one,
                [
                    (F32, 15),
                    (F32, 20),
                    (F32, 12),
                    (F32, 15),
                    (F32, 20),
                    (F32, 15),
                    (F32, 3),
                    (F32, 3),
                    (F32, 5),
                    (F32, 5),
                ],
                |on: &B, p, [x, w, g, dx, dw, s, mean, rstd, scale, shift]| {
                    let rows = ResidualParams::new("residual_norm", &shape(&[3, 5]), 1e-5)?;
                    let of = LinearInputs {
                        x: None,
                        w,
                        y: None,
                        slope: None,
                        norm: Some(RowNorm {
                            p: rows,
                            s,
                            mean,
                            rstd,
                            scale,
                            shift,
                        }),
                    };
                    let to = LinearGrads {
                        x: Some(x),
                        dx: Some(dx),
                        dw: Some(dw),
                        db: None,
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
            .free(field!(AttentionParams, drop))
            .free(field!(AttentionParams, seed))
            .free(field!(AttentionParams, stream))
    };
    let free = |call: Call<B>| {
        call.free(field!(AttentionParams, mask))
            .free(field!(AttentionParams, bias))
    };
    all.push(free(attention(call(
        "attention",
        p,
        [(F32, 144), (F32, 48), (F32, 12)],
        |on: &B, p, [x, y, l]| on.attention(p, x, AttentionMasks::default(), y, l),
    ))));
    all.push(free(attention(call(
        "attention_grad",
        AttentionParams { drop: 0.25, ..p },
        [(F32, 144), (I32, 1), (F32, 48), (F32, 12), (F32, 48), (F32, 144)],
        |on: &B, p, [x, step, y, l, g, dx]| {
            let masks = AttentionMasks {
                step: Some(&*step),
                ..AttentionMasks::default()
            };
            on.attention_grad(p, x, masks, y, l, g, dx)
        },
    ))));
    let full = DotProductAttentionParams::strides([2, 2, 3, 3]);
    let masked = AttentionParams {
        mask: full,
        bias: full,
        drop: 0.25,
        ..p
    };
    all.push(attention(call(
        "attention",
        masked,
        [(F32, 144), (U8, 36), (F32, 36), (I32, 1), (F32, 48), (F32, 12)],
        |on: &B, p, [x, mask, bias, step, y, l]| {
            let masks = AttentionMasks {
                mask: Some(&*mask),
                bias: Some(&*bias),
                step: Some(&*step),
            };
            on.attention(p, x, masks, y, l)
        },
    )));
    all.extend(apart());
    all
}

/// Attention of operands that lie apart, with a mask and a bias, and without.
fn apart<B: Backend>() -> Vec<Call<B>> {
    let made = |heads_first| {
        DotProductAttentionParams::new("attention", [2, 4, 3, 8], [2, 5], 0.5, false, heads_first).expect("heads fit")
    };
    let full = DotProductAttentionParams::strides([2, 4, 3, 5]);
    let p = DotProductAttentionParams {
        mask: full,
        bias: full,
        ..made(true)
    };
    let fields = |call: Call<B>| {
        call.free(field!(DotProductAttentionParams, scale))
            .free(field!(DotProductAttentionParams, drop))
            .free(field!(DotProductAttentionParams, seed))
            .free(field!(DotProductAttentionParams, stream))
            .free(field!(DotProductAttentionParams, pad))
            .small(field!(DotProductAttentionParams, causal))
            .small(field!(DotProductAttentionParams, heads_first))
    };
    let unmasked = |call: Call<B>| {
        fields(call)
            .free(field!(DotProductAttentionParams, mask))
            .free(field!(DotProductAttentionParams, bias))
    };
    let [q, k, rows, scores] = [192, 160, 24, 120];
    vec![
        fields(call(
            "dot_product_attention",
            p,
            [
                (F32, q),
                (F32, k),
                (F32, k),
                (U8, scores),
                (F32, scores),
                (I32, 1),
                (F32, q),
                (F32, rows),
            ],
            |on: &B, p, [q, k, v, mask, bias, step, y, l]| {
                let masks = AttentionMasks {
                    mask: Some(&*mask),
                    bias: Some(&*bias),
                    step: Some(&*step),
                };
                on.dot_product_attention(p, AttentionOperands { q, k, v, masks }, y, l)
            },
        ))
        // Attention to the first keys of those that there is room for.
        .small(field!(DotProductAttentionParams, keys)),
        unmasked(call(
            "dot_product_attention_grad",
            made(false),
            [
                (F32, q),
                (F32, k),
                (F32, k),
                (F32, q),
                (F32, rows),
                (F32, q),
                (F32, q),
                (F32, k),
                (F32, k),
            ],
            |on: &B, p, [q, k, v, y, l, g, dq, dk, dv]| {
                let masks = AttentionMasks::default();
                on.dot_product_attention_grad(p, AttentionOperands { q, k, v, masks }, y, l, g, dq, dk, dv)
            },
        )),
    ]
}
