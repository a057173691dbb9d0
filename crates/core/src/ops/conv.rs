//! Convolution in one to three spatial dimensions, channels-last, and its data and weight gradients.
//!
//! Layouts: input `[N, D, H, W, C]`, weight `[O, kD, kH, kW, C/groups]`, output `[N, D', H', W', O]`; one- and
//! two-dimensional images drop the leading spatial dimensions. As in every deep-learning library "convolution" is
//! cross-correlation: `y[n, o, c] = Σ_k Σ_i x[n, o·stride + k·dilation − padding, i] · w[c, k, i]`.

use super::{Activation, dim32};
use crate::{DType, Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// How far the window reaches over the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The same number of zeros before and after, one number per spatial dimension.
    Explicit([usize; 3]),
    /// Zeros so that the output has `ceil(input / stride)` positions, the odd one after (TensorFlow's SAME).
    Same,
}

/// The window of a convolution or a pooling, one entry per spatial dimension; dimensions that do not exist are ones
/// (zero padding) and stand first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of spatial dimensions, 1 to 3.
    pub rank: usize,
    /// Kernel size.
    pub kernel: [usize; 3],
    /// Step between windows.
    pub stride: [usize; 3],
    /// Padding of the border.
    pub padding: Padding,
    /// Distance between the taps of one window.
    pub dilation: [usize; 3],
}

/// Spreads per-dimension values to three dimensions, missing leading ones set to `fill`.
pub fn spatial<const R: usize>(values: [usize; R], fill: usize) -> [usize; 3] {
    const { assert!(R <= 3, "one to three spatial dimensions") };
    let mut out = [fill; 3];
    out[3 - R..].copy_from_slice(&values);
    out
}

impl Window {
    /// A window of `kernel` taps with stride 1, no padding and no dilation.
    pub fn new<const R: usize>(kernel: [usize; R]) -> Self {
        Window {
            rank: R,
            kernel: spatial(kernel, 1),
            stride: [1; 3],
            padding: Padding::Explicit([0; 3]),
            dilation: [1; 3],
        }
    }

    /// Sets the stride.
    pub fn stride<const R: usize>(mut self, stride: [usize; R]) -> Self {
        self.stride = spatial(stride, 1);
        self
    }

    /// Sets the padding on both sides.
    pub fn padding<const R: usize>(mut self, padding: [usize; R]) -> Self {
        self.padding = Padding::Explicit(spatial(padding, 0));
        self
    }

    /// Pads so that the output has `ceil(input / stride)` positions.
    pub fn same(mut self) -> Self {
        self.padding = Padding::Same;
        self
    }

    /// Sets the dilation.
    pub fn dilation<const R: usize>(mut self, dilation: [usize; R]) -> Self {
        self.dilation = spatial(dilation, 1);
        self
    }

