//! The windows of convolutions and poolings.

use super::Operands;
use crate::ops::WindowParams;
use crate::{Result, Runtime};

/// The most that a dimension, an extent and a number of taps may be.
pub(super) const LARGEST: u64 = i32::MAX as u64;

/// Sizes of a window in one dimension.
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
    /// Elements that a window spans; all are below 2³¹.
    pub(super) fn extent(&self) -> u64 {
        (self.kernel - 1) * self.dilation + 1
    }

    /// Where the last window starts; there is one.
    pub(super) fn last(&self) -> u64 {
        (self.output - 1) * self.stride
    }

    /// Elements of the input with as much padding after as before.
    pub(super) fn padded(&self) -> u64 {
        self.input + 2 * self.padding
    }
}

impl Along {
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

/// Checks the sizes of windows, of which `fit` says whether they belong to input and output.
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
        // Below 2⁶² before each product, and compared after it.
        taps *= along.kernel;
        of.require(taps <= LARGEST, "kernel", p.kernel, "at most 2147483647 taps")?;
    }
    Ok(())
}

/// The elements of images of `size` positions.
pub(super) fn image<R: Runtime>(of: &Operands<'_, R>, batch: u32, size: [u32; 3], channels: u32) -> Result<usize> {
    let [d, h, w] = size;
    of.size(&[batch, d, h, w, channels].map(u64::from))
}
