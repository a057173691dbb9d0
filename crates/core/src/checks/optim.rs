//! Checks of optimizer updates.

use super::{Operands, accumulator};
use crate::ops::{AdagradParams, AdamParams, GradNormParams, OptimSlot, RmspropParams, SgdParams};
use crate::{Buffer, DType, Error, Result, Runtime};

/// Checks the slots of an update with `states` state buffers each. All parameters of a call share their dtype.
fn slots<R: Runtime>(
    of: &Operands<'_, R>,
    scalars: &R::Buffer,
    slots: &[OptimSlot<'_, R::Buffer>],
    states: usize,
) -> Result<()> {
    let Some(first) = slots.first() else {
        return of.holds("scalars", scalars, scalars.dtype(), 4);
    };
    let dtype = of.float(first.param)?;
    of.holds("scalars", scalars, accumulator(dtype), 4)?;
    for slot in slots {
        let n = slot.param.len();
        of.holds("param", slot.param, dtype, n)?;
        of.holds("grad", slot.grad, dtype, n)?;
        if let Some(half) = &slot.half {
            let one_of = [DType::BF16, DType::F16].contains(&half.dtype()) && dtype == DType::F32;
            of.holds("half", half, if one_of { half.dtype() } else { DType::BF16 }, n)?;
            of.holds("param", slot.param, DType::F32, n)?;
        }
        if slot.state.len() != states {
            let expected = format!("{states} with these parameters");
            return Err(Error::invalid(of.op, "state buffers", slot.state.len(), expected));
        }
        for state in &slot.state {
            of.holds("state", state, accumulator(dtype), n)?;
        }
    }
    Ok(())
}

/// Checks [`OptimOps::sgd`](crate::ops::OptimOps::sgd).
///
/// # Errors
/// Buffers that do not fit each other or the parameters.
pub fn sgd<R: Runtime>(on: &R, p: &SgdParams, s: &R::Buffer, list: &[OptimSlot<'_, R::Buffer>]) -> Result<()> {
    let of = Operands::new(on, "sgd");
    of.flag("nesterov", p.nesterov)?;
    slots(&of, s, list, usize::from(p.momentum != 0.0))
}

/// Checks [`OptimOps::adam`](crate::ops::OptimOps::adam).
///
/// # Errors
/// Buffers that do not fit each other or the parameters.
pub fn adam<R: Runtime>(on: &R, p: &AdamParams, s: &R::Buffer, list: &[OptimSlot<'_, R::Buffer>]) -> Result<()> {
    let of = Operands::new(on, "adam");
    of.flag("decoupled", p.decoupled)?;
    of.flag("amsgrad", p.amsgrad)?;
    slots(&of, s, list, 2 + p.amsgrad as usize)
}

/// Checks [`OptimOps::rmsprop`](crate::ops::OptimOps::rmsprop).
///
/// # Errors
/// Buffers that do not fit each other or the parameters.
pub fn rmsprop<R: Runtime>(on: &R, p: &RmspropParams, s: &R::Buffer, list: &[OptimSlot<'_, R::Buffer>]) -> Result<()> {
    let of = Operands::new(on, "rmsprop");
    of.flag("centered", p.centered)?;
    slots(&of, s, list, 1 + usize::from(p.momentum != 0.0) + p.centered as usize)
}

/// Checks [`OptimOps::adagrad`](crate::ops::OptimOps::adagrad).
///
/// # Errors
/// Buffers that do not fit each other.
pub fn adagrad<R: Runtime>(on: &R, _: &AdagradParams, s: &R::Buffer, list: &[OptimSlot<'_, R::Buffer>]) -> Result<()> {
    slots(&Operands::new(on, "adagrad"), s, list, 1)
}

/// Checks [`OptimOps::grad_norm`](crate::ops::OptimOps::grad_norm).
///
/// # Errors
/// A limit that is negative or NaN, and buffers of other dtypes and sizes.
pub fn grad_norm<R: Runtime>(
    on: &R,
    p: &GradNormParams,
    grads: &[&R::Buffer],
    norm: &R::Buffer,
    factor: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "grad_norm");
    of.require(p.max_norm >= 0.0, "max_norm", p.max_norm, "0 or more")?;
    let (dtype, wide) = match grads.first() {
        Some(first) => (of.float(first)?, accumulator(of.float(first)?)),
        None => (norm.dtype(), norm.dtype()),
    };
    of.holds("norm", norm, wide, 1)?;
    of.holds("factor", factor, wide, 1)?;
    grads.iter().try_for_each(|g| of.holds("grad", g, dtype, g.len()))
}

/// Checks [`OptimOps::unscale`](crate::ops::OptimOps::unscale).
///
/// # Errors
/// Buffers that do not fit each other.
pub fn unscale<R: Runtime>(on: &R, inverse: &R::Buffer, grads: &[&mut R::Buffer], found: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "unscale");
    of.holds("found", found, DType::I32, 1)?;
    let Some(first) = grads.first() else {
        return of.holds("inverse", inverse, inverse.dtype(), 1);
    };
    let dtype = of.float(first)?;
    of.holds("inverse", inverse, accumulator(dtype), 1)?;
    grads.iter().try_for_each(|g| of.holds("grad", g, dtype, g.len()))
}
