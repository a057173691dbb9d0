//! Normalisation: batch norm over channels, and layer, RMS, group and instance norm within a sample.

use super::Op;
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of batch norm in evaluation mode, and of its gradient in training, over a channels-last tensor as
/// `[rows, channels]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BatchNormParams {
    /// The number of values per channel: batch size times positions.
    pub rows: u64,
    /// The number of channels.
    pub channels: u64,
    /// The constant added to the variance.
    pub eps: f64,
    /// 1 if the result is that of a ReLU, after the residual is added.
    pub relu: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<BatchNormParams>() == 32);

impl BatchNormParams {
    /// Parameters for a tensor whose last dimension is the channels.
    ///
    /// # Errors
    /// Rank below 2, a negative or NaN `eps`.
    pub fn new(op: &'static str, x: &Shape, eps: f64) -> Result<Self> {
        if x.rank() < 2 {
            return Err(Error::Rank {
                op,
                expected: "2 or more",
                rank: x.rank(),
            });
        }
        check_eps(op, eps)?;
        let channels = x[x.rank() - 1];
        let rows = x[..x.rank() - 1].iter().product::<usize>();
        Ok(BatchNormParams {
            rows: rows as u64,
            channels: channels as u64,
            eps,
            relu: 0,
            pad: 0,
        })
    }

    /// The norm in training, without residual and ReLU.
    pub fn group_norm(&self) -> GroupNormParams {
        GroupNormParams::of_channels(self.rows, self.channels, self.eps)
    }
}

/// Parameters of batch norm in training mode with running statistics, over a channels-last tensor as `[rows, channels]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BatchNormTrainParams {
    /// The number of values per channel, at least 2: batch size times positions.
    pub rows: u64,
    /// The number of channels.
    pub channels: u64,
    /// The constant added to the variance.
    pub eps: f64,
    /// The weight of this batch in the running statistics, from 0 to 1.
    pub momentum: f64,
    /// 1 if the result is that of a ReLU, after the residual is added.
    pub relu: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<BatchNormTrainParams>() == 40);

impl BatchNormTrainParams {
    /// Parameters for a tensor whose last dimension is the channels.
    ///
    /// # Errors
    /// As [`BatchNormParams::new`]; a single value per channel, a `momentum` outside of 0 to 1.
    pub fn new(op: &'static str, x: &Shape, eps: f64, momentum: f64) -> Result<Self> {
        let BatchNormParams {
            rows, channels, eps, ..
        } = BatchNormParams::new(op, x, eps)?;
        if rows == 1 {
            let expected = "more than one value per channel in training";
            return Err(Error::invalid(op, "input", x, expected));
        }
        if !(0.0..=1.0).contains(&momentum) {
            return Err(Error::invalid(op, "momentum", momentum, "a number from 0 to 1"));
        }
        Ok(BatchNormTrainParams {
            rows,
            channels,
            eps,
            momentum,
            relu: 0,
            pad: 0,
        })
    }

    /// The norm without running statistics.
    pub fn batch_norm(&self) -> BatchNormParams {
        BatchNormParams {
            rows: self.rows,
            channels: self.channels,
            eps: self.eps,
            relu: self.relu,
            pad: 0,
        }
    }
}

/// Parameters of a norm within each sample, with `x` as `[samples, positions, groups, width]`: every
/// (sample, group) is normalised over positions and width.
///
/// Layer and RMS norm have `positions = groups = 1`, instance norm has `width = 1`, and batch norm in training is the
/// instance norm of a single sample that has the positions of the whole batch. Scale and shift have `groups·width`
/// entries.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct GroupNormParams {
    /// The number of samples, which are normalised independently.
    pub samples: u64,
    /// The number of positions in one sample.
    pub positions: u64,
    /// The number of groups of channels.
    pub groups: u64,
    /// The number of channels in one group.
    pub width: u64,
    /// The constant added to the variance (RMS norm: to the mean square).
    pub eps: f64,
    /// 1 for RMS norm: no mean is subtracted, `rstd = 1/√(mean(x²) + eps)`.
    pub rms: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<GroupNormParams>() == 48);

impl GroupNormParams {
    /// Parameters of layer norm (or RMS norm) over the last `normalized.rank()` dimensions, which must equal `normalized`.
    ///
    /// # Errors
    /// Trailing dimensions that differ from `normalized`, a `normalized` without dimensions, a negative or NaN `eps`.
    pub fn layer(op: &'static str, x: &Shape, normalized: &Shape, eps: f64, rms: bool) -> Result<Self> {
        check_eps(op, eps)?;
        let lead = x.rank().checked_sub(normalized.rank());
        let Some(lead) = lead.filter(|&l| x[l..] == normalized[..]) else {
            return Err(Error::ShapeMismatch {
                op,
                lhs: *x,
                rhs: *normalized,
            });
        };
        if normalized.rank() == 0 {
            return Err(Error::invalid(
                op,
                "normalized_shape",
                normalized,
                "at least one dimension",
            ));
        }
        Ok(GroupNormParams {
            samples: x[..lead].iter().product::<usize>() as u64,
            positions: 1,
            groups: 1,
            width: normalized.size() as u64,
            eps,
            rms: u32::from(rms),
            pad: 0,
        })
    }

