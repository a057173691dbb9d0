//! Checks of reductions.

use super::Operands;
use crate::ops::{AxisParams, Reduce, ReduceParams};
use crate::{DType, Result, Runtime};

/// Checks [`ReduceOps::reduce`](crate::ops::ReduceOps::reduce).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn reduce<R: Runtime>(on: &R, p: &ReduceParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "reduce");
    let f = of.code("op", p.op, Reduce::from_code(p.op))?;
    folded(&of, p, matches!(f, Reduce::Max | Reduce::Min), x, y, of.float(x)?)
}

/// Checks the geometry of a reduction; `refuses_nothing` if there is no result for no elements.
pub(super) fn folded<R: Runtime>(
    of: &Operands<'_, R>,
    p: &ReduceParams,
    refuses_nothing: bool,
    x: &R::Buffer,
    y: &R::Buffer,
    dtype: DType,
) -> Result<()> {
    let dims = of.dims(&p.shape, p.rank)?;
    let beyond = p.reduced.checked_shr(p.rank).unwrap_or(0);
    of.require(beyond == 0, "reduced", p.reduced, "a bit for each dimension")?;
    let reduced = |i: usize| (p.reduced >> i) & 1 == 1;
    let alternate = (1..dims.len()).all(|i| reduced(i) != reduced(i - 1));
    of.require(
        alternate,
        "reduced",
        p.reduced,
        "dimensions that are kept and reduced in turn",
    )?;
    let part = |wanted: bool| {
        let mut part = [1; crate::MAX_RANK];
        for (i, (part, &d)) in part.iter_mut().zip(dims).enumerate() {
            *part = if reduced(i) == wanted { d } else { 1 };
        }
        of.size(&part)
    };
    let (outputs, count) = (part(false)?, part(true)?);
    of.require(
        p.outputs == outputs as u64,
        "outputs",
        p.outputs,
        "the product of the dimensions kept",
    )?;
    of.require(
        p.count == count as u64,
        "count",
        p.count,
        "the product of the dimensions reduced",
    )?;
    let none = count == 0 && outputs > 0 && refuses_nothing;
    of.require(!none, "count", 0, "a non-empty reduction")?;
    of.holds("x", x, dtype, of.size(dims)?)?;
    of.holds("y", y, dtype, outputs)
}

/// The numbers of elements of `[outer, n, inner]` and `[outer, to, inner]`.
pub(super) fn along<R: Runtime>(of: &Operands<'_, R>, p: &AxisParams, to: u64) -> Result<[usize; 2]> {
    of.flag("reverse", p.reverse)?;
    Ok([of.size(&[p.outer, p.n, p.inner])?, of.size(&[p.outer, to, p.inner])?])
}

/// Checks [`ReduceOps::arg_reduce`](crate::ops::ReduceOps::arg_reduce).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn arg_reduce<R: Runtime>(on: &R, p: &AxisParams, x: &R::Buffer, index: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "arg_reduce");
    let [from, to] = along(&of, p, 1)?;
    of.require(p.n <= i32::MAX as u64, "n", p.n, "at most 2147483647")?;
    of.require(p.n > 0 || to == 0, "n", p.n, "a non-empty reduction")?;
    of.holds("x", x, of.float(x)?, from)?;
    of.holds("index", index, DType::I32, to)
}

/// Checks [`ReduceOps::add_correct`](crate::ops::ReduceOps::add_correct).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn add_correct<R: Runtime>(
    on: &R,
    p: &AxisParams,
    x: &R::Buffer,
    labels: &R::Buffer,
    weight: f64,
    sum: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "add_correct");
    let [from, rows] = along(&of, p, 1)?;
    of.require(p.inner == 1, "inner", p.inner, "1: the axis is the last one")?;
    of.require(p.n <= i32::MAX as u64, "n", p.n, "at most 2147483647")?;
    of.require(p.n > 0 || rows == 0, "n", p.n, "a non-empty reduction")?;
    of.require(weight.is_finite(), "weight", weight, "a finite number")?;
    of.holds("x", x, of.float(x)?, from)?;
    of.holds("labels", labels, DType::I32, rows)?;
    of.holds("sum", sum, DType::F32, 1)
}

/// Checks [`ReduceOps::cumsum`](crate::ops::ReduceOps::cumsum).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn cumsum<R: Runtime>(on: &R, p: &AxisParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "cumsum");
    let [n, _] = along(&of, p, 1)?;
    let dtype = of.float(x)?;
    of.holds("x", x, dtype, n)?;
    of.holds("y", y, dtype, n)
}

/// Checks [`ReduceOps::top_k`](crate::ops::ReduceOps::top_k).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn top_k<R: Runtime>(on: &R, p: &AxisParams, x: &R::Buffer, values: &R::Buffer, index: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "top_k");
    let [from, to] = along(&of, p, p.k)?;
    of.require(p.n <= i32::MAX as u64, "n", p.n, "at most 2147483647")?;
    of.require(p.k <= p.n, "k", p.k, "at most the size of the axis")?;
    let dtype = of.float(x)?;
    of.holds("x", x, dtype, from)?;
    of.holds("values", values, dtype, to)?;
    of.holds("index", index, DType::I32, to)
}
