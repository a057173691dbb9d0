//! Checks of norms.

use super::{Operands, accumulator};
use crate::ops::{
    BatchNormGrads, BatchNormInputs, BatchNormParams, BatchNormTrainParams, GroupNormParams, RunningStats,
};
use crate::{Buffer, DType, Result, Runtime};

/// Buffers with their names: those with an element for each element of the tensor, each channel, and each statistic.
struct Buffers<'b, B, const X: usize, const C: usize, const S: usize> {
    tensors: [(&'static str, &'b B); X],
    channels: [(&'static str, Option<&'b B>); C],
    statistics: [(&'static str, &'b B); S],
    /// True if the channels' buffers may have the accumulation dtype.
    mixed: bool,
}

impl<B: Buffer, const X: usize, const C: usize, const S: usize> Buffers<'_, B, X, C, S> {
    fn check<R: Runtime<Buffer = B>>(
        &self,
        of: &Operands<'_, R>,
        eps: f64,
        [n, channels, statistics]: [usize; 3],
    ) -> Result<()> {
        of.require(eps >= 0.0 && eps.is_finite(), "eps", eps, "a finite number, 0 or more")?;
        let dtype = of.float(self.tensors[0].1)?;
        for &(name, buffer) in &self.tensors {
            of.holds(name, buffer, dtype, n)?;
        }
        let first = self.channels.iter().find_map(|&(_, buffer)| buffer);
        let wide = self.mixed && first.is_some_and(|b| b.dtype() == accumulator(dtype));
        let affine = if wide { accumulator(dtype) } else { dtype };
        for &(name, buffer) in &self.channels {
            of.may_hold(name, buffer, affine, channels)?;
        }
        for &(name, buffer) in &self.statistics {
            of.holds(name, buffer, accumulator(dtype), statistics)?;
        }
        Ok(())
    }
}

/// The numbers of elements, channels and statistics of batch norm.
fn batch<R: Runtime>(of: &Operands<'_, R>, p: &BatchNormParams) -> Result<[usize; 3]> {
    let some = p.rows > 0 && p.channels > 0;
    of.require(some, "rows and channels", (p.rows, p.channels), "a non-empty tensor")?;
    let channels = of.size(&[p.channels])?;
    Ok([of.size(&[p.rows, p.channels])?, channels, channels])
}

/// The numbers of elements, channels and statistics of group norm.
fn group<R: Runtime>(of: &Operands<'_, R>, p: &GroupNormParams) -> Result<[usize; 3]> {
    of.flag("rms", p.rms)?;
    let sample = [p.positions, p.groups, p.width];
    of.require(
        !sample.contains(&0),
        "positions, groups and width",
        sample,
        "samples with elements",
    )?;
    Ok([
        of.size(&[p.samples, p.positions, p.groups, p.width])?,
        of.size(&[p.groups, p.width])?,
        of.size(&[p.samples, p.groups])?,
    ])
}

/// Checks [`NormOps::batch_norm_eval`](crate::ops::NormOps::batch_norm_eval).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn batch_norm_eval<R: Runtime>(
    on: &R,
    p: &BatchNormParams,
    x: &R::Buffer,
    residual: Option<&R::Buffer>,
    scale: Option<&R::Buffer>,
    shift: Option<&R::Buffer>,
    mean: &R::Buffer,
    var: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "batch_norm_eval");
    of.flag("relu", p.relu)?;
    let buffers = Buffers {
        tensors: [("x", x), ("y", y)],
        channels: [("scale", scale), ("shift", shift)],
        statistics: [("mean", mean), ("var", var)],
        mixed: true,
    };
    let sizes = batch(&of, p)?;
    buffers.check(&of, p.eps, sizes)?;
    of.may_hold("residual", residual, x.dtype(), sizes[0])
}

/// Checks [`NormOps::batch_norm_apply`](crate::ops::NormOps::batch_norm_apply).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn batch_norm_apply<R: Runtime>(
    on: &R,
    p: &BatchNormParams,
    x: &R::Buffer,
    residual: Option<&R::Buffer>,
    scale: Option<&R::Buffer>,
    shift: Option<&R::Buffer>,
    mean: &R::Buffer,
    rstd: &R::Buffer,
    y: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "batch_norm_apply");
    of.flag("relu", p.relu)?;
    let buffers = Buffers {
        tensors: [("x", x), ("y", y)],
        channels: [("scale", scale), ("shift", shift)],
        statistics: [("mean", mean), ("rstd", rstd)],
        mixed: true,
    };
    let sizes = batch(&of, p)?;
    buffers.check(&of, p.eps, sizes)?;
    of.may_hold("residual", residual, x.dtype(), sizes[0])
}

/// Checks [`NormOps::batch_norm`](crate::ops::NormOps::batch_norm).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn batch_norm<R: Runtime>(
    on: &R,
    p: &BatchNormTrainParams,
    x: &R::Buffer,
    moments: Option<&R::Buffer>,
    residual: Option<&R::Buffer>,
    scale: Option<&R::Buffer>,
    shift: Option<&R::Buffer>,
    y: &R::Buffer,
    mean: &R::Buffer,
    rstd: &R::Buffer,
    running: &RunningStats<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "batch_norm");
    of.require(p.rows >= 2, "rows", p.rows, "more than one value per channel")?;
    let share = (0.0..=1.0).contains(&p.momentum);
    of.require(share, "momentum", p.momentum, "a number from 0 to 1")?;
    of.flag("relu", p.relu)?;
    let buffers = Buffers {
        tensors: [("x", x), ("y", y)],
        channels: [("scale", scale), ("shift", shift)],
        statistics: [
            ("mean", mean),
            ("rstd", rstd),
            ("running_mean", running.mean),
            ("running_var", running.var),
        ],
        mixed: true,
    };
    let sizes = batch(&of, &p.batch_norm())?;
    buffers.check(&of, p.eps, sizes)?;
    of.may_hold("residual", residual, x.dtype(), sizes[0])?;
    of.may_hold("moments", moments, accumulator(x.dtype()), of.size(&[2, p.channels])?)?;
    of.holds("batches", running.batches, DType::I32, 1)
}

