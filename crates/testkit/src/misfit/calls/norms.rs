//! Calls of norms and softmax.

use super::fields::{call, field, shape};
use crate::misfit::call::Call;
use kiln_core::Backend;
use kiln_core::DType::{BF16, F32, I32};
use kiln_core::ops::*;

pub(super) fn norms<B: Backend>() -> Vec<Call<B>> {
    let x = shape(&[2, 3, 4]);
    let batch = BatchNormParams::new("batch_norm", &x, 1e-5).expect("channels");
    let train = BatchNormTrainParams::new("batch_norm", &x, 1e-5, 0.1).expect("several values per channel");
    let group = GroupNormParams::group("group_norm", &x, 2, 1e-5).expect("groups");
    let (t, c, s) = ((F32, 24), (F32, 4), (F32, 4));
    let of_batch = |call: Call<B>| {
        let call = call
            .free(field!(BatchNormParams, eps))
            .small(field!(BatchNormParams, relu));
        call.free(field!(BatchNormParams, pad))
    };
    let of_group = |call: Call<B>| {
        let call = call
            .free(field!(GroupNormParams, eps))
            .small(field!(GroupNormParams, rms));
        call.free(field!(GroupNormParams, pad))
    };
    let residual = ResidualParams::new("residual_norm", &shape(&[6, 4]), 1e-5).expect("rows");
    let (half, step) = ((BF16, 24), (I32, 1));
    let of_residual = |call: Call<B>| {
        let call = call
            .free(field!(ResidualParams, eps))
            .free(field!(ResidualParams, drop));
        let call = call
            .free(field!(ResidualParams, seed))
            .free(field!(ResidualParams, stream));
        call.free(field!(ResidualParams, pad))
    };
    let r = (F32, 6);
    vec![
        of_residual(call(
            "residual_add",
            residual,
            [half, half, step, half],
            |on: &B, p, [x, y, step, s]| on.residual_add(p, x, y, Some(step), s),
        )),
        // The gradient of the stream may be in f32 beside halves.
        of_residual(call(
            "residual_add_grad",
            residual,
            [half, step, half],
            |on: &B, p, [g, step, dy]| on.residual_add_grad(p, g, Some(step), dy),
        ))
        .untyped(0),
        of_residual(call(
            "residual_norm",
            residual,
            [t, t, step, c, c, t, t, r, r],
            |on: &B, p, [x, y, step, a, b, s, n, m, r]| on.residual_norm(p, x, Some((y, s)), Some(step), a, b, n, m, r),
        )),
        of_residual(call(
            "residual_norm_grad",
            residual,
            [t, c, r, r, t, t, t, step, t, t, c, c],
            |on: &B, p, [s, a, m, r, g, more, sum, step, ds, dy, da, db]| {
                let of = ResidualNormInputs {
                    s,
                    scale: a,
                    mean: m,
                    rstd: r,
                    g,
                    more: Some(more),
                    sum: Some(sum),
                    step: Some(step),
                };
                let to = ResidualNormGrads {
                    ds,
                    dy: Some(dy),
                    dscale: da,
                    dshift: db,
                };
                on.residual_norm_grad(p, &of, to)
            },
        )),
        of_batch(call(
            "batch_norm_eval",
            batch,
            [t, t, c, c, s, s, t],
            |on: &B, p, [x, r, w, b, m, v, y]| on.batch_norm_eval(p, x, Some(r), Some(w), Some(b), m, v, y),
        )),
        of_batch(call(
            "batch_norm_apply",
            batch,
            [t, t, c, c, s, s, t],
            |on: &B, p, [x, r, w, b, m, rstd, y]| on.batch_norm_apply(p, x, Some(r), Some(w), Some(b), m, rstd, y),
        )),
        call(
            "batch_norm",
            train,
            [t, (F32, 8), t, c, c, t, s, s, s, s, (I32, 1)],
            |on: &B, p, [x, moments, r, w, b, y, m, rstd, mean, var, batches]| {
                let running = RunningStats { mean, var, batches };
                on.batch_norm(p, x, Some(moments), Some(r), Some(w), Some(b), y, m, rstd, running)
            },
        )
        .free(field!(BatchNormTrainParams, eps))
        .free(field!(BatchNormTrainParams, momentum))
        .small(field!(BatchNormTrainParams, relu))
        .free(field!(BatchNormTrainParams, pad)),
        of_batch(call(
            "batch_norm_grad",
            BatchNormParams { relu: 1, ..batch },
            [t, c, c, s, s, t, t, t, t, t, c, c],
            |on: &B, p, [x, w, b, mean, rstd, y, g, more, dx, dr, dscale, dshift]| {
                let (scale, shift) = (Some(&*w), Some(&*b));
                let y = Some(&*y);
                let of = BatchNormInputs {
                    x,
                    scale,
                    shift,
                    mean,
                    rstd,
                    y,
                };
                let dr = Some(dr);
                on.batch_norm_grad(p, &of, g, Some(more), BatchNormGrads { dx, dr, dscale, dshift })
            },
        )),
        of_batch(call(
            "batch_norm_data_grad",
            batch,
            [t, c, s, s, t, s, s, t],
            |on: &B, p, [x, w, mean, rstd, d, dscale, dshift, dx]| {
                let of = BatchNormInputs {
                    x,
                    scale: Some(w),
                    shift: None,
                    mean,
                    rstd,
                    y: None,
                };
                on.batch_norm_data_grad(p, &of, d, dscale, dshift, dx)
            },
        )),
        of_group(call(
            "group_norm",
            group,
            [t, c, c, t, s, s],
            |on: &B, p, [x, w, b, y, m, r]| on.group_norm(p, x, Some(w), Some(b), y, m, r),
        )),
        of_group(call(
            "group_norm_grad",
            group,
            [t, c, s, s, t, t, c, c],
            |on: &B, p, [x, w, m, r, g, dx, dw, db]| on.group_norm_grad(p, x, Some(w), m, r, g, dx, dw, db),
        )),
    ]
}
