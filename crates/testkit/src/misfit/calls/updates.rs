//! Calls of optimizer updates.

use super::fields::{call, field};
use crate::misfit::call::Call;
use bytemuck::{Pod, Zeroable};
use kiln_core::DType::{BF16, F32, I32};
use kiln_core::ops::*;
use kiln_core::{Backend, Result};
use std::mem::size_of;

/// An update of `N` buffers: scalars, parameter, copy in half precision, gradient, and state buffers.
fn update<B: Backend, P: Pod, const N: usize>(
    op: &'static str,
    p: P,
    run: impl Fn(&B, &P, &B::Buffer, &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> + 'static,
) -> Call<B> {
    let mut operands = [(F32, 5); N];
    operands[0].1 = 4;
    operands[2].0 = BF16;
    let all = 0..size_of::<P>();
    let call = call(op, p, operands, move |on, p, buffers: &mut [B::Buffer; N]| {
        let [scalars, param, half, grad, state @ ..] = &mut buffers[..] else {
            return Ok(());
        };
        let slot = OptimSlot {
            param,
            half: Some(half),
            grad,
            state: state.iter_mut().collect(),
        };
        run(on, p, scalars, &mut [slot])
    });
    // The copy may be of f16 as well.
    call.free(all).untyped(2)
}

/// A call for two gradients, of any length.
fn unscale<B: Backend>() -> Call<B> {
    let operands = [(F32, 1), (F32, 5), (F32, 3), (I32, 1)];
    let call = call(
        "unscale",
        (),
        operands,
        |on: &B, (), [inverse, a, b, found]: &mut [B::Buffer; 4]| on.unscale(inverse, &mut [a, b], found),
    );
    call.unsized_(1).unsized_(2)
}

fn grad_norm<B: Backend>() -> Call<B> {
    let call = call(
        "grad_norm",
        GradNormParams { max_norm: 1.0 },
        [(F32, 5), (F32, 3), (F32, 1), (F32, 1)],
        |on: &B, p, [a, b, norm, factor]: &mut [B::Buffer; 4]| on.grad_norm(p, &[a, b], norm, factor),
    );
    call.free(field!(GradNormParams, max_norm)).unsized_(0).unsized_(1)
}

pub(super) fn updates<B: Backend>() -> Vec<Call<B>> {
    let sgd = SgdParams {
        momentum: 0.9,
        ..SgdParams::zeroed()
    };
    let rmsprop = RmspropParams {
        momentum: 0.9,
        centered: 1,
        ..RmspropParams::zeroed()
    };
    let amsgrad = AdamParams {
        amsgrad: 1,
        ..AdamParams::zeroed()
    };
    vec![
        update::<B, _, 5>("sgd", sgd, |on, p, s, slots| on.sgd(p, s, slots)).small(field!(SgdParams, nesterov)),
        update::<B, _, 7>("adam", amsgrad, |on, p, s, slots| on.adam(p, s, slots))
            .small(field!(AdamParams, decoupled))
            .small(field!(AdamParams, amsgrad)),
        update::<B, _, 6>("adam", AdamParams::zeroed(), |on, p, s, slots| on.adam(p, s, slots)),
        update::<B, _, 7>("rmsprop", rmsprop, |on, p, s, slots| on.rmsprop(p, s, slots))
            .small(field!(RmspropParams, centered)),
        update::<B, _, 5>("adagrad", AdagradParams::zeroed(), |on, p, s, slots| {
            on.adagrad(p, s, slots)
        }),
        grad_norm(),
        unscale(),
    ]
}
