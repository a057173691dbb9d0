//! Images in two dimensions with the padding of a convolution written out, so that every window lies inside.

use crate::conv::Geometry;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;

/// The layout of images with their padding.
#[derive(Clone, Copy)]
pub(crate) struct PaddedImage {
    /// Elements of a line and of an image as they are.
    input: [usize; 2],
    /// Elements of a line and of an image with the padding.
    pub(crate) line: usize,
    size: usize,
    /// `[lines above an image, elements before a line of it, elements of that line]`; `None` where nothing is padding.
    written: Option<[usize; 3]>,
}

impl PaddedImage {
    /// `None` for images without elements, with more than two dimensions, or much smaller than their padding.
    pub(crate) fn new(conv: &Geometry) -> Option<Self> {
        let flat = conv.kernel[0] == 1 && conv.input[0] == 1 && conv.output[0] == 1;
        if !flat || conv.in_positions() == 0 || !conv.compact() {
            return None;
        }
        let input = [conv.input[2], conv.input[1] * conv.input[2]].map(|n| n * conv.channels);
        // Without padding the windows lie inside of the image, which is used as it is.
        let cut = (1..3).any(|i| conv.padding[i] > 0 || conv.span(i) > conv.input[i]);
        if !cut {
            return Some(PaddedImage {
                input,
                line: input[0],
                size: input[1],
                written: None,
            });
        }
        let line = conv.span(2) * conv.channels;
        let before = (conv.padding[2] * conv.channels).min(line);
        Some(PaddedImage {
            input,
            line,
            size: conv.span(1) * line,
            written: Some([conv.padding[1], before, input[0].min(line - before)]),
        })
    }

    /// Elements of an image.
    pub(crate) fn image(&self) -> usize {
        self.input[1]
    }

    /// Memory for one padded image; empty where images are used as they are.
    pub(crate) fn buffer<A: Scalar>(&self, cpu: &Cpu) -> Result<CpuBuffer> {
        cpu.scratch(A::DTYPE, self.written.map_or(0, |_| self.size))
    }

    /// Calls `f(i, image)` for each image of `x`, with its padding.
    pub(crate) fn each<A: Scalar>(&self, cpu: &Cpu, x: &[A], mut f: impl FnMut(usize, &[A])) -> Result<()> {
        let images = x.chunks_exact(self.image()).enumerate();
        let Some([above, before, count]) = self.written else {
            images.for_each(|(i, x)| f(i, x));
            return Ok(());
        };
        let mut buffer = self.buffer::<A>(cpu)?;
        let padded = buffer.as_mut_slice::<A>();
        padded.fill(A::default());
        for (i, x) in images {
            let lines = padded.chunks_exact_mut(self.line).skip(above);
            for (to, from) in lines.zip(x.chunks_exact(self.input[0])) {
                to[before..before + count].copy_from_slice(&from[..count]);
            }
            f(i, padded);
        }
        Ok(())
    }

    /// Calls `f(i, image)` for each image of `dx` with its padding, all zeros, and keeps what `f` writes inside of the padding.
    pub(crate) fn each_mut<A: Scalar>(
        &self,
        cpu: &Cpu,
        dx: &mut [A],
        mut f: impl FnMut(usize, &mut [A]),
    ) -> Result<()> {
        dx.fill(A::default());
        let images = dx.chunks_exact_mut(self.image()).enumerate();
        let Some([above, before, count]) = self.written else {
            images.for_each(|(i, dx)| f(i, dx));
            return Ok(());
        };
        let mut buffer = self.buffer::<A>(cpu)?;
        let padded = buffer.as_mut_slice::<A>();
        for (i, dx) in images {
            padded.fill(A::default());
            f(i, padded);
            let lines = padded.chunks_exact(self.line).skip(above);
            for (from, to) in lines.zip(dx.chunks_exact_mut(self.input[0])) {
                to[..count].copy_from_slice(&from[before..before + count]);
            }
        }
        Ok(())
    }
}
