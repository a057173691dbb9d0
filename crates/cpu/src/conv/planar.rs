//! Forward passes with few channels on both sides, channel by channel: images are turned into planes, with their padding,
//! along which whole vectors of positions lie side by side however few the outputs are; the results are turned back.

use super::{Geometry, few};
use crate::epilogue::activate;
use crate::gemm::{ALONE, BLOCK_WORK, Left, Segment, Target, by_columns, matrix};
use crate::parallel::try_chunks_mut;
use crate::real::better;
use crate::scalar::{Scalar, vectorized};
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use kiln_core::ops::Activation;

/// Whether [`forward`] can: positions that are neighbours in the output are so in the input.
pub(super) fn fits(g: &Geometry) -> bool {
    g.groups == 1 && g.stride == [1; 3] && !g.empty() && g.depth() > 0 && g.compact()
}

/// Whether [`forward`] can, and is better than several positions as one.
pub(crate) fn suits<A: Scalar>(g: &Geometry) -> bool {
    fits(g) && cost::<A>(g) < few::cost::<A>(g, few::together::<A>(g))
}

/// Vectors of multiply-adds for each position and element of the window, in thousandths, turning included.
fn cost<A: Scalar>(g: &Geometry) -> usize {
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
    let planes = Planes::new(cpu, g, w)?;
    let (of_image, of_input) = (g.out_positions() * g.outputs, g.in_positions() * g.channels);
    let images = (BLOCK_WORK * g.batch / g.work().max(1)).max(1);
    try_chunks_mut(y, images * of_image, g.work() > ALONE, |at, y| {
        let x = &x[at / of_image * of_input..][..y.len() / of_image * of_input];
        planes.each_sums(cpu, x, |i, sums| {
            let y = &mut y[i * of_image..][..of_image];
            for (o, sums) in sums.chunks_exact_mut(planes.positions).enumerate().take(g.outputs) {
                finish(sums, bias.map_or(A::default(), |bias| bias[o]), f);
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

/// Results of a line that are pooled at once, into half as many.
const PAIRS: usize = 16;

/// The windows of a convolution over planes of an image.
pub(crate) struct Planes<A: 'static> {
    g: Geometry,
    /// Elements of a plane, which has every input that a window reads.
    size: [usize; 3],
    /// Elements from the first result of an output to its last. Results lie where their windows begin; between lines are some
    /// that nobody wants.
    positions: usize,
    /// `[segments, steps of a segment, outputs]`
    weights: CpuBuffer,
    segments: Vec<Segment>,
    element: std::marker::PhantomData<A>,
}

impl<A: Scalar> Planes<A> {
    /// For a convolution that [`fits`].
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
    fn line(&self, d: usize, h: usize) -> usize {
        (d * self.size[1] + h) * self.size[2]
    }

    /// Calls `f(i, sums)` with the sums `[outputs, positions]` of each image of `x`, and room after them for a few more.
    fn each_sums(&self, cpu: &Cpu, x: &[A], mut f: impl FnMut(usize, &mut [A])) -> Result<()> {
        let g = &self.g;
        let mut planes = cpu.scratch(A::DTYPE, g.channels * self.size.iter().product::<usize>())?;
        let planes = planes.as_mut_slice::<A>();
        planes.fill(A::default());
        let all = g.outputs * self.positions;
        let mut sums = cpu.scratch(A::DTYPE, all + 2 * PAIRS)?;
        let sums = sums.as_mut_slice::<A>();
        for (i, x) in x.chunks_exact(g.in_positions() * g.channels).enumerate() {
            self.fill(x, planes);
            let weights = Left {
                data: self.weights.as_slice(),
                step: g.outputs,
            };
            let images = Left {
                data: &*planes,
                step: g.dilation[2],
            };
            let to = Target::new(matrix(&mut sums[..all], g.outputs, self.positions));
            by_columns(A::kernels(), &self.segments, weights, images, to, false);
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

    /// The largest of the results of each of the 2×2 windows of `pool`, which lie side by side, of the images of `x`, and their
    /// places; without an activation, or with ReLU.
    pub(crate) fn largest(
        &self,
        cpu: &Cpu,
        pool: &Geometry,
        x: &[A],
        (bias, f): (Option<&[A]>, Activation),
        (y, index): (&mut [A], &mut [i32]),
    ) -> Result<()> {
        let (outputs, windows, width) = (self.g.outputs, pool.output[2], pool.input[2]);
        let wide = windows.next_multiple_of(PAIRS);
        let (mut best, mut places) = (vec![A::default(); wide], vec![0; wide]);
        let relu = f == Activation::Relu;
        let of_line = (windows * outputs).max(1);
        let of_image = pool.output[1] * of_line;
        self.each_sums(cpu, x, |i, sums| {
            let (y, index) = (
                &mut y[i * of_image..][..of_image],
                &mut index[i * of_image..][..of_image],
            );
            let lines = y.chunks_exact_mut(of_line).zip(index.chunks_exact_mut(of_line));
            vectorized(
                #[inline(always)]
                || {
                    for (line, (y, index)) in lines.enumerate() {
                        for o in 0..outputs {
                            let bias = bias.map_or(A::default(), |bias| bias[o]);
                            let top = o * self.positions + self.line(0, 2 * line);
                            for k in (0..windows).step_by(PAIRS) {
                                let at = top + 2 * k;
                                let results = [&sums[at..], &sums[at + self.size[2]..]];
                                let first = 2 * (line * width + k);
                                let (b, p) = largest_of::<A, PAIRS>(results, bias, relu, [first, width]);
                                best[k..k + PAIRS].copy_from_slice(&b);
                                places[k..k + PAIRS].copy_from_slice(&p);
                            }
                            for (y, best) in y.chunks_exact_mut(outputs).zip(&best) {
                                y[o] = *best;
                            }
                            for (index, place) in index.chunks_exact_mut(outputs).zip(&places) {
                                index[o] = *place;
                            }
                        }
                    }
                },
            );
        })
    }
}

/// The largest of each of `L` windows over two lines of results, which take the bias and the activation first, and its place:
/// the first window's is `first`, and lines have `width` results.
#[inline(always)]
fn largest_of<A: Scalar, const L: usize>(
    lines: [&[A]; 2],
    bias: A,
    relu: bool,
    [first, width]: [usize; 2],
) -> ([A; L], [i32; L]) {
    let [top, bottom] = lines.map(|line| &line[..2 * L]);
    let width = width as i32;
    let one = (every_second(top, 0, bias, relu), [0; L]);
    let two = better(one, every_second(top, 1, bias, relu), 1);
    let three = better(two, every_second(bottom, 0, bias, relu), width);
    let (best, mut places) = better(three, every_second(bottom, 1, bias, relu), width + 1);
    let first = first as i32;
    for (i, place) in places.iter_mut().enumerate() {
        // An overflow that is looked for is not looked for in vectors.
        *place = place.wrapping_add(first).wrapping_add(2 * i as i32);
    }
    (best, places)
}

/// The finished results `first`, `first + 2`, … of a line.
#[inline(always)]
fn every_second<A: Scalar, const L: usize>(line: &[A], first: usize, bias: A, relu: bool) -> [A; L] {
    let mut out = [A::default(); L];
    for i in 0..L {
        out[i] = line[2 * i + first] + bias;
    }
    if relu {
        for x in &mut out {
            *x = activate(Activation::Relu, *x);
        }
    }
    out
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
