//! Convolution in one to three spatial dimensions, channels-last, and its data and weight gradients.
//!
//! Layouts: input `[N, D, H, W, C]`, weight `[O, kD, kH, kW, C/groups]`, output `[N, D', H', W', O]`; one- and
//! two-dimensional images drop the leading spatial dimensions. As in every deep-learning library "convolution" is
//! cross-correlation: `y[n, o, c] = Σ_k Σ_i x[n, o·stride + k·dilation − padding, i] · w[c, k, i]`.

pub(super) mod window;

pub use window::*;

use super::{Activation, BatchNormInputs, BatchNormParams, Op, dim32};
use crate::{DType, Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of a convolution and of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ConvParams {
    /// The windows.
    pub window: WindowParams,
    /// Images.
    pub batch: u32,
    /// Groups that input and output channels are split into.
    pub groups: u32,
    /// Input channels, all groups.
    pub in_channels: u32,
    /// Output channels, all groups.
    pub out_channels: u32,
    /// Code of the [`Activation`] applied to the result (forward only).
    pub activation: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<ConvParams>() == 96);

impl ConvParams {
    /// The parameters of a batch norm whose result is the input, with the activation of [`ConvOps::conv_norm_grad`] behind it. The constant
    /// that is added to the variance is zero: gradients do not read it.
    pub fn norm_of_input(&self) -> BatchNormParams {
        let rows = self.window.input.iter().map(|&n| u64::from(n)).product::<u64>() * u64::from(self.batch);
        BatchNormParams {
            rows,
            channels: u64::from(self.in_channels),
            eps: 0.0,
            relu: u32::from(self.activation == Activation::Relu as u32),
            pad: 0,
        }
    }

    /// Parameters of a convolution of `x` by `w`, and the shape of the result.
    ///
    /// # Errors
    /// Wrong ranks, a zero stride or dilation, a kernel larger than the padded input, groups that do not divide the
    /// channels, a weight that does not fit the input.
    pub fn new(op: &'static str, x: &Shape, w: &Shape, window: &Window, groups: usize) -> Result<(Self, Shape)> {
        let rank = window.rank;
        let (batch, input, in_channels) = image_parts(op, rank, x)?;
        window.check(op)?;
        let (out_channels, kernel, per_group) = image_parts(op, rank, w)?;
        if kernel != window.kernel {
            return Err(Error::ShapeMismatch { op, lhs: *x, rhs: *w });
        }
        check_groups(op, groups, in_channels, out_channels)?;
        if per_group != in_channels / groups {
            return Err(Error::ShapeMismatch { op, lhs: *x, rhs: *w });
        }
        let (mut padding, mut output) = ([0; 3], [0; 3]);
        for i in 0..3 {
            (padding[i], output[i]) = window.output(op, i, input[i])?;
        }
        let windows = WindowParams::new(op, window, input, output, padding)?;
        let p = Self::assemble(op, batch, groups, in_channels, out_channels, windows)?;
        Ok((p, image_of(rank, batch, output, out_channels)?))
    }

    /// Parameters of the transposed convolution of `x` by `w` `[C_in, k…, C_out/groups]`: the convolution whose data
    /// gradient it is, and the shape of the result, `(size − 1)·stride − 2·padding + extent + output_padding`.
    ///
    /// # Errors
    /// As [`ConvParams::new`]; an output padding that is not smaller than stride or dilation; an empty result.
    pub fn transposed(
        op: &'static str,
        x: &Shape,
        w: &Shape,
        window: &Window,
        output_padding: [usize; 3],
        groups: usize,
    ) -> Result<(Self, Shape)> {
        let rank = window.rank;
        let (batch, size, channels) = image_parts(op, rank, x)?;
        window.check(op)?;
        let (from, kernel, per_group) = image_parts(op, rank, w)?;
        if kernel != window.kernel || from != channels {
            return Err(Error::ShapeMismatch { op, lhs: *x, rhs: *w });
        }
        let Padding::Explicit(padding) = window.padding else {
            return Err(Error::invalid(op, "padding", "same", "numbers"));
        };
        if groups == 0 {
            return Err(Error::invalid(op, "groups", 0, "at least 1"));
        }
        let made = per_group.checked_mul(groups).ok_or(Error::TooLarge {
            op,
            dims: vec![per_group, groups],
        })?;
        check_groups(op, groups, channels, made)?;
        let mut result = [0; 3];
        for i in 0..3 {
            if output_padding[i] >= window.stride[i].max(window.dilation[i]) && output_padding[i] > 0 {
                return Err(Error::invalid(
                    op,
                    "output_padding",
                    output_padding[i],
                    "less than stride or dilation",
                ));
            }
            let full = size[i]
                .saturating_sub(1)
                .saturating_mul(window.stride[i])
                .saturating_add(window.extent(i) + output_padding[i]);
            result[i] = full
                .checked_sub(2 * padding[i])
                .filter(|&r| r > 0 && size[i] > 0)
                .ok_or_else(|| Error::invalid(op, "padding", padding[i], "one that leaves an output"))?;
        }
        let windows = WindowParams::new(op, window, result, size, padding)?;
        let p = Self::assemble(op, batch, groups, made, channels, windows)?;
        Ok((p, image_of(rank, batch, result, made)?))
    }

    fn assemble(
        op: &'static str,
        batch: usize,
        groups: usize,
        in_channels: usize,
        out_channels: usize,
        window: WindowParams,
    ) -> Result<Self> {
        Ok(ConvParams {
            window,
            batch: dim32(op, "batch", batch)?,
            groups: dim32(op, "groups", groups)?,
            in_channels: dim32(op, "in_channels", in_channels)?,
            out_channels: dim32(op, "out_channels", out_channels)?,
            activation: 0,
            pad: 0,
        })
    }

    /// The activation of the fused form.
    ///
    /// # Panics
    /// When the code is none of the enum's, which the [`checks`](crate::checks) of an op find first.
    pub fn activation(&self) -> Activation {
        Activation::ALL[self.activation as usize]
    }

    /// Input channels of one group.
    pub fn group_in(&self) -> usize {
        (self.in_channels / self.groups) as usize
    }

    /// Output channels of one group.
    pub fn group_out(&self) -> usize {
        (self.out_channels / self.groups) as usize
    }

    /// Floating-point operations of the convolution, and of each of its gradients: a multiply-add of two for every tap of
    /// every window, those in the padding included. Fast algorithms make do with fewer.
    pub fn flops(&self) -> u64 {
        let sums = [self.batch, self.out_channels].map(u64::from).iter().product::<u64>();
        let sums = sums.saturating_mul(self.window.out_positions() as u64);
        let terms = (self.window.taps() as u64).saturating_mul(self.group_in() as u64);
        sums.saturating_mul(terms).saturating_mul(2)
    }

    /// Input elements that lie under a window: fewer than there are where the stride steps over some.
    pub fn seen(&self) -> u64 {
        let channels = u64::from(self.batch) * u64::from(self.in_channels);
        channels.saturating_mul(self.window.seen_positions())
    }
}

fn check_groups(op: &'static str, groups: usize, in_channels: usize, out_channels: usize) -> Result<()> {
    if groups == 0 || in_channels == 0 || out_channels == 0 {
        let (name, value) = match (groups, in_channels) {
            (0, _) => ("groups", groups),
            (_, 0) => ("in_channels", in_channels),
            _ => ("out_channels", out_channels),
        };
        return Err(Error::invalid(op, name, value, "at least 1"));
    }
    if !in_channels.is_multiple_of(groups) || !out_channels.is_multiple_of(groups) {
        return Err(Error::invalid(
            op,
            "groups",
            groups,
            format!("a divisor of {in_channels} input and {out_channels} output channels"),
        ));
    }
    Ok(())
}

/// One of the three products of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvPass {
    /// [`ConvOps::conv`].
    Forward,
    /// [`ConvOps::conv_data_grad`].
    DataGrad,
    /// [`ConvOps::conv_weight_grad`].
    WeightGrad,
}

