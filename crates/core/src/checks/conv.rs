//! Checks of convolutions, alone and followed by a pooling.

use super::pool;
use super::window::{Along, LARGEST, image, windows};
use super::{Operands, accumulator};
use crate::ops::{Activation, BatchNormInputs, ConvNormGrads, ConvParams, ConvPoolGrads, ConvPoolParams, PooledGrad};
use crate::{Buffer, DType, Result, Runtime};

/// The numbers of elements of the input, the weight and the output.
fn sizes<R: Runtime>(of: &Operands<'_, R>, p: &ConvParams) -> Result<[usize; 3]> {
    of.code("activation", p.activation, Activation::from_code(p.activation))?;
    let all = [p.batch, p.groups, p.in_channels, p.out_channels].map(u64::from);
    of.require(all.iter().all(|&v| v <= LARGEST), "sizes", all, "at most 2147483647")?;
    let channels = [p.in_channels, p.out_channels];
    let divides = p.groups > 0 && channels.iter().all(|&c| c > 0 && c.is_multiple_of(p.groups));
    of.require(
        divides,
        "groups",
        (p.groups, channels),
        "at least 1, and a divisor of the channels",
    )?;
    // The padding after the input follows from the output. It equals the padding before, is one larger (SAME), or is
    // smaller, where a transposed convolution has output padding.
    let fit = |a: &Along| {
        let last = a.last() + a.extent();
        last <= a.padded() + 1 && last + a.stride.max(a.dilation) > a.padded()
    };
    windows(of, &p.window, fit)?;
    let [d, h, w] = p.window.kernel.map(u64::from);
    let weight = of.size(&[u64::from(p.out_channels), d, h, w, u64::from(p.in_channels / p.groups)])?;
    Ok([
        image(of, p.batch, p.window.input, p.in_channels)?,
        weight,
        image(of, p.batch, p.window.output, p.out_channels)?,
    ])
}

/// Checks [`ConvOps::conv`](crate::ops::ConvOps::conv).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv<R: Runtime>(
    on: &R,
    p: &ConvParams,
    x: &R::Buffer,
    w: &R::Buffer,
    bias: Option<&R::Buffer>,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "conv");
    let (dtype, [input, weight, output]) = (of.float(y)?, sizes(&of, p)?);
    of.holds("x", x, dtype, input)?;
    of.holds("w", w, dtype, weight)?;
    of.may_hold("bias", bias, dtype, p.out_channels as usize)?;
    of.holds("y", y, dtype, output)
}

/// Checks [`ConvOps::conv_moments`](crate::ops::ConvOps::conv_moments).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_moments<R: Runtime>(
    on: &R,
    p: &ConvParams,
    x: &R::Buffer,
    w: &R::Buffer,
    y: &R::Buffer,
    moments: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "conv_moments");
    let (dtype, [input, weight, output]) = (of.float(y)?, sizes(&of, p)?);
    of.require(output > 0, "y", output, "a result that is not empty")?;
    of.holds("x", x, dtype, input)?;
    of.holds("w", w, dtype, weight)?;
    of.holds("y", y, dtype, output)?;
    of.holds(
        "moments",
        moments,
        accumulator(dtype),
        of.size(&[2, u64::from(p.out_channels)])?,
    )
}

/// Checks [`ConvOps::conv_data_grad`](crate::ops::ConvOps::conv_data_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_data_grad<R: Runtime>(on: &R, p: &ConvParams, g: &R::Buffer, w: &R::Buffer, dx: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "conv_data_grad");
    let (dtype, [input, weight, output]) = (of.float(dx)?, sizes(&of, p)?);
    of.holds("g", g, dtype, output)?;
    of.holds("w", w, dtype, weight)?;
    of.holds("dx", dx, dtype, input)
}

