//! Checks of poolings.

use super::Operands;
use crate::ops::{AdaptivePoolParams, PoolParams};
use crate::{DType, Result, Runtime};

/// The largest dimension, extent and number of taps.
pub(super) const LARGEST: u64 = i32::MAX as u64;

/// The sizes of a window in one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) kernel: u64,
    pub(super) stride: u64,
    pub(super) padding: u64,
    pub(super) dilation: u64,
}

impl Along {
    /// The number of elements that a window spans, dilation included; all sizes are below 2³¹.
    pub(super) fn extent(&self) -> u64 {
        (self.kernel - 1) * self.dilation + 1
    }

    /// The start of the last window in the padded input; `output` is at least 1.
    pub(super) fn last(&self) -> u64 {
        (self.output - 1) * self.stride
    }

    /// The size of the input padded by `padding` on both sides.
    pub(super) fn padded(&self) -> u64 {
        self.input + 2 * self.padding
    }
}

/// Checks the sizes of windows; `fit` tells whether they agree with input and output in one dimension.
pub(super) fn windows<R: Runtime>(
    of: &Operands<'_, R>,
    dims: [[u32; 3]; 6],
    fit: impl Fn(&Along) -> bool,
) -> Result<()> {
    let mut taps = 1u64;
    for i in 0..3 {
        let [input, output, kernel, stride, padding, dilation] = dims.map(|d| u64::from(d[i]));
        let along = Along {
            input,
            output,
            kernel,
            stride,
            padding,
            dilation,
        };
        let ones = [kernel, stride, dilation];
        of.require(!ones.contains(&0), "kernel, stride and dilation", ones, "at least 1")?;
        let all = [input, output, kernel, stride, padding, dilation];
        of.require(all.iter().all(|&v| v <= LARGEST), "sizes", all, "at most 2147483647")?;
        of.require(
            along.extent() <= LARGEST,
            "kernel",
            along,
            "one that spans at most 2147483647",
        )?;
        of.require(
            output == 0 || fit(&along),
            "output",
            along,
            "the windows that fit the input",
        )?;
        // No overflow: both factors are below 2³¹, and the product is checked.
        taps *= kernel;
        of.require(taps <= LARGEST, "kernel", dims[2], "at most 2147483647 taps")?;
    }
    Ok(())
}

/// The number of elements of images of `size` positions.
pub(super) fn image<R: Runtime>(of: &Operands<'_, R>, batch: u32, size: [u32; 3], channels: u32) -> Result<usize> {
    let [d, h, w] = size;
    of.size(&[batch, d, h, w, channels].map(u64::from))
}

/// Checks the parameters of windows; returns the numbers of elements of the input and the output.
pub(super) fn sizes<R: Runtime>(of: &Operands<'_, R>, p: &PoolParams) -> Result<[usize; 2]> {
    of.flag("count_include_pad", p.count_include_pad)?;
    of.require(!p.input.contains(&0), "input", p.input, "at least 1")?;
    let channels = [p.batch, p.channels].map(u64::from);
    of.require(
        channels.iter().all(|&v| v <= LARGEST),
        "sizes",
        channels,
        "at most 2147483647",
    )?;
    // The last window starts before the end of the input, and one more would not fit in the padded input.
    let fit = |a: &Along| a.last() < a.input + a.padding && a.last() + a.stride + a.extent() > a.padded();
    let dims = [p.input, p.output, p.kernel, p.stride, p.padding, p.dilation];
    windows(of, dims, fit)?;
    Ok([
        image(of, p.batch, p.input, p.channels)?,
        image(of, p.batch, p.output, p.channels)?,
    ])
}

/// As [`sizes`], for ops that keep positions within an image in i32.
pub(super) fn placed<R: Runtime>(of: &Operands<'_, R>, p: &PoolParams) -> Result<[usize; 2]> {
    let all = sizes(of, p)?;
    let positions = of.size(&p.input.map(u64::from))? as u64;
    let fits = positions <= LARGEST || all[1] == 0;
    of.require(fits, "input", p.input, "at most 2147483647 positions")?;
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
    index: &R::Buffer,
    dx: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "max_pool_grad");
    let (dtype, [input, output]) = (of.float(dx)?, placed(&of, p)?);
    of.holds("g", g, dtype, output)?;
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
    of.require(p.dilation == [1; 3], "dilation", p.dilation, "1")?;
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