    /// Parameters of batch norm in training mode over a channels-last tensor.
    ///
    /// # Errors
    /// As [`BatchNormParams::new`].
    pub fn batch(op: &'static str, x: &Shape, eps: f64) -> Result<Self> {
        let p = BatchNormParams::new(op, x, eps)?;
        Ok(Self::of_channels(p.rows, p.channels, eps))
    }

    /// Parameters of batch norm over `rows` values of each channel.
    pub fn of_channels(rows: u64, channels: u64, eps: f64) -> Self {
        GroupNormParams {
            samples: 1,
            positions: rows,
            groups: channels,
            width: 1,
            eps,
            rms: 0,
            pad: 0,
        }
    }

    /// True if every channel is normalised by itself over all samples and positions, as in batch norm.
    pub fn is_batch_norm(&self) -> bool {
        self.samples == 1 && self.width == 1 && self.rms == 0
    }

    /// Parameters of group norm of `[N, …, C]` in `groups` groups; instance norm has as many groups as channels.
    ///
    /// # Errors
    /// Rank below 2, groups that do not divide the channels, a negative or NaN `eps`.
    pub fn group(op: &'static str, x: &Shape, groups: usize, eps: f64) -> Result<Self> {
        check_eps(op, eps)?;
        if x.rank() < 2 {
            return Err(Error::Rank {
                op,
                expected: "2 or more",
                rank: x.rank(),
            });
        }
        let channels = x[x.rank() - 1];
        if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::invalid(
                op,
                "groups",
                groups,
                format!("a divisor of {channels} channels"),
            ));
        }
        let positions = x[1..x.rank() - 1].iter().product::<usize>();
        if positions == 0 {
            return Err(Error::invalid(op, "input", x, "at least one position"));
        }
        Ok(GroupNormParams {
            samples: x[0] as u64,
            positions: positions as u64,
            groups: groups as u64,
            width: (channels / groups) as u64,
            eps,
            rms: 0,
            pad: 0,
        })
    }
}

fn check_eps(op: &'static str, eps: f64) -> Result<()> {
    if eps >= 0.0 && eps.is_finite() {
        Ok(())
    } else {
        Err(Error::invalid(op, "eps", eps, "a finite number, 0 or more"))
    }
}

/// The running statistics of a batch norm.
#[derive(Debug)]
pub struct RunningStats<'a, B> {
    /// The mean of each channel.
    pub mean: &'a mut B,
    /// The unbiased variance of each channel.
    pub var: &'a mut B,
    /// The number of batches, one i32.
    pub batches: &'a mut B,
}

/// The tensors from which the gradient of a batch norm in training is computed, besides the gradient of its result.
#[derive(Debug)]
pub struct BatchNormInputs<'a, B> {
    /// The tensor that was normalised.
    pub x: &'a B,
    /// The scale of each channel.
    pub scale: Option<&'a B>,
    /// The shift of each channel, of the dtype of the scale. Only a ReLU without `y` reads it.
    pub shift: Option<&'a B>,
    /// The mean of each channel.
    pub mean: &'a B,
    /// 1/√(variance + eps) of each channel.
    pub rstd: &'a B,
    /// The result, if it is that of a ReLU behind a residual. Without a residual it may be left out: `x`, the statistics, scale and
    /// shift then say where it was positive, exactly as [`NormOps::batch_norm`] has rounded it.
    pub y: Option<&'a B>,
}

/// The gradients of a batch norm in training.
#[derive(Debug)]
pub struct BatchNormGrads<'a, B> {
    /// That of the tensor that was normalised.
    pub dx: &'a mut B,
    /// That of the residual, where it is wanted.
    pub dr: Option<&'a mut B>,
    /// That of the scale, written even if there is none.
    pub dscale: &'a mut B,
    /// That of the shift, written even if there is none.
    pub dshift: &'a mut B,
}

