//! Calls of views and index ops.

use super::fields::{call, field, shape, unused};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32, U8};
use kiln_core::ops::*;

pub(super) fn indexing<B: Backend>() -> Vec<Call<B>> {
    // A transposed view with negative strides: any other stride leads out of the tensor or to one element twice.
    let view = ViewParams::new(&shape(&[3, 5]), &[-1, -3], 14);
    let of_view = |call: Call<B>| {
        call.free(unused(field!(ViewParams, shape), 2))
            .free(unused(field!(ViewParams, strides), 2))
            .small(field!(ViewParams, rank))
            .free(field!(ViewParams, pad))
    };
    let p = IndexParams::new("index", &shape(&[2, 4, 3]), 1, 5).expect("an axis");
    let one_hot = IndexParams {
        outer: 5,
        size: 4,
        inner: 1,
        count: 1,
    };
    let crop = CropImagesParams {
        images: 2,
        height: 3,
        width: 4,
        channels: 5,
        batch: 3,
        rows: 2,
        columns: 7,
    };
    let (source, result) = ((F32, 24), (F32, 30));
    vec![
        of_view(call("view_read", view, [(F32, 15); 2], |on: &B, p, [x, y]| {
            on.view_read(p, x, y)
        }))
        // A view that is only read may have other strides that stay inside, and read an element more than once.
        .free(field!(ViewParams, strides))
        .roomy(0),
        call(
            "join",
            [0u8; 0],
            [(F32, 3), (F32, 4), (F32, 7)],
            |on: &B, _, [a, b, y]| {
                let parts = vec![&*a, &*b];
                on.join(&mut [Join { parts, whole: y }])
            },
        ),
        call(
            "split",
            [0u8; 0],
            [(F32, 7), (F32, 3), (F32, 4)],
            |on: &B, _, [x, a, b]| {
                let parts = vec![(0, a), (3, b)];
                on.split(&mut [Split { whole: x, parts }])
            },
        )
        // A part that is shorter is another stretch of the whole.
        .roomy(0)
        .unsized_(1)
        .unsized_(2),
        of_view(call("view_write", view, [(F32, 15); 2], |on: &B, p, [x, y]| {
            on.view_write(p, x, y)
        }))
        .roomy(1),
        call("gather", p, [source, (I32, 30), result], |on: &B, p, [x, i, y]| {
            on.gather(p, x, i, y)
        }),
        call("scatter_add", p, [result, (I32, 30), source], |on: &B, p, [x, i, y]| {
            on.scatter_add(p, x, i, y)
        }),
        call("index_select", p, [source, (I32, 5), result], |on: &B, p, [x, i, y]| {
            on.index_select(p, x, i, y)
        }),
        call("index_add", p, [result, (I32, 5), source], |on: &B, p, [x, i, y]| {
            on.index_add(p, x, i, y)
        }),
        call("one_hot", one_hot, [(I32, 5), (F32, 20)], |on: &B, p, [i, y]| {
            on.one_hot(p, i, y)
        })
        .free(field!(IndexParams, inner).start..field!(IndexParams, count).end)
        .untyped(1),
        call(
            "crop_images",
            crop,
            [(U8, 120), (I32, 12), (F32, 5 * 257), (F32, 210)],
            |on: &B, p, [x, windows, values, y]| on.crop_images(p, x, windows, values, y),
        ),
    ]
}