    /// Checks that no kernel, stride or dilation is zero, that neither extents nor the number of taps exceed 2³¹ − 1, and
    /// that dimensions which do not exist have a window of one element.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the argument that does not fit.
    pub fn check(&self, op: &'static str) -> Result<()> {
        for i in 0..3usize.saturating_sub(self.rank) {
            let pad = matches!(self.padding, Padding::Explicit(pad) if pad[i] != 0);
            if pad || [self.kernel[i], self.stride[i], self.dilation[i]] != [1; 3] {
                let found = format!("{self:?}");
                return Err(Error::invalid(
                    op,
                    "window",
                    found,
                    "ones and no padding before its own dimensions",
                ));
            }
        }
        for (name, values) in [
            ("kernel", self.kernel),
            ("stride", self.stride),
            ("dilation", self.dilation),
        ] {
            for v in values {
                if v == 0 {
                    return Err(Error::invalid(op, name, 0, "at least 1"));
                }
                dim32(op, name, v)?;
            }
        }
        if let Padding::Explicit(pad) = self.padding {
            for v in pad {
                dim32(op, "padding", v)?;
            }
        }
        for (&k, &d) in self.kernel.iter().zip(&self.dilation) {
            dim32(op, "kernel", (k - 1).saturating_mul(d).saturating_add(1))?;
        }
        // Kernels count taps and divisors, which must not overflow there.
        let taps = self.kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k));
        if taps.is_none_or(|n| n > i32::MAX as usize) {
            let found = format!("{:?}", &self.kernel[3usize.saturating_sub(self.rank)..]);
            return Err(Error::invalid(op, "kernel", found, "at most 2147483647 taps"));
        }
        Ok(())
    }

    /// Elements one window spans in dimension `i`, dilation included.
    pub fn extent(&self, i: usize) -> usize {
        (self.kernel[i] - 1) * self.dilation[i] + 1
    }

    /// Padding before the first element, and output positions, of dimension `i` for an input of `size`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the window is larger than the padded input.
    pub fn output(&self, op: &'static str, i: usize, size: usize) -> Result<(usize, usize)> {
        let (extent, stride) = (self.extent(i), self.stride[i]);
        match self.padding {
            Padding::Same => {
                let out = size.div_ceil(stride);
                let need = (out.max(1) - 1).saturating_mul(stride).saturating_add(extent);
                Ok((need.saturating_sub(size) / 2, out))
            }
            Padding::Explicit(pad) => {
                let padded = size.saturating_add(2 * pad[i]);
                if padded < extent {
                    return Err(Error::invalid(
                        op,
                        "kernel",
                        format!("{} (spanning {extent})", self.kernel[i]),
                        format!("at most the padded input size {padded}"),
                    ));
                }
                Ok((pad[i], (padded - extent) / stride + 1))
            }
        }
    }
}

/// Parameters of a convolution and of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ConvParams {
    /// Images.
    pub batch: u32,
    /// Groups that input and output channels are split into.
    pub groups: u32,
    /// Input channels, all groups.
    pub in_channels: u32,
    /// Output channels, all groups.
    pub out_channels: u32,
    /// Input size (D, H, W).
    pub input: [u32; 3],
    /// Kernel size.
    pub kernel: [u32; 3],
    /// Output size.
    pub output: [u32; 3],
    /// Step between windows.
    pub stride: [u32; 3],
    /// Zeros before the first element; those after follow from the output size.
    pub padding: [u32; 3],
    /// Distance between taps.
    pub dilation: [u32; 3],
    /// Code of the [`Activation`] applied to the result (forward only).
    pub activation: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<ConvParams>() == 96);

fn spatial_shape(op: &'static str, rank: usize, x: &Shape) -> Result<[usize; 3]> {
    let expected = ["3: [N, L, C]", "4: [N, H, W, C]", "5: [N, D, H, W, C]"];
    let Some(&expected) = rank.checked_sub(1).and_then(|r| expected.get(r)) else {
        return Err(Error::invalid(op, "spatial rank", rank, "1, 2 or 3"));
    };
    if x.rank() != rank + 2 {
        return Err(Error::Rank {
            op,
            expected,
            rank: x.rank(),
        });
    }
    let mut size = [1; 3];
    size[3 - rank..].copy_from_slice(&x[1..=rank]);
    Ok(size)
}

pub(super) fn to32(op: &'static str, argument: &'static str, v: [usize; 3]) -> Result<[u32; 3]> {
    Ok([
        dim32(op, argument, v[0])?,
        dim32(op, argument, v[1])?,
        dim32(op, argument, v[2])?,
    ])
}

fn image_shape(rank: usize, batch: usize, size: [usize; 3], channels: usize) -> Result<Shape> {
    let mut dims = [0; 5];
    dims[0] = batch;
    dims[1..=rank].copy_from_slice(&size[3 - rank..]);
    dims[rank + 1] = channels;
    Shape::new(&dims[..rank + 2])
}

/// Batch, spatial size and channels of an image tensor with `rank` spatial dimensions.
///
/// # Errors
/// [`Error::Rank`] when the tensor's rank is not `rank + 2`.
pub fn image_parts(op: &'static str, rank: usize, x: &Shape) -> Result<(usize, [usize; 3], usize)> {
    let size = spatial_shape(op, rank, x)?;
    Ok((x[0], size, x[rank + 1]))
}

