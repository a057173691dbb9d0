//! Micro-kernels for a convolution followed by 2×2 max pooling with stride 2: the four results of a pooled window stay in
//! registers until the largest is chosen, and a gradient goes only to the chosen one.

#![allow(clippy::needless_range_loop, clippy::absurd_extreme_comparisons)]

use crate::conv::Geometry;
use crate::fused_pool::select::SimdMax;
use crate::gemm::microkernel::{add_products, join, load, relu, store, unrolled};

/// The geometry of the pooled windows on an image with the padding of the convolution written out.
#[derive(Clone, Copy)]
pub(crate) struct PoolGeometry {
    /// The number of lines of pooled windows, and of windows in a line.
    pub(crate) lines: usize,
    pub(crate) windows: usize,
    /// The distance, in elements of the image, between the windows of neighbouring results in a line, and in a column.
    pub(crate) right: usize,
    pub(crate) below: usize,
    /// The number of results in a line; the indices of results are counted along lines.
    pub(crate) width: usize,
}

impl PoolGeometry {
    /// The geometry of a convolution over images with lines of `line` elements, with 2×2 pooling of stride 2.
    pub(crate) fn new(conv: &Geometry, pool: &Geometry, line: usize) -> Self {
        PoolGeometry {
            lines: pool.output[1],
            windows: pool.output[2],
            right: conv.stride[2] * conv.channels,
            below: conv.stride[1] * line,
            width: conv.output[2],
        }
    }

    /// The start of the last result's window in the image; there is at least one result.
    pub(crate) fn last(&self) -> usize {
        (2 * self.lines - 1) * self.below + (2 * self.windows - 1) * self.right
    }

    /// The indices of the four results of a pooled window, relative to the first.
    pub(crate) fn places(&self) -> [usize; 4] {
        [0, 1, self.width, self.width + 1]
    }
}

/// The pooled windows, and the taps of each result.
pub(crate) struct WindowTaps {
    pub(crate) grid: PoolGeometry,
    /// The offsets of the elements that a result is summed over, relative to the first.
    pub(crate) taps: Vec<usize>,
}

impl WindowTaps {
    /// The number of elements of the image up to the last one read.
    pub(crate) fn reach(&self) -> usize {
        self.grid.last() + self.taps.iter().max().map_or(0, |tap| tap + 1)
    }
}

/// A job of [`largest`].
pub(crate) struct Largest<'s, A> {
    pub(crate) pairs: &'s WindowTaps,
    pub(crate) places: [A; 4],
    pub(crate) x: *const A,
    pub(crate) w: *const A,
    pub(crate) w_step: usize,
    pub(crate) bias: *const A,
    pub(crate) relu: bool,
    /// A row for each pooled window.
    pub(crate) y: *mut A,
    pub(crate) index: *mut i32,
    pub(crate) step: usize,
    pub(crate) columns: usize,
}

/// A job of [`gradient`].
pub(crate) struct Gradient<'s, A> {
    pub(crate) pairs: &'s WindowTaps,
    pub(crate) x: *const A,
    /// The taps that the kernel sums, `M` of them.
    pub(crate) taps: &'s [usize],
    /// A row for each pooled window.
    pub(crate) g: *const A,
    pub(crate) index: *const i32,
    pub(crate) step: usize,
    /// A row for each tap.
    pub(crate) dw: *mut A,
    pub(crate) dw_step: usize,
    pub(crate) columns: usize,
}

/// A kernel over [`Largest`].
pub(crate) type LargestKernel<A> = for<'a, 's> unsafe fn(&'a Largest<'s, A>);
/// A kernel over [`Gradient`].
pub(crate) type GradientKernel<A> = for<'a, 's> unsafe fn(&'a Gradient<'s, A>);

/// Computes the largest result of every pooled window of an image, and its index, `P` windows at a time.
///
/// # Safety
/// Every pointer of the job reaches what its comment says, and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn largest<V: SimdMax, const P: usize, const NV: usize>(t: &Largest<'_, V::Element>) {
    let p = &t.pairs.grid;
    for line in 0..p.lines {
        let (x, row) = (t.x.wrapping_add(line * 2 * p.below), line * p.windows);
        let mut window = 0;
        while window < p.windows {
            let at = (row + window, (2 * (line * p.width + window)) as i32);
            let x = x.wrapping_add(window * 2 * p.right);
            // SAFETY: the caller's contract, of as many windows as there are left.
            unsafe {
                if window + P <= p.windows {
                    largest_of::<V, P, NV>(t, x, at);
                    window += P;
                } else {
                    largest_of::<V, 1, NV>(t, x, at);
                    window += 1;
                }
            }
        }
    }
}

