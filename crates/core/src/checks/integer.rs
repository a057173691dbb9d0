//! Checks of the ops on integers.

use super::Operands;
use super::elementwise::broadcast;
use super::index::{Sizes, sizes};
use super::reduce::{self, along};
use crate::ops::{AxisParams, BroadcastParams, IndexParams, Integer, IntegerFold, ReduceParams};
use crate::{DType, Result, Runtime};

/// Checks [`IntegerOps::integer_binary`](crate::ops::IntegerOps::integer_binary).
///
/// # Errors
/// Operands that the parameters do not fit, a function that is not one of their dtype.
pub fn integer_binary<R: Runtime>(
    on: &R,
    p: &BroadcastParams,
    a: &R::Buffer,
    b: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "integer_binary");
    let f = of.code("op", p.op, Integer::from_code(p.op))?;
    let dtype = of.any(y)?;
    of.require(
        f.is_defined(dtype),
        "op",
        format!("{f:?} of {dtype}"),
        "i32, or a function of bits and u8",
    )?;
    broadcast(&of, p, &[("a", a, dtype, &p.a), ("b", b, dtype, &p.b)], ("y", y, dtype))
}

/// Checks [`IntegerOps::integer_reduce`](crate::ops::IntegerOps::integer_reduce).
///
/// # Errors
/// Operands that the parameters do not fit, a largest or smallest of nothing.
pub fn integer_reduce<R: Runtime>(
    on: &R,
    f: IntegerFold,
    p: &ReduceParams,
    x: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "integer_reduce");
    reduce::folded(&of, p, f != IntegerFold::Sum, x, y, DType::I32)
}

/// Checks [`IntegerOps::integer_cumsum`](crate::ops::IntegerOps::integer_cumsum).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn integer_cumsum<R: Runtime>(on: &R, p: &AxisParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "integer_cumsum");
    let [n, _] = along(&of, p, 1)?;
    of.holds("x", x, DType::I32, n)?;
    of.holds("y", y, DType::I32, n)
}

/// Checks [`IntegerOps::integer_scatter`](crate::ops::IntegerOps::integer_scatter).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn integer_scatter<R: Runtime>(
    on: &R,
    p: &IndexParams,
    x: &R::Buffer,
    index: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "integer_scatter");
    let Sizes { source, result } = sizes(&of, p)?;
    of.holds("x", x, DType::I32, result)?;
    of.holds("index", index, DType::I32, result)?;
    of.holds("y", y, DType::I32, source)
}
