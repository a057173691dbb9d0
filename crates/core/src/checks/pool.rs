//! Checks of poolings.

use super::Operands;
use super::window::{Along, LARGEST, image, windows};
use crate::ops::{AdaptivePoolParams, PoolParams};
use crate::{DType, Result, Runtime};

/// Checks the parameters of windows; returns the numbers of elements of the input and the output.
pub(super) fn sizes<R: Runtime>(of: &Operands<'_, R>, p: &PoolParams) -> Result<[usize; 2]> {
    of.flag("count_include_pad", p.count_include_pad)?;
    of.require(!p.window.input.contains(&0), "input", p.window.input, "at least 1")?;
    let channels = [p.batch, p.channels].map(u64::from);
    of.require(
        channels.iter().all(|&v| v <= LARGEST),
        "sizes",
        channels,
        "at most 2147483647",
    )?;
    // The last window starts before the end of the input, and one more would not fit in the padded input.
    let fit = |a: &Along| a.last() < a.input + a.padding && a.last() + a.stride + a.extent() > a.padded();
    windows(of, &p.window, fit)?;
    Ok([
        image(of, p.batch, p.window.input, p.channels)?,
        image(of, p.batch, p.window.output, p.channels)?,
    ])
}

/// As [`sizes`], for ops that keep positions within an image in i32.
pub(super) fn placed<R: Runtime>(of: &Operands<'_, R>, p: &PoolParams) -> Result<[usize; 2]> {
    let all = sizes(of, p)?;
    let positions = of.size(&p.window.input.map(u64::from))? as u64;
    let fits = positions <= LARGEST || all[1] == 0;
    of.require(fits, "input", p.window.input, "at most 2147483647 positions")?;
    Ok(all)
}

/// Checks [`PoolOps::max_pool`](crate::ops::PoolOps::max_pool).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn max_pool<R: Runtime>(on: &R, p: &PoolParams, x: &R::Buffer, y: &R::Buffer, index: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "max_pool");
    let (dtype, [input, output]) = (of.float(x)?, placed(&of, p)?);
    of.holds("x", x, dtype, input)?;
    of.holds("y", y, dtype, output)?;
    of.holds("index", index, DType::I32, output)
}

/// Checks [`PoolOps::max_pool_grad`](crate::ops::PoolOps::max_pool_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn max_pool_grad<R: Runtime>(
    on: &R,
    p: &PoolParams,
    g: &R::Buffer,
    relu: Option<&R::Buffer>,
    index: &R::Buffer,
    dx: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "max_pool_grad");
    let (dtype, [input, output]) = (of.float(dx)?, placed(&of, p)?);
    of.holds("g", g, dtype, output)?;
    of.may_hold("relu", relu, dtype, output)?;
    of.holds("index", index, DType::I32, output)?;
    of.holds("dx", dx, dtype, input)
}

/// Checks [`PoolOps::max_pool_gather`](crate::ops::PoolOps::max_pool_gather).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn max_pool_gather<R: Runtime>(
    on: &R,
    p: &PoolParams,
    x: &R::Buffer,
    index: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "max_pool_gather");
    let (dtype, [input, output]) = (of.float(x)?, placed(&of, p)?);
    of.holds("x", x, dtype, input)?;
    of.holds("index", index, DType::I32, output)?;
    of.holds("y", y, dtype, output)
}

fn average<R: Runtime>(
    of: &Operands<'_, R>,
    p: &PoolParams,
    (large_name, large): (&'static str, &R::Buffer),
    (small_name, small): (&'static str, &R::Buffer),
) -> Result<()> {
    of.require(p.window.dilation == [1; 3], "dilation", p.window.dilation, "1")?;
    let (dtype, [input, output]) = (of.float(large)?, sizes(of, p)?);
    of.holds(large_name, large, dtype, input)?;
    of.holds(small_name, small, dtype, output)
}

/// Checks [`PoolOps::avg_pool`](crate::ops::PoolOps::avg_pool).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn avg_pool<R: Runtime>(on: &R, p: &PoolParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    average(&Operands::new(on, "avg_pool"), p, ("x", x), ("y", y))
}

/// Checks [`PoolOps::avg_pool_grad`](crate::ops::PoolOps::avg_pool_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn avg_pool_grad<R: Runtime>(on: &R, p: &PoolParams, g: &R::Buffer, dx: &R::Buffer) -> Result<()> {
    average(&Operands::new(on, "avg_pool_grad"), p, ("dx", dx), ("g", g))
}

fn adaptive<R: Runtime>(
    of: &Operands<'_, R>,
    p: &AdaptivePoolParams,
    (large_name, large): (&'static str, &R::Buffer),
    (small_name, small): (&'static str, &R::Buffer),
) -> Result<()> {
    for (name, size) in [("input", p.input), ("output", p.output)] {
        let fits = size.iter().all(|&d| (1..=LARGEST).contains(&u64::from(d)));
        of.require(fits, name, size, "from 1 to 2147483647")?;
    }
    let dtype = of.float(large)?;
    of.holds(large_name, large, dtype, image(of, p.batch, p.input, p.channels)?)?;
    of.holds(small_name, small, dtype, image(of, p.batch, p.output, p.channels)?)
}

/// Checks [`PoolOps::adaptive_avg_pool`](crate::ops::PoolOps::adaptive_avg_pool).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn adaptive_avg_pool<R: Runtime>(on: &R, p: &AdaptivePoolParams, x: &R::Buffer, y: &R::Buffer) -> Result<()> {
    adaptive(&Operands::new(on, "adaptive_avg_pool"), p, ("x", x), ("y", y))
}

/// Checks [`PoolOps::adaptive_avg_pool_grad`](crate::ops::PoolOps::adaptive_avg_pool_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn adaptive_avg_pool_grad<R: Runtime>(on: &R, p: &AdaptivePoolParams, g: &R::Buffer, dx: &R::Buffer) -> Result<()> {
    adaptive(&Operands::new(on, "adaptive_avg_pool_grad"), p, ("dx", dx), ("g", g))
}