/// Positions of an image, or taps of a window, of `size`. Of an empty batch there may be more than can be counted: the
/// product saturates.
pub fn volume(size: [usize; 3]) -> usize {
    if size.contains(&0) {
        return 0;
    }
    size.iter().fold(1, |n: usize, &v| n.saturating_mul(v))
}

/// The shape of an image tensor from its parts.
pub fn image_of(rank: usize, batch: usize, size: [usize; 3], channels: usize) -> Result<Shape> {
    image_shape(rank, batch, size, channels)
}

impl ConvParams {
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
        let p = Self::assemble(
            op,
            batch,
            groups,
            in_channels,
            out_channels,
            input,
            output,
            padding,
            window,
        )?;
        Ok((p, image_shape(rank, batch, output, out_channels)?))
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
        let p = Self::assemble(op, batch, groups, made, channels, result, size, padding, window)?;
        Ok((p, image_shape(rank, batch, result, made)?))
    }

    fn assemble(
        op: &'static str,
        batch: usize,
        groups: usize,
        in_channels: usize,
        out_channels: usize,
        input: [usize; 3],
        output: [usize; 3],
        padding: [usize; 3],
        window: &Window,
    ) -> Result<Self> {
        Ok(ConvParams {
            batch: dim32(op, "batch", batch)?,
            groups: dim32(op, "groups", groups)?,
            in_channels: dim32(op, "in_channels", in_channels)?,
            out_channels: dim32(op, "out_channels", out_channels)?,
            input: to32(op, "input", input)?,
            kernel: to32(op, "kernel", window.kernel)?,
            output: to32(op, "output", output)?,
            stride: to32(op, "stride", window.stride)?,
            padding: to32(op, "padding", padding)?,
            dilation: to32(op, "dilation", window.dilation)?,
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

    /// Taps of one window.
    pub fn taps(&self) -> usize {
        volume(self.kernel.map(|v| v as usize))
    }

    /// Input channels of one group.
    pub fn group_in(&self) -> usize {
        (self.in_channels / self.groups) as usize
    }

    /// Output channels of one group.
    pub fn group_out(&self) -> usize {
        (self.out_channels / self.groups) as usize
    }

    /// Input positions of one image.
    pub fn in_positions(&self) -> usize {
        volume(self.input.map(|v| v as usize))
    }

    /// Output positions of one image.
    pub fn out_positions(&self) -> usize {
        volume(self.output.map(|v| v as usize))
    }

    /// Floating-point operations of the convolution, and of each of its gradients: a multiply-add of two for every tap of
    /// every window, those in the padding included. Fast algorithms make do with fewer.
    pub fn flops(&self) -> u64 {
        let sums = [self.batch, self.out_channels].map(u64::from).iter().product::<u64>();
        let sums = sums.saturating_mul(self.out_positions() as u64);
        let terms = (self.taps() as u64).saturating_mul(self.group_in() as u64);
        sums.saturating_mul(terms).saturating_mul(2)
    }

    /// Input elements that lie under a window: fewer than there are where the stride steps over some.
    pub fn seen(&self) -> u64 {
        let channels = u64::from(self.batch) * u64::from(self.in_channels);
        channels.saturating_mul(seen_positions(self.input, self.kernel, self.output))
    }
}

/// Positions that lie under a window at most: a window sees as many as it has taps.
pub(super) fn seen_positions(input: [u32; 3], kernel: [u32; 3], output: [u32; 3]) -> u64 {
    let along = |i: usize| u64::from(input[i]).min(u64::from(kernel[i]) * u64::from(output[i]));
    (0..3).map(along).fold(1, u64::saturating_mul)
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

    /// `dx`: the gradient with respect to the input; also the transposed convolution of `g`.
    fn conv_data_grad(&self, p: &ConvParams, g: &Self::Buffer, w: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()>;

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