/// Checks [`ConvOps::conv_norm_grad`](crate::ops::ConvOps::conv_norm_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_norm_grad<R: Runtime>(
    on: &R,
    p: &ConvParams,
    g: &R::Buffer,
    w: &R::Buffer,
    norm: &BatchNormInputs<'_, R::Buffer>,
    more: Option<&R::Buffer>,
    to: &ConvNormGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "conv_norm_grad");
    let (dtype, [input, weight, output]) = (of.float(to.d)?, sizes(&of, p)?);
    let behind = Activation::from_code(p.activation);
    let known = matches!(behind, Some(Activation::None | Activation::Relu));
    of.require(known, "activation", p.activation, "that of a ReLU, or none")?;
    let found = norm.y.is_some();
    let relu = behind == Some(Activation::Relu);
    of.require(!found || relu, "y", found, "the result, if it is that of a ReLU")?;
    let again = to.y.is_none() || relu && !found;
    of.require(again, "y", !again, "wanted of a ReLU alone, and not given as well")?;
    of.require(input > 0, "d", input, "a result that is not empty")?;
    of.holds("g", g, dtype, output)?;
    of.holds("w", w, dtype, weight)?;
    for (name, buffer) in [("x", norm.x), ("d", &*to.d)] {
        of.holds(name, buffer, dtype, input)?;
    }
    for (name, buffer) in [("y", norm.y), ("more", more), ("y", to.y.as_deref())] {
        of.may_hold(name, buffer, dtype, input)?;
    }
    let (channels, wide) = (p.in_channels as usize, accumulator(dtype));
    let affine = norm.scale.or(norm.shift).map(Buffer::dtype);
    let affine = if affine == Some(wide) { wide } else { dtype };
    for (name, buffer) in [("scale", norm.scale), ("shift", norm.shift)] {
        of.may_hold(name, buffer, affine, channels)?;
    }
    let statistics = [
        ("mean", norm.mean),
        ("rstd", norm.rstd),
        ("dscale", &*to.dscale),
        ("dshift", &*to.dshift),
    ];
    statistics
        .into_iter()
        .try_for_each(|(name, buffer)| of.holds(name, buffer, wide, channels))
}

/// Checks [`ConvOps::conv_weight_grad`](crate::ops::ConvOps::conv_weight_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_weight_grad<R: Runtime>(
    on: &R,
    p: &ConvParams,
    g: &R::Buffer,
    x: &R::Buffer,
    dw: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "conv_weight_grad");
    let (dtype, [input, weight, output]) = (of.float(dw)?, sizes(&of, p)?);
    of.holds("g", g, dtype, output)?;
    of.holds("x", x, dtype, input)?;
    of.holds("dw", dw, dtype, weight)
}

/// The numbers of elements of the input, the weight and the pooled output.
fn pooled<R: Runtime>(of: &Operands<'_, R>, p: &ConvPoolParams) -> Result<[usize; 3]> {
    let [input, weight, _] = sizes(of, &p.conv)?;
    let [_, output] = pool::placed(of, &p.pool)?;
    let (conv, pool) = (&p.conv, &p.pool);
    let joined = (pool.batch, pool.channels, pool.window.input) == (conv.batch, conv.out_channels, conv.window.output);
    of.require(joined, "pool", pool, "a pooling of what the convolution gives")?;
    Ok([input, weight, output])
}

/// Checks [`ConvPoolOps::conv_max_pool`](crate::ops::ConvPoolOps::conv_max_pool).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_max_pool<R: Runtime>(
    on: &R,
    p: &ConvPoolParams,
    x: &R::Buffer,
    w: &R::Buffer,
    bias: Option<&R::Buffer>,
    y: &R::Buffer,
    index: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "conv_max_pool");
    let (dtype, [input, weight, output]) = (of.float(y)?, pooled(&of, p)?);
    of.holds("x", x, dtype, input)?;
    of.holds("w", w, dtype, weight)?;
    of.may_hold("bias", bias, dtype, p.conv.out_channels as usize)?;
    of.holds("y", y, dtype, output)?;
    of.holds("index", index, DType::I32, output)
}

/// Checks [`ConvPoolOps::conv_max_pool_grad`](crate::ops::ConvPoolOps::conv_max_pool_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn conv_max_pool_grad<R: Runtime>(
    on: &R,
    p: &ConvPoolParams,
    from: &PooledGrad<'_, R::Buffer>,
    x: &R::Buffer,
    w: &R::Buffer,
    to: &ConvPoolGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "conv_max_pool_grad");
    let (dtype, [input, weight, output]) = (of.float(from.g)?, pooled(&of, p)?);
    of.holds("g", from.g, dtype, output)?;
    of.holds("y", from.y, dtype, output)?;
    of.holds("index", from.index, DType::I32, output)?;
    of.holds("x", x, dtype, input)?;
    of.holds("w", w, dtype, weight)?;
    of.may_hold("dx", to.dx.as_deref(), dtype, input)?;
    of.may_hold("dw", to.dw.as_deref(), dtype, weight)?;
    of.may_hold("db", to.db.as_deref(), dtype, p.conv.out_channels as usize)
}
