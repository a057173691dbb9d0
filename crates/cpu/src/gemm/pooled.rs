//! Products over the windows of a convolution whose results are pooled by 2×2 windows that lie side by side: the four results
//! of a pooled window stay in registers until the largest is chosen, and a gradient goes to the one that was chosen.

#![allow(clippy::needless_range_loop, clippy::absurd_extreme_comparisons)]

use super::choice::Choice;
use super::isa::Kernels;
use super::kernel::{add_products, join, load, relu, store, unrolled};
use super::panels::Panels;
use super::rows::Epilogue;
use crate::conv::Geometry;
use crate::scalar::Scalar;
use kiln_core::ops::Activation;

/// Pooled windows over an image in which the padding of the convolution is written out.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    /// Lines of pooled windows, and windows of a line.
    pub(crate) lines: usize,
    pub(crate) windows: usize,
    /// Elements of the image between the windows of results that are neighbours in a line, and in a column.
    pub(crate) right: usize,
    pub(crate) below: usize,
    /// Results of a line: their places are counted along lines.
    pub(crate) width: usize,
}

impl Grid {
    /// Of a convolution over images with lines of `line` elements, whose results are pooled by 2×2 windows side by side.
    pub(crate) fn new(conv: &Geometry, pool: &Geometry, line: usize) -> Self {
        Grid {
            lines: pool.output[1],
            windows: pool.output[2],
            right: conv.stride[2] * conv.channels,
            below: conv.stride[1] * line,
            width: conv.output[2],
        }
    }

    /// Elements of the image before the last window of a result; there is one.
    pub(super) fn last(&self) -> usize {
        (2 * self.lines - 1) * self.below + (2 * self.windows - 1) * self.right
    }

    /// The places of the results of a window, from its first.
    fn places(&self) -> [usize; 4] {
        [0, 1, self.width, self.width + 1]
    }
}

/// How an image is read.
pub(crate) struct Pairs {
    pub(crate) grid: Grid,
    /// Where the elements lie that a result is a sum over, from the first.
    pub(crate) taps: Vec<usize>,
}

impl Pairs {
    /// Elements of the image up to the last that is read.
    fn reach(&self) -> usize {
        self.grid.last() + self.taps.iter().max().map_or(0, |tap| tap + 1)
    }
}

/// A job of [`largest`].
pub(crate) struct Largest<'s, A> {
    pairs: &'s Pairs,
    places: [A; 4],
    x: *const A,
    w: *const A,
    w_step: usize,
    bias: *const A,
    relu: bool,
    /// A row for each pooled window.
    y: *mut A,
    index: *mut i32,
    step: usize,
    columns: usize,
}

/// A job of [`gradient`].
pub(crate) struct Gradient<'s, A> {
    pairs: &'s Pairs,
    x: *const A,
    /// As many as the kernel sums at once.
    taps: &'s [usize],
    /// A row for each pooled window.
    g: *const A,
    index: *const i32,
    step: usize,
    /// A row for each tap.
    dw: *mut A,
    dw_step: usize,
    columns: usize,
}

/// A kernel over [`Largest`].
pub(crate) type LargestKernel<A> = for<'a, 's> unsafe fn(&'a Largest<'s, A>);
/// A kernel over [`Gradient`].
pub(crate) type GradientKernel<A> = for<'a, 's> unsafe fn(&'a Gradient<'s, A>);

/// The kernels of one instruction set, each for one vector of outputs and for two.
pub(crate) struct Pooled<A: 'static> {
    pub(crate) largest: [LargestKernel<A>; 2],
    /// With how many taps they sum at once, falling to 1.
    pub(crate) gradient: [&'static [(usize, GradientKernel<A>)]; 2],
}

