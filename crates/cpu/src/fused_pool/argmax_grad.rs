//! The gradients of a convolution that is pooled by 2×2 windows side by side, from the results that were chosen: a quarter of
//! all, where the others' gradients are zero.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::pad_image::PaddedImage;
use crate::conv::plan::{Algorithm, choose};
use crate::fused_pool::{Lines, PoolGeometry, PoolKernels};
use crate::gemm::{BLOCK_WORK, SERIAL_THRESHOLD};
use crate::scalar::Scalar;
use kiln_core::Result;
use kiln_core::ops::ConvPass as Pass;

/// The convolution, and how its images are read.
pub(crate) struct ArgmaxGrad<A: 'static> {
    kernels: &'static PoolKernels<A>,
    padded: PaddedImage,
    grid: PoolGeometry,
    lines: Lines,
    batch: usize,
    outputs: usize,
    /// Whether the gradient of the image, and of the weight, is better than that of all results.
    pub(crate) is_profitable: [bool; 2],
}

impl<A: Scalar> ArgmaxGrad<A> {
    /// `None` for groups, lines that are not contiguous and more than two dimensions. `pool` has 2×2 windows side by side.
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
        // All results take vectors of outputs, or of a line.
        let full = |n: usize| conv.work() / n.max(1) * n.next_multiple_of(kernels.lanes);
        let all = match choose::<A>(Pass::Forward, conv, cpu.convolves_exactly()) {
            Algorithm::Winograd(tiling) => tiling.cost(),
            _ => full(conv.outputs).min(full(lines.len)),
        };
        let results = conv.batch * argmax.result();
        argmax.is_profitable = kernels
            .argmax_costs(lines)
            .map(|cost| results.saturating_mul(cost) < all);
        Some(argmax)
    }

    /// Images of a task that computes these gradients; there are 32 tasks at most.
    pub(crate) fn images(&self, gradients: [bool; 2]) -> usize {
        let costs = self.kernels.argmax_costs(self.lines).into_iter().zip(gradients);
        let cost: usize = costs.filter(|(_, wanted)| *wanted).map(|(cost, _)| cost).sum();
        let (batch, of_image) = (self.batch.max(1), self.result().saturating_mul(cost));
        if of_image.saturating_mul(batch) <= SERIAL_THRESHOLD {
            return batch;
        }
        (BLOCK_WORK / of_image).max(batch.div_ceil(32))
    }

    /// Elements of what is pooled of an image.
    fn result(&self) -> usize {
        self.grid.lines * self.grid.windows * self.outputs
    }

    /// The gradient of the weight from that of the largest sums of some images, and their places.
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

    /// The gradient of the images.
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