/// Computes `P` pooled windows. The first result's window starts at `x`; results start at row `row`, indices at `first`.
///
/// # Safety
/// As [`largest`].
#[inline(always)]
unsafe fn largest_of<V: SimdMax, const P: usize, const NV: usize>(
    t: &Largest<'_, V::Element>,
    x: *const V::Element,
    (row, first): (usize, i32),
) {
    let mut sums = [[[V::zero(); NV]; 4]; P];
    let last = t.columns - (NV - 1) * V::LANES;
    let (right, below) = (t.pairs.grid.right, t.pairs.grid.below);
    let mut w = t.w;
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        for &tap in &t.pairs.taps {
            let weights = load::<V, NV>(w, last);
            let (top, bottom) = (x.add(tap), x.add(tap + below));
            unrolled!(p < P {
                sums[p][0] = add_products(sums[p][0], V::splat(*top.add(2 * p * right)), weights);
                sums[p][1] = add_products(sums[p][1], V::splat(*top.add((2 * p + 1) * right)), weights);
                sums[p][2] = add_products(sums[p][2], V::splat(*bottom.add(2 * p * right)), weights);
                sums[p][3] = add_products(sums[p][3], V::splat(*bottom.add((2 * p + 1) * right)), weights);
            });
            w = w.wrapping_add(t.w_step);
        }
        let bias = if t.bias.is_null() {
            [V::zero(); NV]
        } else {
            load::<V, NV>(t.bias, last)
        };
        unrolled!(p < P {
            for i in 0..4 {
                if !t.bias.is_null() {
                    sums[p][i] = join(sums[p][i], bias);
                }
                if t.relu {
                    sums[p][i] = relu(sums[p][i]);
                }
            }
            let mut best = sums[p][0];
            let index = t.index.add((row + p) * t.step);
            for j in 0..NV {
                let mut place = V::zero();
                for i in 1..4 {
                    (best[j], place) = best[j].max_with_index(place, sums[p][i][j], V::splat(t.places[i]));
                }
                let count = if j + 1 < NV { V::LANES } else { last };
                place.store_places(first + 2 * p as i32, index.add(j * V::LANES), count);
            }
            store(best, t.y.add((row + p) * t.step), last);
        });
    }
}

/// Adds to `dw` the gradient of the weights of `M` taps, over all pooled windows of an image.
///
/// # Safety
/// Every pointer of the job reaches what its comment says, it has `M` taps, and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn gradient<V: SimdMax, const M: usize, const NV: usize>(t: &Gradient<'_, V::Element>) {
    let p = &t.pairs.grid;
    let last = t.columns - (NV - 1) * V::LANES;
    let places = p.places().map(|place| place as i32);
    let mut sums = [[V::zero(); NV]; M];
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        unrolled!(i < M {
            sums[i] = load::<V, NV>(t.dw.add(i * t.dw_step), last);
        });
        for line in 0..p.lines {
            let mut x = t.x.add(line * 2 * p.below);
            let mut row = line * p.windows * t.step;
            let mut first = (2 * line * p.width) as i32;
            for _ in 0..p.windows {
                let g = load::<V, NV>(t.g.add(row), last);
                let mut of = [[V::zero(); NV]; 4];
                for i in 0..4 {
                    for j in 0..NV {
                        let count = if j + 1 < NV { V::LANES } else { last };
                        let index = t.index.add(row + j * V::LANES);
                        of[i][j] = g[j].select_eq_index(index, count, first + places[i]);
                    }
                }
                unrolled!(i < M {
                    let top = x.add(*t.taps.get_unchecked(i));
                    let bottom = top.add(p.below);
                    sums[i] = add_products(sums[i], V::splat(*top), of[0]);
                    sums[i] = add_products(sums[i], V::splat(*top.add(p.right)), of[1]);
                    sums[i] = add_products(sums[i], V::splat(*bottom), of[2]);
                    sums[i] = add_products(sums[i], V::splat(*bottom.add(p.right)), of[3]);
                });
                x = x.wrapping_add(2 * p.right);
                row += t.step;
                first += 2;
            }
        }
        unrolled!(i < M {
            store(sums[i], t.dw.add(i * t.dw_step), last);
        });
    }
}