impl<A: Scalar> Kernels<A> {
    /// The largest of the results `f(x ⋆ w + bias)` of each pooled window of an image, and its place. Of `w` a row of outputs lies
    /// in the panels for each tap.
    ///
    /// # Panics
    /// When an operand is shorter, or the panels have several units: a bug in the op.
    pub(crate) fn largest_products(
        &self,
        pairs: &Pairs,
        x: &[A],
        w: &Panels<'_, A>,
        e: Epilogue<'_, A>,
        (y, index): (&mut [A], &mut [i32]),
    ) {
        let outputs = w.columns;
        let size = pairs.grid.lines * pairs.grid.windows * outputs;
        if size == 0 {
            return;
        }
        assert!(pairs.reach() <= x.len() && size <= y.len() && size <= index.len());
        assert!(w.units.len() == 1 && e.bias.is_none_or(|bias| bias.len() == outputs));
        for from in (0..outputs).step_by(self.panel()) {
            let columns = self.panel().min(outputs - from);
            let (rows, w_step) = w.rows(0, from);
            assert!((pairs.taps.len() - 1) * w_step + columns <= rows.len());
            let job = Largest {
                pairs,
                places: pairs.grid.places().map(|place| A::of(place as f64)),
                x: x.as_ptr(),
                w: rows.as_ptr(),
                w_step,
                bias: e.bias.map_or(std::ptr::null(), |bias| bias[from..].as_ptr()),
                relu: e.activation == Activation::Relu,
                y: y[from..].as_mut_ptr(),
                index: index[from..].as_mut_ptr(),
                step: outputs,
                columns,
            };
            // SAFETY: what is read and written was compared above; the instructions are this machine's.
            unsafe { self.pooled.largest[usize::from(columns > self.lanes)](&job) };
        }
    }

    /// Adds to `dw`, `[taps, outputs]`, the gradient of the weights, where `g` holds those of each pooled window and `index` the
    /// places they go to.
    ///
    /// # Panics
    /// When an operand is shorter: a bug in the op.
    pub(crate) fn pooled_gradient(
        &self,
        pairs: &Pairs,
        x: &[A],
        (g, index): (&[A], &[i32]),
        dw: &mut [A],
        outputs: usize,
    ) {
        let size = pairs.grid.lines * pairs.grid.windows * outputs;
        if size == 0 {
            return;
        }
        assert!(pairs.reach() <= x.len() && size <= g.len() && size <= index.len());
        assert!(pairs.taps.len() * outputs <= dw.len());
        for from in (0..outputs).step_by(self.panel()) {
            let columns = self.panel().min(outputs - from);
            let kernels = self.pooled.gradient[usize::from(columns > self.lanes)];
            let (mut at, mut taps) = (0, &*pairs.taps);
            while !taps.is_empty() {
                let fits = kernels.iter().find(|(count, _)| *count <= taps.len());
                let &(count, kernel) = fits.expect("a kernel sums one tap");
                let (some, rest) = taps.split_at(count);
                let job = Gradient {
                    pairs,
                    x: x.as_ptr(),
                    taps: some,
                    g: g[from..].as_ptr(),
                    index: index[from..].as_ptr(),
                    step: outputs,
                    dw: dw[at * outputs + from..].as_mut_ptr(),
                    dw_step: outputs,
                    columns,
                };
                // SAFETY: what is read and written was compared above; the instructions are this machine's.
                unsafe { kernel(&job) };
                (at, taps) = (at + count, rest);
            }
        }
    }
}

/// # Safety
/// Every pointer of the job reaches what its comment says, and the machine has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn largest<V: Choice, const P: usize, const NV: usize>(t: &Largest<'_, V::Element>) {
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

/// `P` windows, whose first results have the window that starts at `x`; rows of the results start at `row`, places at `first`.
///
/// # Safety
/// As [`largest`].
#[inline(always)]
unsafe fn largest_of<V: Choice, const P: usize, const NV: usize>(
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
                    (best[j], place) = best[j].better(place, sums[p][i][j], V::splat(t.places[i]));
                }
                let count = if j + 1 < NV { V::LANES } else { last };
                place.store_places(first + 2 * p as i32, index.add(j * V::LANES), count);
            }
            store(best, t.y.add((row + p) * t.step), last);
        });
    }
}

/// # Safety
/// Every pointer of the job reaches what its comment says, it has `M` taps, and the machine has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn gradient<V: Choice, const M: usize, const NV: usize>(t: &Gradient<'_, V::Element>) {
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
                        of[i][j] = g[j].placed(index, count, first + places[i]);
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
