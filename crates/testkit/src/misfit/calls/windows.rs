//! Calls of convolutions and poolings.

use super::fields::{call, field, shape};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{F32, I32};
use kiln_core::ops::*;
use std::mem::size_of;
use std::ops::Range;

pub(super) fn windows<B: Backend>() -> Vec<Call<B>> {
    // Any other stride, padding or dilation would give another number of windows.
    let window = Window::new([3, 3, 3]);
    let (conv, _) =
        ConvParams::new("conv3d", &shape(&[2, 5, 5, 5, 2]), &shape(&[4, 3, 3, 3, 2]), &window, 1).expect("they fit");
    let (pool, _) = PoolParams::new("pool3d", &shape(&[2, 5, 5, 5, 2]), &window, false, true).expect("it fits");
    let (adaptive, _) = AdaptivePoolParams::new("pool3d", 3, &shape(&[2, 5, 5, 5, 2]), [3, 2, 4]).expect("it fits");
    let (x, w, y) = ((F32, 500), (F32, 216), (F32, 216));
    let c = (F32, 2);
    let (pooled, index, cells) = ((F32, 108), (I32, 108), (F32, 96));
    let of_conv = |call: Call<B>| call.small(field!(ConvParams, activation)).free(field!(ConvParams, pad));
    let of_pool_at = |call: Call<B>, at: usize| {
        let moved = |r: Range<usize>| at + r.start..at + r.end;
        call.small(moved(field!(PoolParams, window.kernel)))
            .small(moved(field!(PoolParams, window.stride)))
            .small(moved(field!(PoolParams, window.dilation)))
            .small(moved(field!(PoolParams, count_include_pad)))
            .free(moved(field!(PoolParams, pad)))
    };
    let of_pool = |call: Call<B>| of_pool_at(call, 0);
    let two = Window::new([2, 2]).stride([2, 2]);
    let (joined, _) = ConvPoolParams::new(
        "conv_pool",
        &shape(&[2, 6, 6, 3]),
        &shape(&[4, 3, 3, 3]),
        (&Window::new([3, 3]), 1),
        (&two, false),
    )
    .expect("they fit");
    let of_both = |call: Call<B>| {
        let first = |r: Range<usize>| r.start..r.start + 4;
        // For two-dimensional images the first dimension of the window is unused.
        let call = of_pool_at(of_conv(call), size_of::<ConvParams>());
        call.small(first(field!(ConvParams, window.stride)))
            .small(first(field!(ConvParams, window.dilation)))
    };
    let (image, weight, result, places) = ((F32, 216), (F32, 108), (F32, 32), (I32, 32));
    vec![
        of_conv(call("conv", conv, [x, w, (F32, 4), y], |on: &B, p, [x, w, b, y]| {
            on.conv(p, x, w, Some(b), y)
        })),
        of_conv(call(
            "conv_moments",
            conv,
            [x, w, y, (F32, 8)],
            |on: &B, p, [x, w, y, m]| on.conv_moments(p, x, w, y, m),
        )),
        of_conv(call("conv_data_grad", conv, [y, w, x], |on: &B, p, [g, w, dx]| {
            on.conv_data_grad(p, g, w, dx)
        })),
        of_conv(call(
            "conv_norm_grad",
            ConvParams {
                activation: Activation::Relu as u32,
                ..conv
            },
            [y, w, x, c, c, c, c, x, x, x, c, c],
            |on: &B, p, [g, w, x, scale, shift, mean, rstd, y, more, d, dscale, dshift]| {
                let of = BatchNormInputs {
                    x,
                    scale: Some(scale),
                    shift: Some(shift),
                    mean,
                    rstd,
                    y: Some(y),
                };
                on.conv_norm_grad(
                    p,
                    g,
                    w,
                    &of,
                    Some(more),
                    ConvNormGrads {
                        d,
                        dscale,
                        dshift,
                        y: None,
                    },
                )
            },
        )),
        of_conv(call(
            "conv_norm_grad",
            ConvParams {
                activation: Activation::Relu as u32,
                ..conv
            },
            [y, w, x, c, c, c, c, x, x, c, c],
            |on: &B, p, [g, w, x, scale, shift, mean, rstd, y, d, dscale, dshift]| {
                let of = BatchNormInputs {
                    x,
                    scale: Some(scale),
                    shift: Some(shift),
                    mean,
                    rstd,
                    y: None,
                };
                let y = Some(y);
                on.conv_norm_grad(p, g, w, &of, None, ConvNormGrads { d, dscale, dshift, y })
            },
        )),
        of_conv(call("conv_weight_grad", conv, [y, x, w], |on: &B, p, [g, x, dw]| {
            on.conv_weight_grad(p, g, x, dw)
        })),
        of_both(call(
            "conv_max_pool",
            joined,
            [image, weight, (F32, 4), result, places],
            |on: &B, p, [x, w, b, y, i]| on.conv_max_pool(p, x, w, Some(b), y, i),
        )),
        of_both(call(
            "conv_max_pool_grad",
            joined,
            [result, result, places, image, weight, image, weight, (F32, 4)],
            |on: &B, p, [g, y, index, x, w, dx, dw, db]| {
                let to = ConvPoolGrads {
                    dx: Some(dx),
                    dw: Some(dw),
                    db: Some(db),
                };
                on.conv_max_pool_grad(p, &PooledGrad { g, y, index }, x, w, to)
            },
        )),
        of_pool(call("max_pool", pool, [x, pooled, index], |on: &B, p, [x, y, i]| {
            on.max_pool(p, x, y, i)
        })),
        of_pool(call(
            "max_pool_grad",
            pool,
            [pooled, pooled, index, x],
            |on: &B, p, [g, y, i, dx]| on.max_pool_grad(p, g, Some(y), i, dx),
        )),
        of_pool(call(
            "max_pool_gather",
            pool,
            [x, index, pooled],
            |on: &B, p, [x, i, y]| on.max_pool_gather(p, x, i, y),
        )),
        of_pool(call("avg_pool", pool, [x, pooled], |on: &B, p, [x, y]| {
            on.avg_pool(p, x, y)
        })),
        of_pool(call("avg_pool_grad", pool, [pooled, x], |on: &B, p, [g, dx]| {
            on.avg_pool_grad(p, g, dx)
        })),
        call("adaptive_avg_pool", adaptive, [x, cells], |on: &B, p, [x, y]| {
            on.adaptive_avg_pool(p, x, y)
        }),
        call("adaptive_avg_pool_grad", adaptive, [cells, x], |on: &B, p, [g, dx]| {
            on.adaptive_avg_pool_grad(p, g, dx)
        }),
    ]
}
