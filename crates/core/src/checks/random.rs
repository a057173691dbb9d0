//! Checks of random ops.

use super::Operands;
use crate::ops::{Distribution, RandomParams};
use crate::{DType, Result, Runtime};

/// Checks [`RandomOps::random`](crate::ops::RandomOps::random).
///
/// # Errors
/// Operands that the parameters do not fit, and parameters that [`RandomParams::new`] refuses.
pub fn random<R: Runtime>(on: &R, p: &RandomParams, step: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "random");
    let distribution = of.code("distribution", p.distribution, Distribution::from_code(p.distribution))?;
    RandomParams::new("random", distribution, 0, (p.a, p.b), p.seed, p.stream)?;
    of.holds("step", step, DType::I32, 1)?;
    of.holds("y", y, of.float(y)?, of.size(&[p.n])?)
}

/// Checks [`RandomOps::tick`](crate::ops::RandomOps::tick).
///
/// # Errors
/// Buffers that do not hold exactly one i32.
pub fn tick<R: Runtime>(on: &R, counter: &R::Buffer, ticket: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "tick");
    of.holds("counter", counter, DType::I32, 1)?;
    of.holds("ticket", ticket, DType::I32, 1)
}

/// Checks [`RandomOps::tick_each`](crate::ops::RandomOps::tick_each).
///
/// # Errors
/// Lists of different lengths, and buffers that do not hold exactly one i32.
pub fn tick_each<R: Runtime>(on: &R, counters: &[&mut R::Buffer], tickets: &[&mut R::Buffer]) -> Result<()> {
    let of = Operands::new(on, "tick_each");
    of.require(
        counters.len() == tickets.len(),
        "tickets",
        tickets.len(),
        "as many as counters",
    )?;
    counters.iter().zip(tickets).try_for_each(|(counter, ticket)| {
        of.holds("counter", counter, DType::I32, 1)?;
        of.holds("ticket", ticket, DType::I32, 1)
    })
}

/// Checks [`RandomOps::dropout`](crate::ops::RandomOps::dropout).
///
/// # Errors
/// Operands that the parameters do not fit, and a value of `a` that is no probability.
pub fn dropout<R: Runtime>(on: &R, p: &RandomParams, step: &R::Buffer, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "dropout");
    of.require((0.0..=1.0).contains(&p.a), "a", p.a, "a probability from 0 to 1")?;
    of.holds("step", step, DType::I32, 1)?;
    let (dtype, n) = (of.float(y)?, of.size(&[p.n])?);
    of.holds("x", x, dtype, n)?;
    of.holds("y", y, dtype, n)
}
