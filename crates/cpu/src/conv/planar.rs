//! Forward passes with few channels on both sides, channel by channel: images are turned into planes, with their padding,
//! along which whole vectors of positions lie side by side however few the outputs are; the results are turned back.

use super::Geometry;
use crate::Cpu;
use crate::epilogue::activate;
use crate::gemm::{ALONE, BLOCK_WORK, Left, Segment, Target, by_columns, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::{Scalar, vectorized};
use kiln_core::Result;
use kiln_core::ops::Activation;

/// Whether [`forward`] can: positions that are neighbours in the output are so in the input.
pub(super) fn fits(g: &Geometry) -> bool {
    g.groups == 1 && g.stride == [1; 3] && g.rows() > 0
}

/// Vectors of multiply-adds for each position and element of the window, in thousandths, turning included.
pub(super) fn cost<A: Scalar>(g: &Geometry) -> usize {
    let kernels = A::kernels();
    let rows = g.outputs.next_multiple_of(2).max(2);
    let sums = rows * g.span(2) * 1000 / (kernels.lanes * g.output[2]);
    let turned = 1000 * (g.channels + g.outputs) / g.depth();
    sums + turned
}

/// `y = f(x ⋆ w + bias)`.
pub(super) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<()> {
    // A plane has every input that a window reads.
    let size = [0, 1, 2].map(|i| g.span(i));
    let plane: usize = size.iter().product();
    let line = |d: usize, h: usize| (d * size[1] + h) * size[2];
    // Results lie where their windows begin; between lines are some that nobody wants.
    let positions = line(g.output[0] - 1, g.output[1] - 1) + g.output[2];

    let mut weights = cpu.scratch(A::DTYPE, w.len())?;
    let weights = weights.as_mut_slice::<A>();
    let mut segments = Vec::with_capacity(g.channels * g.kernel[0] * g.kernel[1]);
    for c in 0..g.channels {
        for d in 0..g.kernel[0] {
            for h in 0..g.kernel[1] {
                let a = segments.len() * g.kernel[2] * g.outputs;
                for k in 0..g.kernel[2] {
                    let tap = (d * g.kernel[1] + h) * g.kernel[2] + k;
                    for (o, to) in weights[a + k * g.outputs..][..g.outputs].iter_mut().enumerate() {
                        *to = w[(o * g.taps() + tap) * g.channels + c];
                    }
                }
                segments.push(Segment {
                    a,
                    b: c * plane + line(d * g.dilation[0], h * g.dilation[1]),
                    len: g.kernel[2],
                });
            }
        }
    }
    let weights = Left {
        data: &*weights,
        step: g.outputs,
    };
    let (of_image, of_input) = (g.out_positions() * g.outputs, g.in_positions() * g.channels);
    let images = (BLOCK_WORK * g.batch / g.work().max(1)).max(1);
    try_chunks_mut(y, images * of_image, g.work() > ALONE, |at, y| {
        let mut planes = cpu.scratch(A::DTYPE, g.channels * plane)?;
        let planes = planes.as_mut_slice::<A>();
        planes.fill(A::default());
        let mut sums = cpu.scratch(A::DTYPE, g.outputs * positions)?;
        let sums = sums.as_mut_slice::<A>();
        for (x, y) in x[at / of_image * of_input..]
            .chunks_exact(of_input)
            .zip(y.chunks_exact_mut(of_image))
        {
            let count = g.input[2].min(size[2] - g.padding[2]);
            for (i, x) in x.chunks_exact(g.input[2] * g.channels).enumerate() {
                let [d, h] = [i / g.input[1] + g.padding[0], i % g.input[1] + g.padding[1]];
                if d < size[0] && h < size[1] {
                    let to = line(d, h) + g.padding[2];
                    for c in 0..g.channels {
                        let to = &mut planes[c * plane + to..][..count];
                        for (to, x) in to.iter_mut().zip(x.chunks_exact(g.channels)) {
                            *to = x[c];
                        }
                    }
                }
            }
            let images = Left {
                data: &*planes,
                step: g.dilation[2],
            };
            let to = Target::new(matrix(sums, g.outputs, positions));
            by_columns(A::kernels(), &segments, weights, images, to, false);
            for (o, sums) in sums.chunks_exact_mut(positions).enumerate() {
                finish(sums, bias.map_or(A::default(), |bias| bias[o]), f);
            }
            for (i, y) in y.chunks_exact_mut(g.output[2] * g.outputs).enumerate() {
                let from = line(i / g.output[1], i % g.output[1]);
                for o in 0..g.outputs {
                    let from = &sums[o * positions + from..][..g.output[2]];
                    for (y, from) in y.chunks_exact_mut(g.outputs).zip(from) {
                        y[o] = *from;
                    }
                }
            }
        }
        Ok(())
    })
}

/// `y[i] = f(y[i] + bias)`.
fn finish<A: Scalar>(y: &mut [A], bias: A, f: Activation) {
    vectorized(
        #[inline(always)]
        || match f {
            Activation::None => y.iter_mut().for_each(|y| *y += bias),
            Activation::Relu => y.iter_mut().for_each(
                #[inline(always)]
                |y| *y = activate(Activation::Relu, *y + bias),
            ),
            f => y.iter_mut().for_each(|y| *y = activate(f, *y + bias)),
        },
    );
}