/// Checks [`NormOps::batch_norm_grad`](crate::ops::NormOps::batch_norm_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn batch_norm_grad<R: Runtime>(
    on: &R,
    p: &BatchNormParams,
    inputs: &BatchNormInputs<'_, R::Buffer>,
    g: &R::Buffer,
    more: Option<&R::Buffer>,
    to: &BatchNormGrads<'_, R::Buffer>,
) -> Result<()> {
    let of = Operands::new(on, "batch_norm_grad");
    of.flag("relu", p.relu)?;
    let found = inputs.y.is_some();
    of.require(!found || p.relu == 1, "y", found, "the result, if it is that of a ReLU")?;
    let (dscale, dshift) = (Some(&*to.dscale), Some(&*to.dshift));
    let buffers = Buffers {
        tensors: [("x", inputs.x), ("g", g), ("dx", to.dx)],
        channels: [
            ("scale", inputs.scale),
            ("shift", inputs.shift),
            ("dscale", dscale),
            ("dshift", dshift),
        ],
        statistics: [("mean", inputs.mean), ("rstd", inputs.rstd)],
        mixed: true,
    };
    let sizes = batch(&of, p)?;
    buffers.check(&of, p.eps, sizes)?;
    for (name, buffer) in [("y", inputs.y), ("more", more), ("dr", to.dr.as_deref())] {
        of.may_hold(name, buffer, g.dtype(), sizes[0])?;
    }
    Ok(())
}

/// Checks [`NormOps::batch_norm_data_grad`](crate::ops::NormOps::batch_norm_data_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn batch_norm_data_grad<R: Runtime>(
    on: &R,
    p: &BatchNormParams,
    inputs: &BatchNormInputs<'_, R::Buffer>,
    d: &R::Buffer,
    dscale: &R::Buffer,
    dshift: &R::Buffer,
    dx: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "batch_norm_data_grad");
    of.flag("relu", p.relu)?;
    let buffers = Buffers {
        tensors: [("x", inputs.x), ("d", d), ("dx", dx)],
        channels: [("scale", inputs.scale), ("shift", inputs.shift)],
        statistics: [
            ("mean", inputs.mean),
            ("rstd", inputs.rstd),
            ("dscale", dscale),
            ("dshift", dshift),
        ],
        mixed: true,
    };
    buffers.check(&of, p.eps, batch(&of, p)?)
}

/// Checks [`NormOps::group_norm`](crate::ops::NormOps::group_norm).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn group_norm<R: Runtime>(
    on: &R,
    p: &GroupNormParams,
    x: &R::Buffer,
    scale: Option<&R::Buffer>,
    shift: Option<&R::Buffer>,
    y: &R::Buffer,
    mean: &R::Buffer,
    rstd: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "group_norm");
    let buffers = Buffers {
        tensors: [("x", x), ("y", y)],
        channels: [("scale", scale), ("shift", shift)],
        statistics: [("mean", mean), ("rstd", rstd)],
        mixed: p.positions > 1,
    };
    buffers.check(&of, p.eps, group(&of, p)?)
}

/// Checks the operands of [`NormOps::group_norm_grad`](crate::ops::NormOps::group_norm_grad) that `dx` needs.
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn norm_rows_grad<R: Runtime>(
    on: &R,
    p: &GroupNormParams,
    x: &R::Buffer,
    scale: Option<&R::Buffer>,
    (mean, rstd): (&R::Buffer, &R::Buffer),
    g: &R::Buffer,
    dx: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "group_norm_grad");
    let buffers = Buffers {
        tensors: [("x", x), ("g", g), ("dx", dx)],
        channels: [("scale", scale)],
        statistics: [("mean", mean), ("rstd", rstd)],
        mixed: p.positions > 1,
    };
    buffers.check(&of, p.eps, group(&of, p)?)
}

/// Checks [`NormOps::group_norm_grad`](crate::ops::NormOps::group_norm_grad).
///
/// # Errors
/// Operands that the parameters do not fit.
pub fn group_norm_grad<R: Runtime>(
    on: &R,
    p: &GroupNormParams,
    x: &R::Buffer,
    scale: Option<&R::Buffer>,
    mean: &R::Buffer,
    rstd: &R::Buffer,
    g: &R::Buffer,
    dx: &R::Buffer,
    dscale: &R::Buffer,
    dshift: &R::Buffer,
) -> Result<()> {
    let of = Operands::new(on, "group_norm_grad");
    let buffers = Buffers {
        tensors: [("x", x), ("g", g), ("dx", dx)],
        channels: [("scale", scale), ("dscale", Some(dscale)), ("dshift", Some(dshift))],
        statistics: [("mean", mean), ("rstd", rstd)],
        mixed: p.positions > 1,
    };
    buffers.check(&of, p.eps, group(&of, p)?)
}
