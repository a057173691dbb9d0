//! The forward pass of convolutions of few channels followed by 2×2 max pooling with stride 2. The results stay in
//! registers: with such short sums, writing and reading the results would take longer than computing them.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::pad_image::PaddedImage;
use crate::fused_pool::{PoolGeometry, PoolKernels, WindowTaps};
use crate::gemm::{BOperand, Epilogue, Panels, UNIT, transpose};
use crate::scalar::Scalar;
use kiln_core::Result;

/// The largest window, in elements, for which the weights of a panel stay in the L1 cache beside the image.
const DEPTH: usize = 192;

/// The convolution, its kernels, and the layout in which its images are read.
pub(crate) struct PooledConv<A: 'static> {
    kernels: &'static PoolKernels<A>,
    conv: Geometry,
    pairs: WindowTaps,
    padded: PaddedImage,
}

impl<A: Scalar> PooledConv<A> {
    /// True unless long sums or few outputs make another algorithm faster.
    pub(crate) fn is_profitable(conv: &Geometry) -> bool {
        conv.depth() <= DEPTH && 4 * conv.outputs >= 3 * A::pool_kernels().lanes
    }

    /// `None` for groups, sums of nothing or of more than one block of k, and more than two dimensions. `pool` is 2×2 with stride 2.
    pub(crate) fn new(conv: &Geometry, pool: &Geometry) -> Option<Self> {
        let kernels = A::pool_kernels();
        if conv.groups > 1 || conv.depth() == 0 || conv.depth() > UNIT {
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

    /// Packs the weights into panels for [`forward`](PooledConv::forward).
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

    /// The number of elements of an image's pooled result.
    fn result(&self) -> usize {
        self.pairs.grid.lines * self.pairs.grid.windows * self.conv.outputs
    }

    /// Computes the largest result of each pooled window of some images, and its index.
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

    /// Computes the gradient of the weight, `[depth, outputs]`, from the gradient `g` of the chosen results of some images.
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

    /// Transposes `[depth, outputs]` to the weight's own order, `[outputs, depth]`.
    pub(crate) fn transpose(&self, from: &[A], dw: &mut [A]) {
        let (depth, outputs) = (self.conv.depth(), self.conv.outputs);
        transpose(from, outputs, outputs, depth, dw, depth);
    }
}
