//! Checks of the ops on a residual stream.

use super::{Operands, accumulator};
use crate::ops::{ResidualNormGrads, ResidualNormInputs, ResidualParams};
use crate::{Buffer, DType, Result, Runtime};

/// The dtype of the stream, and its number of elements; checks the parameters and the step.
fn stream<R: Runtime>(
    of: &Operands<'_, R>,
    p: &ResidualParams,
    x: (&'static str, &R::Buffer),
    step: Option<&R::Buffer>,
) -> Result<(DType, usize)> {
    of.require(p.width > 0, "width", p.width, "rows with elements")?;
    of.require(
        p.eps >= 0.0 && p.eps.is_finite(),
        "eps",
        p.eps,
        "a finite number, 0 or more",
    )?;
    of.require(
        (0.0..=1.0).contains(&p.drop),
        "drop",
        p.drop,
        "a probability from 0 to 1",
    )?;
    let given = step.is_some() || p.drop == 0.0;
    of.require(given, "step", "none", "a step for dropout")?;
    of.may_hold("step", step, DType::I32, 1)?;
    let (dtype, n) = (of.float(x.1)?, of.size(&[p.rows, p.width])?);
    of.holds(x.0, x.1, dtype, n)?;
    Ok((dtype, n))
}

/// Checks a buffer of a branch or a norm, of the stream's dtype or of halves beside f32; returns its dtype.
fn beside<R: Runtime>(
    of: &Operands<'_, R>,
    name: &'static str,
    buffer: &R::Buffer,
    (dtype, n): (DType, usize),
) -> Result<DType> {
    let half = dtype == DType::F32 && matches!(buffer.dtype(), DType::BF16 | DType::F16);
    let own = if half { of.float(buffer)? } else { dtype };
    of.holds(name, buffer, own, n)?;
    Ok(own)
}

/// Checks vectors of the width, all of the stream's dtype or all of its accumulation dtype.
fn vectors<R: Runtime, const N: usize>(
    of: &Operands<'_, R>,
    p: &ResidualParams,
    dtype: DType,
    vectors: [(&'static str, &R::Buffer); N],
) -> Result<()> {
    let wide = vectors[0].1.dtype() == accumulator(dtype);
    let dtype = if wide { accumulator(dtype) } else { dtype };
    for (name, buffer) in vectors {
        of.holds(name, buffer, dtype, p.width as usize)?;
    }
    Ok(())
}

/// Checks [`ResidualOps::residual_add`](crate::ops::ResidualOps::residual_add).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn residual_add<R: Runtime>(
    on: &R,
    p: &ResidualParams,
    x: &R::Buffer,
    y: &R::Buffer,
    step: Option<&R::Buffer>,
    s: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "residual_add");
    let size = stream(&of, p, ("x", x), step)?;
    beside(&of, "y", y, size)?;
    of.holds("s", s, size.0, size.1)
}

/// Checks [`ResidualOps::residual_add_grad`](crate::ops::ResidualOps::residual_add_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn residual_add_grad<R: Runtime>(
    on: &R,
    p: &ResidualParams,
    g: &R::Buffer,
    step: Option<&R::Buffer>,
    dy: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "residual_add_grad");
    let size = stream(&of, p, ("g", g), step)?;
    beside(&of, "dy", dy, size).map(drop)
}

/// Checks [`ResidualOps::residual_norm`](crate::ops::ResidualOps::residual_norm).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn residual_norm<R: Runtime>(
    on: &R,
    p: &ResidualParams,
    x: &R::Buffer,
    branch: Option<(&R::Buffer, &R::Buffer)>,
    step: Option<&R::Buffer>,
    scale: &R::Buffer,
    shift: &R::Buffer,
    n: &R::Buffer,
    mean: &R::Buffer,
    rstd: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "residual_norm");
    let size = stream(&of, p, ("x", x), step)?;
    let half = beside(&of, "n", n, size)?;
    if let Some((y, s)) = branch {
        of.holds("y", y, half, size.1)?;
        of.holds("s", s, size.0, size.1)?;
    }
    vectors(&of, p, size.0, [("scale", scale), ("shift", shift)])?;
    for (name, statistic) in [("mean", mean), ("rstd", rstd)] {
        of.holds(name, statistic, accumulator(size.0), p.rows as usize)?;
    }
    Ok(())
}

/// Checks [`ResidualOps::residual_norm_grad`](crate::ops::ResidualOps::residual_norm_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn residual_norm_grad<R: Runtime>(
    on: &R,
    p: &ResidualParams,
    inputs: &ResidualNormInputs<'_, R::Buffer>,
    to: &ResidualNormGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "residual_norm_grad");
    let &ResidualNormInputs { s, step, g, .. } = inputs;
    let dy = to.dy.as_deref();
    // Without a gradient of the branch nothing is drawn.
    let drawn = ResidualParams {
        drop: if dy.is_some() || step.is_some() { p.drop } else { 0.0 },
        ..*p
    };
    of.require(
        (0.0..=1.0).contains(&p.drop),
        "drop",
        p.drop,
        "a probability from 0 to 1",
    )?;
    let size = stream(&of, &drawn, ("s", s), step)?;
    let half = beside(&of, "g", g, size)?;
    of.may_hold("more", inputs.more, half, size.1)?;
    of.may_hold("sum", inputs.sum, size.0, size.1)?;
    of.holds("ds", to.ds, size.0, size.1)?;
    of.may_hold("dy", dy, half, size.1)?;
    let scale = ("scale", inputs.scale);
    vectors(&of, p, size.0, [scale, ("dscale", to.dscale), ("dshift", to.dshift)])?;
    for (name, statistic) in [("mean", inputs.mean), ("rstd", inputs.rstd)] {
        of.holds(name, statistic, accumulator(size.0), p.rows as usize)?;
    }
    Ok(())
}
