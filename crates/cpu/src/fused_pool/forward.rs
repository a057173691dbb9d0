//! Convolutions of few channels whose results are pooled by 2×2 windows side by side: the results never leave the registers.
//! With so short sums, writing results and reading them again would take longer than the sums do.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::pad_image::PaddedImage;
use crate::fused_pool::{PoolGeometry, PoolKernels, WindowTaps};
use crate::gemm::{BOperand, Epilogue, Panels, transpose};
use crate::scalar::Scalar;
use kiln_core::Result;

/// Elements of a window up to which the weights of a panel stay in a first-level cache, beside the image.
const DEPTH: usize = 192;

/// The convolution and what is read for its pooled windows.
pub(crate) struct PooledConv<A: 'static> {
    kernels: &'static PoolKernels<A>,
    conv: Geometry,
    pairs: WindowTaps,
    padded: PaddedImage,
}

impl<A: Scalar> PooledConv<A> {
    /// `None` where long sums, many dimensions or few outputs make another form better. `pool` has 2×2 windows side by side.
    pub(crate) fn new(conv: &Geometry, pool: &Geometry) -> Option<Self> {
        let kernels = A::pool_kernels();
        let is_profitable = (1..=DEPTH).contains(&conv.depth()) && 4 * conv.outputs >= 3 * kernels.lanes;
        if conv.groups > 1 || !is_profitable {
            return None;
        }
        let padded = PaddedImage::new(conv)?;
        let mut taps = Vec::with_capacity(conv.depth());
        for h in 0..conv.kernel[1] {
            for w in 0..conv.kernel[2] {
                let at = h * conv.dilation[1] * padded.line + w * conv.dilation[2] * conv.channels;
                taps.extend(at..at + conv.channels);
            }
        }
        Some(PooledConv {
            kernels,
            conv: *conv,
            pairs: WindowTaps {
                grid: PoolGeometry::new(conv, pool, padded.line),
                taps,
            },
            padded,
        })
    }

    /// Weights as [`forward`](Pooled::forward) reads them.
    pub(crate) fn pack(&self, cpu: &Cpu, w: &[A]) -> Result<Panels<'static, A>> {
        let depth = self.conv.depth();
        let source = BOperand {
            data: w,
            taps: &[0],
            steps: depth,
            columns: self.conv.outputs,
            k_step: 1,
            n_step: depth,
        };
        Panels::packed(cpu, A::kernels(), source)
    }

    /// Elements of what is pooled of an image.
    fn result(&self) -> usize {
        self.pairs.grid.lines * self.pairs.grid.windows * self.conv.outputs
    }

    /// The largest of the results of some images, and their places.
    pub(crate) fn forward(
        &self,
        cpu: &Cpu,
        x: &[A],
        w: &Panels<'_, A>,
        e: Epilogue<'_, A>,
        (y, index): (&mut [A], &mut [i32]),
    ) -> Result<()> {
        let size = self.result();
        self.padded.each(cpu, x, |i, x| {
            let range = i * size..(i + 1) * size;
            self.kernels
                .largest_products(&self.pairs, x, w, e, (&mut y[range.clone()], &mut index[range]));
        })
    }

    /// The gradient of the weight from that of the largest sums of some images, `[depth, outputs]`.
    pub(crate) fn weight_grad(&self, cpu: &Cpu, x: &[A], (g, index): (&[A], &[i32]), dw: &mut [A]) -> Result<()> {
        dw.fill(A::default());
        let size = self.result();
        self.padded.each(cpu, x, |i, x| {
            let range = i * size..(i + 1) * size;
            let chosen = (&g[range.clone()], &index[range]);
            self.kernels
                .pooled_gradient(&self.pairs, x, chosen, dw, self.conv.outputs);
        })
    }

    /// From `[depth, outputs]` to the weight's own order.
    pub(crate) fn transpose(&self, from: &[A], dw: &mut [A]) {
        let (depth, outputs) = (self.conv.depth(), self.conv.outputs);
        transpose(from, outputs, outputs, depth, dw, depth);
    }
}
