//! The windows of convolutions and poolings.

use super::Operands;
use crate::ops::WindowParams;
use crate::{Result, Runtime};

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

    fn new(p: &WindowParams, i: usize) -> Self {
        let at = |sizes: [u32; 3]| u64::from(sizes[i]);
        Along {
            input: at(p.input),
            output: at(p.output),
            kernel: at(p.kernel),
            stride: at(p.stride),
            padding: at(p.padding),
            dilation: at(p.dilation),
        }
    }
}

/// Checks the sizes of windows; `fit` tells whether they agree with input and output in one dimension.
pub(super) fn windows<R: Runtime>(of: &Operands<'_, R>, p: &WindowParams, fit: impl Fn(&Along) -> bool) -> Result<()> {
    let mut taps = 1u64;
    for i in 0..3 {
        let along = Along::new(p, i);
        let ones = [along.kernel, along.stride, along.dilation];
        of.require(!ones.contains(&0), "kernel, stride and dilation", ones, "at least 1")?;
        let all = [along.input, along.output, along.padding];
        let all = [&all[..], &ones[..]].concat();
        of.require(all.iter().all(|&v| v <= LARGEST), "sizes", &all, "at most 2147483647")?;
        of.require(
            along.extent() <= LARGEST,
            "kernel",
            along,
            "one that spans at most 2147483647",
        )?;
        of.require(
            along.output == 0 || fit(&along),
            "output",
            along,
            "the windows that fit the input",
        )?;
        // No overflow: both factors are below 2³¹, and the product is checked.
        taps *= along.kernel;
        of.require(taps <= LARGEST, "kernel", p.kernel, "at most 2147483647 taps")?;
    }
    Ok(())
}

/// The number of elements of images of `size` positions.
pub(super) fn image<R: Runtime>(of: &Operands<'_, R>, batch: u32, size: [u32; 3], channels: u32) -> Result<usize> {
    let [d, h, w] = size;
    of.size(&[batch, d, h, w, channels].map(u64::from))
}