/// The results of [`ConvOps::conv_norm_grad`].
#[derive(Debug)]
pub struct ConvNormGrads<'a, B> {
    /// The gradient of the norm's result before residual and ReLU.
    pub d: &'a mut B,
    /// That of the scale of each channel, even if there is none.
    pub dscale: &'a mut B,
    /// That of the shift of each channel, even if there is none.
    pub dshift: &'a mut B,
    /// The norm's result again, for the weight gradient, if nobody has kept it; only of a norm with a ReLU and without a residual.
    pub y: Option<&'a mut B>,
}

/// Convolutions of a backend. The three ops are each other's gradients.
pub trait ConvOps: Runtime {
    /// `y = f(x ⋆ w + bias)`, with the bias `[O]` and the activation of `p`.
    fn conv(
        &self,
        p: &ConvParams,
        x: &Self::Buffer,
        w: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
    ) -> Result<()>;

    /// [`ConvOps::conv`] without a bias, of a result that is not empty, and the `moments` `[2, O]` of its channels, of the accumulation
    /// dtype: the mean of each one's stored values, and the sum of their squared deviations from it. A batch norm in training
    /// ([`NormOps::batch_norm`](crate::ops::NormOps::batch_norm)) then need not read the result for its statistics.
    fn conv_moments(
        &self,
        p: &ConvParams,
        x: &Self::Buffer,
        w: &Self::Buffer,
        y: &mut Self::Buffer,
        moments: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, w, y, moments);
        self.unsupported(Op::ConvMoments)
    }

    /// `dx`: the gradient with respect to the input; also the transposed convolution of `g`.
    fn conv_data_grad(&self, p: &ConvParams, g: &Self::Buffer, w: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()>;

    /// [`ConvOps::conv_data_grad`] where the input of the convolution is the result of a batch norm in training, with the sums of the
    /// norm's gradient ([`NormOps::batch_norm_grad`](crate::ops::NormOps::batch_norm_grad)): as it writes every value, no pass over them is
    /// needed for the sums. The activation of `p` is that behind the norm, a ReLU or none.
    ///
    /// With `g` of the convolution's result, `d` is the gradient of the norm's result before residual and ReLU, of the input's shape: the data
    /// gradient plus `more`, the gradient that the result has from other ops, zero where `y ≤ 0` or, without `y`, where `x` says that the ReLU
    /// was not positive. `dshift = Σd` and `dscale = Σd·x̂` with `x̂ = (x − mean)·rstd` are of the accumulation dtype, `[C]`.
    /// [`NormOps::batch_norm_data_grad`](crate::ops::NormOps::batch_norm_data_grad) is the rest. All results are those of the two ops, `d` in
    /// every bit, the others up to the order of sums. The `y` that is written is that of
    /// [`NormOps::batch_norm_apply`](crate::ops::NormOps::batch_norm_apply), in every bit.
    fn conv_norm_grad(
        &self,
        p: &ConvParams,
        g: &Self::Buffer,
        w: &Self::Buffer,
        of: &BatchNormInputs<'_, Self::Buffer>,
        more: Option<&Self::Buffer>,
        to: ConvNormGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, g, w, of, more, to);
        self.unsupported(Op::ConvNormGrad)
    }

    /// True if [`ConvOps::conv_norm_grad`] of these parameters is no more work on this backend than the two ops that it stands for.
    fn conv_norm_grad_pays(&self, p: &ConvParams, dtype: DType) -> bool {
        let _ = (p, dtype);
        true
    }

    /// `dw`: the gradient with respect to the weight.
    fn conv_weight_grad(&self, p: &ConvParams, g: &Self::Buffer, x: &Self::Buffer, dw: &mut Self::Buffer)
    -> Result<()>;

    /// The name of the algorithm that computes `pass` of `p` in `dtype` on this backend, for profiles; `None` where there is
    /// no choice of one.
    fn conv_algorithm(&self, p: &ConvParams, pass: ConvPass, dtype: DType) -> Option<&'static str> {
        let _ = (p, pass, dtype);
        None
    }
}
