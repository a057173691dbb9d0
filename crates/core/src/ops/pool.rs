//! Max and average pooling over windows, and adaptive average pooling, channels-last.

use super::conv::window::{Padding, Window, WindowParams, image_of, image_parts, to32};
use super::{Op, dim32};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of windowed pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PoolParams {
    /// The windows.
    pub window: WindowParams,
    /// Images.
    pub batch: u32,
    /// Channels.
    pub channels: u32,
    /// Average pooling: 1 when zeros of the padding count in the divisor (PyTorch's default).
    pub count_include_pad: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<PoolParams>() == 88);

impl PoolParams {
    /// Parameters of pooling `x` by `window`, and the shape of the result.
    ///
    /// With `ceil_mode` the last window may hang over the end, as long as it starts inside the input or its left
    /// padding (PyTorch's rule); where only one fits, it may be larger than the padded input by less than a stride.
    ///
    /// # Errors
    /// Wrong rank, zero kernel, stride or dilation, a window larger than the padded input (with `ceil_mode`, by a stride
    /// or more), padding over half of the kernel (a window would see no element).
    pub fn new(
        op: &'static str,
        x: &Shape,
        window: &Window,
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> Result<(Self, Shape)> {
        let rank = window.rank;
        let (batch, input, channels) = image_parts(op, rank, x)?;
        window.check(op)?;
        if let Padding::Explicit(pad) = window.padding
            && let Some((pad, _)) = pad.iter().zip(window.kernel).find(|&(&p, k)| p > k / 2)
        {
            return Err(Error::invalid(op, "padding", pad, "at most half of the kernel"));
        }
        let (mut padding, mut output) = ([0; 3], [0; 3]);
        for i in 0..3 {
            if input[i] == 0 {
                return Err(Error::invalid(op, "input size", 0, "at least 1"));
            }
            (padding[i], output[i]) = match window.padding {
                Padding::Explicit(pad) if ceil_mode => (pad[i], hanging(op, window, i, input[i], pad[i])?),
                _ => window.output(op, i, input[i])?,
            };
        }
        let p = PoolParams {
            window: WindowParams::new(op, window, input, output, padding)?,
            batch: dim32(op, "batch", batch)?,
            channels: dim32(op, "channels", channels)?,
            count_include_pad: u32::from(count_include_pad),
            pad: 0,
        };
        Ok((p, image_of(rank, batch, output, channels)?))
    }

    /// Input elements that lie under a window: fewer than there are where the stride steps over some.
    pub fn seen(&self) -> u64 {
        let channels = u64::from(self.batch) * u64::from(self.channels);
        channels.saturating_mul(self.window.seen_positions())
    }
}

/// Windows along dimension `i` of an input of `size`, of which the last may hang over the end.
fn hanging(op: &'static str, window: &Window, i: usize, size: usize, pad: usize) -> Result<usize> {
    let (extent, stride) = (window.extent(i), window.stride[i]);
    let most = size.saturating_add(2 * pad).saturating_add(stride - 1);
    let Some(room) = most.checked_sub(extent) else {
        return Err(Error::invalid(
            op,
            "kernel",
            format!("{} (spanning {extent})", window.kernel[i]),
            format!("at most {most}: the padded input size, and all of a stride but 1"),
        ));
    };
    let last = room / stride;
    let starts_inside = last * stride < size + pad;
    Ok(if starts_inside { last + 1 } else { last })
}

/// Parameters of adaptive average pooling: output cell `o` averages inputs `⌊o·I/O⌋ .. ⌈(o+1)·I/O⌉`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AdaptivePoolParams {
    /// Images.
    pub batch: u32,
    /// Channels.
    pub channels: u32,
    /// Input size (D, H, W).
    pub input: [u32; 3],
    /// Output size.
    pub output: [u32; 3],
}
const _: () = assert!(size_of::<AdaptivePoolParams>() == 32);

impl AdaptivePoolParams {
    /// Parameters of pooling `x` to `output` (leading missing dimensions 1), and the shape of the result.
    ///
    /// # Errors
    /// Wrong rank, an empty input or output dimension.
    pub fn new(op: &'static str, rank: usize, x: &Shape, output: [usize; 3]) -> Result<(Self, Shape)> {
        let (batch, input, channels) = image_parts(op, rank, x)?;
        for i in 0..3 {
            if output[i] == 0 || input[i] == 0 {
                return Err(Error::invalid(op, "size", 0, "at least 1"));
            }
        }
        let p = AdaptivePoolParams {
            batch: dim32(op, "batch", batch)?,
            channels: dim32(op, "channels", channels)?,
            input: to32(op, "input", input)?,
            output: to32(op, "output", output)?,
        };
        Ok((p, image_of(rank, batch, output, channels)?))
    }
}

/// Poolings of a backend.
pub trait PoolOps: Runtime {
    /// `y` is the largest element of each window (padding never wins, NaN always does), the first among equals;
    /// `index` (i32, the shape of `y`) is its flat spatial position in its image, `(d·H + h)·W + w`.
    fn max_pool(&self, p: &PoolParams, x: &Self::Buffer, y: &mut Self::Buffer, index: &mut Self::Buffer) -> Result<()>;

    /// `dx[index[o]] += g[o]`, everything else zero: the gradient of max pooling. If `relu` is given, the result of the pooling of what
    /// a ReLU gave, `g[o]` counts as zero where it is not positive, which makes `dx` the gradient of the ReLU's input.
    fn max_pool_grad(
        &self,
        p: &PoolParams,
        g: &Self::Buffer,
        relu: Option<&Self::Buffer>,
        index: &Self::Buffer,
        dx: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, g, relu, index, dx);
        self.unsupported(Op::MaxPoolGrad)
    }

    /// `y[o] = x[index[o]]`: the gradient of [`PoolOps::max_pool_grad`].
    fn max_pool_gather(
        &self,
        p: &PoolParams,
        x: &Self::Buffer,
        index: &Self::Buffer,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, index, y);
        self.unsupported(Op::MaxPoolGrad)
    }

    /// The mean of each window. The divisor is the kernel volume clipped to the padded input with
    /// `count_include_pad`, the number of real elements without.
    fn avg_pool(&self, p: &PoolParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, x, y);
        self.unsupported(Op::AvgPool)
    }

    /// The gradient of average pooling.
    fn avg_pool_grad(&self, p: &PoolParams, g: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()> {
        let _ = (p, g, dx);
        self.unsupported(Op::AvgPool)
    }

    /// Adaptive average pooling.
    fn adaptive_avg_pool(&self, p: &AdaptivePoolParams, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()> {
        let _ = (p, x, y);
        self.unsupported(Op::AdaptiveAvgPool)
    }

    /// The gradient of adaptive average pooling.
    fn adaptive_avg_pool_grad(&self, p: &AdaptivePoolParams, g: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()> {
        let _ = (p, g, dx);
        self.unsupported(Op::AdaptiveAvgPool)
    }
}
