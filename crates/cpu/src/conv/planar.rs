//! Forward passes with few channels on both sides, channel by channel: images are turned into planes, with their padding,
//! along which whole vectors of positions lie side by side however few the outputs are; the results are turned back.

use crate::conv::{Geometry, Operands};
use crate::epilogue::activate;
use crate::gemm::{AOperand, BLOCK_WORK, CTile, SERIAL_THRESHOLD, Segment, gemm_tn_segmented, matrix};
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::simd::isa::vectorized;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;

/// True if [`forward`] can compute it: positions that are neighbours in the output are so in the input.
pub(crate) fn is_supported(g: &Geometry) -> bool {
    g.groups == 1 && g.stride == [1; 3] && !g.empty() && g.depth() > 0 && g.compact()
}

/// The cost, as the number of multiply-adds of full vectors of `lanes` elements that take as long: it counts rows of sums in
/// pairs, the padding between lines, and the transposition of images into planes and back.
pub(crate) fn cost(g: &Geometry, lanes: usize) -> usize {
    let rows = g.outputs.next_multiple_of(2).max(2);
    let sums = rows * g.span(2) * g.depth() / g.output[2].max(1);
    let transposed = lanes * (g.channels + g.outputs);
    g.rows().saturating_mul(sums + transposed)
}

/// `y = f(x ⋆ w + bias)`.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    let Operands { x, w, epilogue: e } = o;
    let planes = Planes::new(cpu, g, w)?;
    let (of_image, of_input) = (g.out_positions() * g.outputs, g.in_positions() * g.channels);
    let images = (BLOCK_WORK * g.batch / g.work().max(1)).max(1);
    try_chunks_mut(y, images * of_image, g.work() > SERIAL_THRESHOLD, |at, y| {
        let x = &x[at / of_image * of_input..][..y.len() / of_image * of_input];
        planes.each_sums(cpu, x, |i, sums| {
            let y = &mut y[i * of_image..][..of_image];
            for (o, sums) in sums.chunks_exact_mut(planes.positions).enumerate().take(g.outputs) {
                finish(sums, e.bias.map_or(A::default(), |bias| bias[o]), e.activation);
            }
            for (i, y) in y.chunks_exact_mut(g.output[2] * g.outputs).enumerate() {
                let from = planes.line(i / g.output[1], i % g.output[1]);
                for o in 0..g.outputs {
                    let from = &sums[o * planes.positions + from..][..g.output[2]];
                    for (y, from) in y.chunks_exact_mut(g.outputs).zip(from) {
                        y[o] = *from;
                    }
                }
            }
        })
    })
}

/// Spare elements after the sums of an image, which a reader in whole vectors may load.
pub(crate) const ROOM: usize = 32;

/// The windows of a convolution over planes of an image.
pub(crate) struct Planes<A: 'static> {
    pub(crate) g: Geometry,
    /// Elements of a plane, which has every input that a window reads.
    pub(crate) size: [usize; 3],
    /// Elements from the first result of an output to its last. Results lie where their windows begin; the elements between
    /// lines are not used.
    pub(crate) positions: usize,
    /// `[segments, steps of a segment, outputs]`
    pub(crate) weights: CpuBuffer,
    pub(crate) segments: Vec<Segment>,
    pub(crate) element: std::marker::PhantomData<A>,
}

impl<A: Scalar> Planes<A> {
    /// The planes of a convolution that [`is_supported`].
    pub(crate) fn new(cpu: &Cpu, g: &Geometry, w: &[A]) -> Result<Self> {
        let size = [0, 1, 2].map(|i| g.span(i));
        let mut planes = Planes {
            g: *g,
            size,
            positions: 0,
            weights: cpu.scratch(A::DTYPE, w.len())?,
            segments: Vec::with_capacity(g.channels * g.kernel[0] * g.kernel[1]),
            element: std::marker::PhantomData,
        };
        planes.positions = planes.line(g.output[0] - 1, g.output[1] - 1) + g.output[2];
        let weights = planes.weights.as_mut_slice::<A>();
        let plane: usize = size.iter().product();
        for c in 0..g.channels {
            for d in 0..g.kernel[0] {
                for h in 0..g.kernel[1] {
                    let a = planes.segments.len() * g.kernel[2] * g.outputs;
                    for k in 0..g.kernel[2] {
                        let tap = (d * g.kernel[1] + h) * g.kernel[2] + k;
                        for (o, to) in weights[a + k * g.outputs..][..g.outputs].iter_mut().enumerate() {
                            *to = w[(o * g.taps() + tap) * g.channels + c];
                        }
                    }
                    planes.segments.push(Segment {
                        a,
                        b: c * plane + (d * g.dilation[0] * size[1] + h * g.dilation[1]) * size[2],
                        len: g.kernel[2],
                    });
                }
            }
        }
        Ok(planes)
    }

    /// Where line `h` of depth `d` of a plane starts.
    pub(crate) fn line(&self, d: usize, h: usize) -> usize {
        (d * self.size[1] + h) * self.size[2]
    }

    /// Calls `f(i, sums)` with the sums `[outputs, positions]` of each image of `x`, and [`ROOM`] elements after them.
    pub(crate) fn each_sums(&self, cpu: &Cpu, x: &[A], mut f: impl FnMut(usize, &mut [A])) -> Result<()> {
        let g = &self.g;
        let mut planes = cpu.scratch(A::DTYPE, g.channels * self.size.iter().product::<usize>())?;
        let planes = planes.as_mut_slice::<A>();
        planes.fill(A::default());
        let all = g.outputs * self.positions;
        let mut sums = cpu.scratch(A::DTYPE, all + ROOM)?;
        let sums = sums.as_mut_slice::<A>();
        for (i, x) in x.chunks_exact(g.in_positions() * g.channels).enumerate() {
            self.fill(x, planes);
            let weights = AOperand {
                data: self.weights.as_slice(),
                step: g.outputs,
            };
            let images = AOperand {
                data: &*planes,
                step: g.dilation[2],
            };
            let to = CTile::new(matrix(&mut sums[..all], g.outputs, self.positions));
            gemm_tn_segmented(A::kernels(), &self.segments, weights, images, to, false);
            f(i, sums);
        }
        Ok(())
    }

    /// Turns an image into planes; their padding stays as it is.
    fn fill(&self, x: &[A], planes: &mut [A]) {
        vectorized(
            #[inline(always)]
            || match self.g.channels {
                1 => self.fill_some::<1>(x, planes),
                2 => self.fill_some::<2>(x, planes),
                3 => self.fill_some::<3>(x, planes),
                4 => self.fill_some::<4>(x, planes),
                _ => self.fill_some::<0>(x, planes),
            },
        );
    }

    /// [`fill`](Planes::fill) for `C` channels, or any number of them where that is zero.
    #[inline(always)]
    fn fill_some<const C: usize>(&self, x: &[A], planes: &mut [A]) {
        let g = &self.g;
        let channels = if C > 0 { C } else { g.channels };
        let plane: usize = self.size.iter().product();
        let count = g.input[2].min(self.size[2] - g.padding[2]);
        for (i, x) in x.chunks_exact(g.input[2] * channels).enumerate() {
            let [d, h] = [i / g.input[1] + g.padding[0], i % g.input[1] + g.padding[1]];
            if d < self.size[0] && h < self.size[1] {
                let to = self.line(d, h) + g.padding[2];
                for c in 0..channels {
                    let to = &mut planes[c * plane + to..][..count];
                    for (to, x) in to.iter_mut().zip(x.chunks_exact(channels)) {
                        *to = x[c];
                    }
                }
            }
        }
    }
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
