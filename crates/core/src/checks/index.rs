//! Checks of views and indexing. The values of indices are checked on the device.

use super::Operands;
use crate::ops::{IndexParams, Join, Split, ViewParams};
use crate::{Buffer, DType, Error, Result, Runtime};

/// Checks that a view stays inside the buffer `seen` and has as many elements as the contiguous buffer `flat`.
fn view<R: Runtime>(
    of: &Operands<'_, R>,
    p: &ViewParams,
    (seen_name, seen): (&'static str, &R::Buffer),
    (flat_name, flat): (&'static str, &R::Buffer),
) -> Result<()> {
    let dims = of.dims(&p.shape, p.rank)?;
    let n = of.size(dims)?;
    of.require(p.n == n as u64, "n", p.n, "the product of the dimensions")?;
    let dtype = of.any(seen)?;
    of.holds(seen_name, seen, dtype, seen.len())?;
    of.holds(flat_name, flat, dtype, n)?;
    if n == 0 {
        return Ok(());
    }
    // i128 holds the sum of 8 products of 64-bit numbers.
    let (mut least, mut most) = (i128::from(p.offset), i128::from(p.offset));
    for (&d, &stride) in dims.iter().zip(&p.strides) {
        let reach = (i128::from(d) - 1) * i128::from(stride);
        least += reach.min(0);
        most += reach.max(0);
    }
    if least >= 0 && most < seen.len() as i128 {
        return Ok(());
    }
    let expected = format!("elements of `{seen_name}`, which has {}", seen.len());
    Err(Error::invalid(of.op, "view", format!("{least}..={most}"), expected))
}

/// True if the view does not overlap itself: sorted by stride, each stride is larger than the reach of the smaller ones.
fn apart(p: &ViewParams) -> bool {
    let mut steps: Vec<(u64, u64)> = p.shape[..p.rank as usize]
        .iter()
        .zip(&p.strides)
        .filter(|(d, _)| **d > 1)
        .map(|(&d, &stride)| (stride.unsigned_abs(), d))
        .collect();
    steps.sort_unstable();
    let mut reach = 0;
    steps.into_iter().all(|(stride, d)| {
        let over = stride > reach;
        // No overflow: the view is inside the buffer.
        reach += stride * (d - 1);
        over
    })
}

/// Checks [`IndexOps::view_read`](crate::ops::IndexOps::view_read).
///
/// # Errors
/// A view that leaves `x`, or that `y` does not fit.
pub fn view_read<R: Runtime>(on: &R, p: &ViewParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    view(&Operands::new(on, "view_read"), p, ("x", x), ("y", y))
}

/// Checks [`IndexOps::view_write`](crate::ops::IndexOps::view_write).
///
/// # Errors
/// A view that leaves `y` or overlaps itself, or that `x` does not fit.
pub fn view_write<R: Runtime>(on: &R, p: &ViewParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "view_write");
    view(&of, p, ("y", y), ("x", x))?;
    let strides = &p.strides[..p.rank as usize];
    of.require(
        p.n == 0 || apart(p),
        "strides",
        strides,
        "a view that does not overlap itself",
    )
}

/// Checks [`IndexOps::join`](crate::ops::IndexOps::join).
///
/// # Errors
/// A whole of another dtype than a part, or not as long as all parts.
pub fn join<R: Runtime>(on: &R, joins: &[Join<'_, R::Buffer>]) -> Result<()> {
    let of = Operands::new(on, "join");
    joins.iter().try_for_each(|join| {
        let dtype = of.any(join.whole)?;
        let parts = join.parts.iter();
        parts
            .clone()
            .try_for_each(|part| of.holds("part", part, dtype, part.len()))?;
        of.holds("whole", join.whole, dtype, parts.map(|part| part.len()).sum())
    })
}

/// Checks [`IndexOps::split`](crate::ops::IndexOps::split).
///
/// # Errors
/// A part of another dtype than its whole, or that ends behind it.
pub fn split<R: Runtime>(on: &R, splits: &[Split<'_, R::Buffer>]) -> Result<()> {
    let of = Operands::new(on, "split");
    splits.iter().try_for_each(|split| {
        let dtype = of.any(split.whole)?;
        of.holds("whole", split.whole, dtype, split.whole.len())?;
        split.parts.iter().try_for_each(|(start, part)| {
            let end = start.checked_add(part.len());
            let inside = end.is_some_and(|end| end <= split.whole.len());
            of.require(inside, "part", start, "a stretch of the whole")?;
            of.holds("part", part, dtype, part.len())
        })
    })
}

/// The numbers of elements of the source and the result of an indexed op.
pub(super) struct Sizes {
    pub(super) source: usize,
    pub(super) result: usize,
}

pub(super) fn sizes<R: Runtime>(of: &Operands<'_, R>, p: &IndexParams) -> Result<Sizes> {
    Ok(Sizes {
        source: of.size(&[p.outer, p.size, p.inner])?,
        result: of.size(&[p.outer, p.count, p.inner])?,
    })
}

/// Checks [`IndexOps::gather`](crate::ops::IndexOps::gather).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn gather<R: Runtime>(on: &R, p: &IndexParams, x: &R::Buffer, index: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "gather");
    let (dtype, n) = (of.any(x)?, sizes(&of, p)?);
    of.holds("x", x, dtype, n.source)?;
    of.holds("index", index, DType::I32, n.result)?;
    of.holds("y", y, dtype, n.result)
}

/// Checks [`IndexOps::scatter_add`](crate::ops::IndexOps::scatter_add).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn scatter_add<R: Runtime>(on: &R, p: &IndexParams, x: &R::Buffer, index: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "scatter_add");
    let (dtype, n) = (of.float(x)?, sizes(&of, p)?);
    of.holds("x", x, dtype, n.result)?;
    of.holds("index", index, DType::I32, n.result)?;
    of.holds("y", y, dtype, n.source)
}

/// Checks [`IndexOps::index_select`](crate::ops::IndexOps::index_select).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn index_select<R: Runtime>(
    on: &R,
    p: &IndexParams,
    x: &R::Buffer,
    index: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "index_select");
    let (dtype, n) = (of.any(x)?, sizes(&of, p)?);
    of.holds("x", x, dtype, n.source)?;
    of.holds("index", index, DType::I32, of.size(&[p.count])?)?;
    of.holds("y", y, dtype, n.result)
}

/// Checks [`IndexOps::index_add`](crate::ops::IndexOps::index_add).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn index_add<R: Runtime>(on: &R, p: &IndexParams, x: &R::Buffer, index: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "index_add");
    let (dtype, n) = (of.float(x)?, sizes(&of, p)?);
    of.holds("x", x, dtype, n.result)?;
    of.holds("index", index, DType::I32, of.size(&[p.count])?)?;
    of.holds("y", y, dtype, n.source)
}

/// Checks [`IndexOps::one_hot`](crate::ops::IndexOps::one_hot).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn one_hot<R: Runtime>(on: &R, p: &IndexParams, index: &R::Buffer, y: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "one_hot");
    of.holds("index", index, DType::I32, of.size(&[p.outer])?)?;
    of.holds("y", y, of.any(y)?, of.size(&[p.outer, p.size])?)
}
