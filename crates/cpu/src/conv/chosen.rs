//! The gradients of a convolution that is pooled by 2×2 windows side by side, from the results that were chosen: a quarter of
//! all, where the others' gradients are zero.

use super::Geometry;
use super::padded::Padded;
use super::winograd;
use crate::Cpu;
use crate::gemm::{ALONE, BLOCK_WORK, Grid, Kernels, Lines};
use crate::scalar::Scalar;
use kiln_core::Result;

/// The convolution, and how its images are read.
pub(crate) struct Chosen<A: 'static> {
    kernels: &'static Kernels<A>,
    padded: Padded,
    grid: Grid,
    lines: Lines,
    batch: usize,
    outputs: usize,
    /// Whether the gradient of the image, and of the weight, is better than that of all results.
    pub(crate) suits: [bool; 2],
}

impl<A: Scalar> Chosen<A> {
    /// `None` for groups, lines that are not contiguous and more than two dimensions. `pool` has 2×2 windows side by side.
    pub(crate) fn new(cpu: &Cpu, conv: &Geometry, pool: &Geometry) -> Option<Self> {
        let kernels = A::kernels();
        let padded = Padded::new(conv)?;
        if conv.groups > 1 || conv.dilation[2] > 1 || conv.depth() == 0 {
            return None;
        }
        let lines = Lines {
            count: conv.kernel[1],
            len: conv.kernel[2] * conv.channels,
            step: conv.dilation[1] * padded.line,
        };
        let mut chosen = Chosen {
            kernels,
            padded,
            grid: Grid::new(conv, pool, padded.line),
            lines,
            batch: conv.batch,
            outputs: conv.outputs,
            suits: [false; 2],
        };
        // All results take vectors of outputs, or of a line.
        let full = |n: usize| conv.work() / n.max(1) * n.next_multiple_of(kernels.lanes);
        let all = winograd::cost(cpu, conv).unwrap_or_else(|| full(conv.outputs).min(full(lines.len)));
        let results = conv.batch * chosen.result();
        chosen.suits = kernels
            .chosen_costs(lines)
            .map(|cost| results.saturating_mul(cost) < all);
        Some(chosen)
    }

    /// Images of a task that computes these gradients; there are 32 tasks at most.
    pub(crate) fn images(&self, gradients: [bool; 2]) -> usize {
        let costs = self.kernels.chosen_costs(self.lines).into_iter().zip(gradients);
        let cost: usize = costs.filter(|(_, wanted)| *wanted).map(|(cost, _)| cost).sum();
        let (batch, of_image) = (self.batch.max(1), self.result().saturating_mul(cost));
        if of_image.saturating_mul(batch) <= ALONE {
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
            let chosen = (&g[range.clone()], &index[range]);
            self.kernels
                .chosen_weight_grad(&self.grid, self.lines, x, chosen, dw, self.outputs);
        })
    }

    /// The gradient of the images.
    pub(crate) fn image_grad(&self, cpu: &Cpu, w: &[A], (g, index): (&[A], &[i32]), dx: &mut [A]) -> Result<()> {
        let size = self.result();
        self.padded.each_mut(cpu, dx, |i, dx| {
            let range = i * size..(i + 1) * size;
            let chosen = (&g[range.clone()], &index[range]);
            self.kernels
                .chosen_image_grad(&self.grid, self.lines, w, chosen, dx, self.outputs);
        })
    }
}
