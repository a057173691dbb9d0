//! Checks of recurrent layers.

use super::{Operands, accumulator};
use crate::ops::{RecurrentCell, RecurrentGrads, RecurrentOperands, RecurrentParams};
use crate::{DType, Result, Runtime};

/// The cell, the dtype, and the numbers of elements of the products, the states of all steps, those of one, what is kept, and the result.
fn sizes<R: Runtime>(
    of: &Operands<'_, R>,
    p: &RecurrentParams,
    x: &RecurrentOperands<'_, R::Buffer>,
) -> Result<(RecurrentCell, DType, [usize; 5])> {
    let cell = of.code("cell", p.cell, RecurrentCell::from_code(p.cell))?;
    of.flag("reverse", p.reverse)?;
    of.flag("last_cells", p.last_cells)?;
    of.require(p.hidden > 0, "hidden", p.hidden, "at least 1")?;
    let lstm = cell == RecurrentCell::Lstm;
    of.require(
        lstm || p.last_cells == 0,
        "last_cells",
        p.last_cells,
        "0 but for an LSTM",
    )?;
    of.require(x.c0.is_some() == lstm, "c0", x.c0.is_some(), "cells of an LSTM alone")?;
    let (gates, kept) = (cell.gates() as u64, cell.kept() as u64);
    let all = of.size(&[p.steps, p.batch, p.hidden])?;
    let one = of.size(&[p.batch, p.hidden])?;
    let products = of.size(&[p.steps, p.batch, gates, p.hidden])?;
    let kept = of.size(&[p.steps, p.batch, kept, p.hidden])?;
    let steps = p.steps.saturating_add(u64::from(p.last_cells));
    let result = of.size(&[steps, p.batch, p.hidden])?;
    let dtype = of.float(x.w)?;
    of.holds("w", x.w, dtype, of.size(&[gates, p.hidden, p.hidden])?)?;
    of.may_hold("bias", x.bias, dtype, of.size(&[gates, p.hidden])?)?;
    of.holds("h0", x.h0, dtype, one)?;
    of.may_hold("c0", x.c0, dtype, one)?;
    of.may_hold("lengths", x.lengths, DType::I32, of.size(&[p.batch])?)?;
    Ok((cell, dtype, [products, all, one, kept, result]))
}

/// Checks [`RecurrentOps::recurrent`](crate::ops::RecurrentOps::recurrent).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn recurrent<R: Runtime>(
    on: &R,
    p: &RecurrentParams,
    x: &R::Buffer,
    operands: &RecurrentOperands<'_, R::Buffer>,
    kept: Option<&R::Buffer>,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "recurrent");
    let (_, dtype, [products, _, _, all_kept, result]) = sizes(&of, p, operands)?;
    of.holds("x", x, dtype, products)?;
    of.may_hold("kept", kept, accumulator(dtype), all_kept)?;
    of.holds("y", y, dtype, result)
}

/// Checks [`RecurrentOps::recurrent_grad`](crate::ops::RecurrentOps::recurrent_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn recurrent_grad<R: Runtime>(
    on: &R,
    p: &RecurrentParams,
    operands: &RecurrentOperands<'_, R::Buffer>,
    kept: &R::Buffer,
    y: &R::Buffer,
    g: &R::Buffer,
    to: &RecurrentGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "recurrent_grad");
    let (cell, dtype, [products, all, one, all_kept, result]) = sizes(&of, p, operands)?;
    of.holds("kept", kept, accumulator(dtype), all_kept)?;
    of.holds("y", y, dtype, result)?;
    of.holds("g", g, dtype, result)?;
    of.holds("dx", to.dx, dtype, products)?;
    let (gru, lstm) = (cell == RecurrentCell::Gru, cell == RecurrentCell::Lstm);
    of.require(
        to.dr.is_some() == gru,
        "dr",
        to.dr.is_some(),
        "the gradient of products of a GRU alone",
    )?;
    of.may_hold("dr", to.dr.as_deref(), dtype, products)?;
    of.holds("before", to.before, dtype, all)?;
    of.holds("dh0", to.dh0, dtype, one)?;
    of.require(
        to.dc0.is_some() == lstm,
        "dc0",
        to.dc0.is_some(),
        "the gradient of cells of an LSTM alone",
    )?;
    of.may_hold("dc0", to.dc0.as_deref(), dtype, one)
}
