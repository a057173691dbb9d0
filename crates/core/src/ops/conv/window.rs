//! The windows of convolutions and poolings over images in one to three spatial dimensions, channels-last.

use crate::ops::dim32;
use crate::{Error, Result, Shape};
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

/// The windows of a convolution or a pooling over images, as kernels take them: (depth, height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WindowParams {
    /// Input size.
    pub input: [u32; 3],
    /// Kernel size.
    pub kernel: [u32; 3],
    /// Output size: the number of windows.
    pub output: [u32; 3],
    /// Step between windows.
    pub stride: [u32; 3],
    /// Elements that the first window begins before the input. How far the last one ends after it follows from the output size.
    pub padding: [u32; 3],
    /// Distance between the taps of a window; a pooling that averages takes 1 alone.
    pub dilation: [u32; 3],
}
const _: () = assert!(size_of::<WindowParams>() == 72);

impl WindowParams {
    pub(in crate::ops) fn new(
        op: &'static str,
        window: &Window,
        input: [usize; 3],
        output: [usize; 3],
        padding: [usize; 3],
    ) -> Result<Self> {
        Ok(WindowParams {
            input: to32(op, "input", input)?,
            kernel: to32(op, "kernel", window.kernel)?,
            output: to32(op, "output", output)?,
            stride: to32(op, "stride", window.stride)?,
            padding: to32(op, "padding", padding)?,
            dilation: to32(op, "dilation", window.dilation)?,
        })
    }

    /// Taps of one window.
    pub fn taps(&self) -> usize {
        volume(self.kernel.map(|v| v as usize))
    }

    /// Input positions of one image.
    pub fn in_positions(&self) -> usize {
        volume(self.input.map(|v| v as usize))
    }

    /// Output positions of one image.
    pub fn out_positions(&self) -> usize {
        volume(self.output.map(|v| v as usize))
    }

    /// Input positions of one image that lie under a window, at most: a window sees as many as it has taps.
    pub fn seen_positions(&self) -> u64 {
        let along = |i: usize| u64::from(self.input[i]).min(u64::from(self.kernel[i]) * u64::from(self.output[i]));
        (0..3).map(along).fold(1, u64::saturating_mul)
    }
}

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

pub(in crate::ops) fn to32(op: &'static str, argument: &'static str, v: [usize; 3]) -> Result<[u32; 3]> {
    Ok([
        dim32(op, argument, v[0])?,
        dim32(op, argument, v[1])?,
        dim32(op, argument, v[2])?,
    ])
}

/// The shape of an image tensor from its parts.
pub fn image_of(rank: usize, batch: usize, size: [usize; 3], channels: usize) -> Result<Shape> {
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
