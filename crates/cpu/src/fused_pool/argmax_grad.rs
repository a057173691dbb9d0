//! The gradients of a convolution followed by 2×2 max pooling with stride 2, computed from the chosen results alone: a
//! quarter of all, as the gradients of the others are zero.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::pad_image::PaddedImage;
use crate::conv::plan::{Algorithm, choose};
use crate::fused_pool::{Lines, PoolGeometry, PoolKernels};
use crate::gemm::{BLOCK_WORK, SERIAL_THRESHOLD};
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::ops::ConvPass as Pass;

/// The convolution, and the layout in which its images are read.
pub(crate) struct ArgmaxGrad<A: 'static> {
    kernels: &'static PoolKernels<A>,
    padded: PaddedImage,
    grid: PoolGeometry,
    lines: Lines,
    batch: usize,
    outputs: usize,
    /// True if the gradient of the image, and of the weight, is cheaper than by the ordinary algorithms.
    pub(crate) is_profitable: [bool; 2],
}

impl<A: Scalar> ArgmaxGrad<A> {
    /// `None` for groups, lines that are not contiguous and more than two dimensions. `pool` is 2×2 with stride 2.
    pub(crate) fn new(cpu: &Cpu, conv: &Geometry, pool: &Geometry) -> Option<Self> {
        let kernels = A::pool_kernels();
        let padded = PaddedImage::new(conv)?;
        if conv.groups > 1 || conv.dilation[2] > 1 || conv.depth() == 0 {
            return None;
        }
        let lines = Lines {
            count: conv.kernel[1],
            len: conv.kernel[2] * conv.channels,
            step: conv.dilation[1] * padded.line,
        };
        let mut argmax = ArgmaxGrad {
            kernels,
            padded,
            grid: PoolGeometry::new(conv, pool, padded.line),
            lines,
            batch: conv.batch,
            outputs: conv.outputs,
            is_profitable: [false; 2],
        };
        // The ordinary algorithms take all results, in vectors of outputs or of a line.
        let full = |n: usize| conv.work() / n.max(1) * n.next_multiple_of(kernels.lanes);
        let all = match choose::<A>(Pass::Forward, conv, A::DTYPE, cpu.convolves_exactly(), None) {
            Algorithm::Winograd(tiling) => tiling.cost(),
            _ => full(conv.outputs).min(full(lines.len)),
        };
        let results = conv.batch * argmax.result();
        argmax.is_profitable = kernels
            .argmax_costs(lines)
            .map(|cost| results.saturating_mul(cost) < all);
        Some(argmax)
    }

    /// The number of images in a task that computes `gradients` (image, weight); there are at most 32 tasks.
    pub(crate) fn images(&self, gradients: [bool; 2]) -> usize {
        let costs = self.kernels.argmax_costs(self.lines).into_iter().zip(gradients);
        let cost: usize = costs.filter(|(_, wanted)| *wanted).map(|(cost, _)| cost).sum();
        let (batch, of_image) = (self.batch.max(1), self.result().saturating_mul(cost));
        if of_image.saturating_mul(batch) <= SERIAL_THRESHOLD {
            return batch;
        }
        (BLOCK_WORK / of_image).max(batch.div_ceil(32))
    }

    /// The number of elements of an image's pooled result.
    fn result(&self) -> usize {
        self.grid.lines * self.grid.windows * self.outputs
    }

    /// Computes the gradient of the weight from the gradient `g` of the chosen results of some images, and their indices.
    pub(crate) fn weight_grad(&self, cpu: &Cpu, x: &[A], (g, index): (&[A], &[i32]), dw: &mut [A]) -> Result<()> {
        dw.fill(A::default());
        let size = self.result();
        self.padded.each(cpu, x, |i, x| {
            let range = i * size..(i + 1) * size;
            let largest = (&g[range.clone()], &index[range]);
            self.kernels
                .argmax_weight_grad(&self.grid, self.lines, x, largest, dw, self.outputs);
        })
    }

    /// Computes the gradient of the images.
    pub(crate) fn image_grad(&self, cpu: &Cpu, w: &[A], (g, index): (&[A], &[i32]), dx: &mut [A]) -> Result<()> {
        let size = self.result();
        self.padded.each_mut(cpu, dx, |i, dx| {
            let range = i * size..(i + 1) * size;
            let largest = (&g[range.clone()], &index[range]);
            self.kernels
                .argmax_image_grad(&self.grid, self.lines, w, largest, dx, self.outputs);
        })
    }
}
