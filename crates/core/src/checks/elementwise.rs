//! Checks of elementwise ops.

use super::Operands;
use crate::ops::{Binary, BroadcastParams, Compare, Strides, Unary, UnaryParams};
use crate::{Buffer, DType, Result, Runtime};

/// Checks [`ElementwiseOps::unary`](crate::ops::ElementwiseOps::unary).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn unary<R: Runtime>(on: &R, p: &UnaryParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "unary");
    of.code("op", p.op, Unary::from_code(p.op))?;
    let (dtype, n) = (of.float(y)?, of.size(&[p.n])?);
    [("x", x), ("y", y)]
        .into_iter()
        .try_for_each(|(name, b)| of.holds(name, b, dtype, n))
}

/// Checks [`ElementwiseOps::unary_grad`](crate::ops::ElementwiseOps::unary_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn unary_grad<R: Runtime>(
    on: &R,
    p: &UnaryParams,
    x: &R::Buffer,
    y: &R::Buffer,
    g: &R::Buffer,
    dx: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "unary_grad");
    of.code("op", p.op, Unary::from_code(p.op))?;
    let (dtype, n) = (of.float(dx)?, of.size(&[p.n])?);
    let operands = [("x", x), ("y", y), ("g", g), ("dx", dx)];
    operands
        .into_iter()
        .try_for_each(|(name, b)| of.holds(name, b, dtype, n))
}

/// Checks the dtypes and lengths of operands that broadcast, and of the result, against the parameters.
pub(super) fn broadcast<R: Runtime>(
    of: &Operands<'_, R>,
    p: &BroadcastParams,
    operands: &[(&'static str, &R::Buffer, DType, &Strides)],
    (name, result, dtype): (&'static str, &R::Buffer, DType),
) -> Result<()> {
    let dims = of.dims(&p.shape, p.rank)?;
    let n = of.size(dims)?;
    of.require(p.n == n as u64, "n", p.n, "the product of the dimensions")?;
    of.holds(name, result, dtype, n)?;
    for &(name, buffer, dtype, strides) in operands {
        let len = if n == 0 {
            buffer.len()
        } else {
            of.span(dims, strides, 1)?
        };
        of.holds(name, buffer, dtype, len)?;
    }
    Ok(())
}

/// Checks [`ElementwiseOps::binary`](crate::ops::ElementwiseOps::binary).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn binary<R: Runtime>(on: &R, p: &BroadcastParams, a: &R::Buffer, b: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "binary");
    of.code("op", p.op, Binary::from_code(p.op))?;
    let dtype = of.float(y)?;
    broadcast(&of, p, &[("a", a, dtype, &p.a), ("b", b, dtype, &p.b)], ("y", y, dtype))
}

/// Checks [`ElementwiseOps::compare`](crate::ops::ElementwiseOps::compare).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn compare<R: Runtime>(on: &R, p: &BroadcastParams, a: &R::Buffer, b: &R::Buffer, mask: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "compare");
    of.code("op", p.op, Compare::from_code(p.op))?;
    let dtype = of.any(a)?;
    let operands = [("a", a, dtype, &p.a), ("b", b, dtype, &p.b)];
    broadcast(&of, p, &operands, ("mask", mask, DType::U8))
}

/// Checks [`ElementwiseOps::select`](crate::ops::ElementwiseOps::select).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn select<R: Runtime>(
    on: &R,
    p: &BroadcastParams,
    mask: &R::Buffer,
    a: &R::Buffer,
    b: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "select");
    let dtype = of.any(y)?;
    let operands = [
        ("mask", mask, DType::U8, &p.mask),
        ("a", a, dtype, &p.a),
        ("b", b, dtype, &p.b),
    ];
    broadcast(&of, p, &operands, ("y", y, dtype))
}

/// Checks [`ElementwiseOps::cast`](crate::ops::ElementwiseOps::cast).
///
/// # Errors
/// Buffers of different lengths.
pub fn cast<R: Runtime>(on: &R, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "cast");
    of.holds("x", x, of.any(x)?, x.len())?;
    of.holds("y", y, of.any(y)?, x.len())
}

/// Checks [`ElementwiseOps::cast_each`](crate::ops::ElementwiseOps::cast_each).
///
/// # Errors
/// Lists or buffers of different lengths, or of several dtypes.
pub fn cast_each<R: Runtime>(on: &R, xs: &[&R::Buffer], ys: &[&mut R::Buffer]) -> Result<()> {
    let of = Operands::new(on, "cast_each");
    of.require(xs.len() == ys.len(), "ys", ys.len(), "as many as xs")?;
    let (Some(x), Some(y)) = (xs.first(), ys.first()) else {
        return Ok(());
    };
    let (from, to) = (of.any(x)?, of.any(y)?);
    xs.iter().zip(ys).try_for_each(|(x, y)| {
        of.holds("x", x, from, x.len())?;
        of.holds("y", y, to, x.len())
    })
}

/// Checks [`ElementwiseOps::fill`](crate::ops::ElementwiseOps::fill).
///
/// # Errors
/// A dtype that the device does not compute with.
pub fn fill<R: Runtime>(on: &R, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "fill");
    of.holds("y", y, of.any(y)?, y.len())
}

/// Checks [`ElementwiseOps::accumulate`](crate::ops::ElementwiseOps::accumulate).
///
/// # Errors
/// Buffers that differ.
pub fn accumulate<R: Runtime>(on: &R, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "accumulate");
    let dtype = of.float(y)?;
    of.holds("y", y, dtype, y.len())?;
    of.holds("x", x, dtype, y.len())
}
