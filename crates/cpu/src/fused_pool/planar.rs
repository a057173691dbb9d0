//! The pooling of a planar convolution, in which the results of a channel are contiguous and are pooled in that layout.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::planar::{Planes, ROOM};
use crate::epilogue::{Epilogue, activate};
use crate::scalar::Scalar;
use crate::simd::isa::vectorized;
use crate::simd::real::max_with_index;
use kiln_core::Result;
use kiln_core::ops::Activation;

/// The number of windows pooled at once; each takes two results of a line.
const PAIRS: usize = 16;

// The last results of a line are read in full blocks, beyond the end of the line.
const _: () = assert!(2 * PAIRS <= ROOM);

impl<A: Scalar> Planes<A> {
    /// Computes the largest result of each 2×2 window of `pool` (stride 2) over the images of `x`, and its index; without an
    /// activation, or with ReLU.
    pub(crate) fn largest(
        &self,
        cpu: &Cpu,
        pool: &Geometry,
        x: &[A],
        e: Epilogue<'_, A>,
        (y, index): (&mut [A], &mut [i32]),
    ) -> Result<()> {
        let (outputs, windows, width) = (self.g.outputs, pool.output[2], pool.input[2]);
        let wide = windows.next_multiple_of(PAIRS);
        let (mut best, mut places) = (vec![A::default(); wide], vec![0; wide]);
        let relu = e.activation == Activation::Relu;
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
                            let bias = e.bias.map_or(A::default(), |bias| bias[o]);
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

/// Computes the largest of each of `L` windows over two lines of results, after bias and activation, and its index: the
/// first window's is `first`, and lines have `width` results.
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
    let two = max_with_index(one, every_second(top, 1, bias, relu), 1);
    let three = max_with_index(two, every_second(bottom, 0, bias, relu), width);
    let (best, mut places) = max_with_index(three, every_second(bottom, 1, bias, relu), width + 1);
    let first = first as i32;
    for (i, place) in places.iter_mut().enumerate() {
        // Checked arithmetic would keep this loop from being vectorised.
        *place = place.wrapping_add(first).wrapping_add(2 * i as i32);
    }
    (best, places)
}

/// The results `first`, `first + 2`, … of a line, after bias and activation.
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