/// Norms of a backend, for tensors that are not empty. Statistics (`mean`, `rstd`, `var`) are of the tensor's accumulation dtype:
/// f32, or f64 for f64. Scale and shift are optional and of the tensor's dtype; those of batch norm, and of other norms over
/// several positions, may be of the accumulation dtype instead (mixed precision), and so are their gradients then.
///
/// Batch norm may add a `residual` of the tensor's shape and dtype and then set what is negative to zero (`relu` of its parameters), as
/// the blocks of residual networks do.
pub trait NormOps: Runtime {
    /// Normalises with given statistics: `y = relu((x − mean)/√(var + eps)·scale + shift + residual)`.
    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &Self::Buffer,
        residual: Option<&Self::Buffer>,
        scale: Option<&Self::Buffer>,
        shift: Option<&Self::Buffer>,
        mean: &Self::Buffer,
        var: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, residual, scale, shift, mean, var, y);
        self.unsupported(Op::BatchNormEval)
    }

    /// Normalises each channel by its values in the batch, `y = relu((x − mean)·rstd·scale + shift + residual)`, and returns its
    /// statistics as [`NormOps::group_norm`] with [`BatchNormParams::group_norm`] does. Running statistics (f32; f64 for f64) move
    /// towards them: `running = (1 − momentum)·running + momentum·batch`, with the mean, and with the unbiased variance (divided by
    /// `rows − 1`); the number of batches grows by 1. With the `moments` of `x`, which
    /// [`ConvOps::conv_moments`](crate::ops::ConvOps::conv_moments) gives, they need not be computed.
    fn batch_norm(
        &self,
        p: &BatchNormTrainParams,
        x: &Self::Buffer,
        moments: Option<&Self::Buffer>,
        residual: Option<&Self::Buffer>,
        scale: Option<&Self::Buffer>,
        shift: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
        mean: &mut Self::Buffer,
        rstd: &mut Self::Buffer,
        running: RunningStats<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, x, moments, residual, scale, shift, y, mean, rstd, running);
        self.unsupported(Op::BatchNorm)
    }

    /// Computes the result of [`NormOps::batch_norm`] again, with its bits, from the statistics that it has returned.
    fn batch_norm_apply(
        &self,
        p: &BatchNormParams,
        x: &Self::Buffer,
        residual: Option<&Self::Buffer>,
        scale: Option<&Self::Buffer>,
        shift: Option<&Self::Buffer>,
        mean: &Self::Buffer,
        rstd: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, residual, scale, shift, mean, rstd, y);
        self.unsupported(Op::BatchNorm)
    }

    /// Computes the gradient of [`NormOps::batch_norm`] from that of its result, `g`, or `g + more` where the result was used twice.
    /// `dr` is that sum, zero where `y ≤ 0` if the result is that of a ReLU; `dx`, `dscale` and `dshift` are those of
    /// [`NormOps::group_norm_grad`] for `dr`.
    fn batch_norm_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, Self::Buffer>,
        g: &Self::Buffer,
        more: Option<&Self::Buffer>,
        to: BatchNormGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, of, g, more, to);
        self.unsupported(Op::BatchNorm)
    }

    /// `dx` of [`NormOps::batch_norm_grad`] from what [`ConvOps::conv_norm_grad`](crate::ops::ConvOps::conv_norm_grad) gives: the gradient `d`
    /// before residual and ReLU, and `dscale` and `dshift` of the accumulation dtype. The shift and `y` are not read.
    fn batch_norm_data_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, Self::Buffer>,
        d: &Self::Buffer,
        dscale: &Self::Buffer,
        dshift: &Self::Buffer,
        dx: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, of, d, dscale, dshift, dx);
        self.unsupported(Op::ConvNormGrad)
    }

    /// Normalises each (sample, group), `y = (x − mean)·rstd·scale + shift`, and returns its statistics `[samples, groups]`:
    /// the mean, and `rstd = 1/√(var + eps)` of the biased variance. RMS norm has a `mean` of zero and uses the mean square
    /// as variance.
    fn group_norm(
        &self,
        p: &GroupNormParams,
        x: &Self::Buffer,
        scale: Option<&Self::Buffer>,
        shift: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
        mean: &mut Self::Buffer,
        rstd: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, scale, shift, y, mean, rstd);
        self.unsupported(Op::GroupNorm)
    }

    /// Computes the gradient of [`NormOps::group_norm`]. With `x̂ = (x − mean)·rstd`: `dshift = Σg`, `dscale = Σg·x̂`, and over
    /// the `n` values of a group `dx = rstd·(g·scale − Σ(g·scale)/n − x̂·Σ(g·scale·x̂)/n)`, without the first sum for RMS norm.
    /// `dscale` and `dshift` (`groups·width` entries, of one dtype, that of `scale` if there is one) are always written.
    fn group_norm_grad(
        &self,
        p: &GroupNormParams,
        x: &Self::Buffer,
        scale: Option<&Self::Buffer>,
        mean: &Self::Buffer,
        rstd: &Self::Buffer,
        g: &Self::Buffer,
        dx: &mut Self::Buffer,
        dscale: &mut Self::Buffer,
        dshift: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, scale, mean, rstd, g, dx, dscale, dshift);
        self.unsupported(Op::GroupNorm)
    }
}
