//! Gradients of a convolution that is pooled by 2×2 windows side by side, from the results that were chosen alone: each adds
//! its gradient times its window of the image to that of the weight, and times the weight to that of the image. Vectors run
//! along the lines of the convolution's windows, however few outputs there are.

use super::isa::Kernels;
use super::kernel::{add_products, load, store, unrolled};
use super::pooled::Grid;
use super::vector::Vector;
use crate::scalar::Scalar;

/// Windows of a convolution, whose lines are contiguous in the image and in the weight.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) count: usize,
    /// Elements of a line.
    pub(crate) len: usize,
    /// Elements of the image from a line to the next.
    pub(crate) step: usize,
}

/// One output of an image: the gradients of its chosen results and their places, `step` apart, and the block of lines that a
/// kernel takes.
pub(crate) struct Chosen<'s, A> {
    grid: &'s Grid,
    g: *const A,
    index: *const i32,
    step: usize,
    /// Elements of the image, and of the weight, from a line to the next.
    image_step: usize,
    weight_step: usize,
    /// Columns of the block.
    columns: usize,
}

/// Adds to the gradient of the weight: `(chosen, image, gradient)`.
type WeightKernel<A> = for<'a, 's> unsafe fn(&'a Chosen<'s, A>, *const A, *mut A);
/// Adds to the gradient of the image: `(chosen, weight, gradient)`.
type ImageKernel<A> = for<'a, 's> unsafe fn(&'a Chosen<'s, A>, *const A, *mut A);

/// The kernels for blocks of so many lines and vectors.
pub(crate) struct Block<A: 'static> {
    pub(crate) lines: usize,
    pub(crate) vectors: usize,
    pub(crate) weight: WeightKernel<A>,
    pub(crate) image: ImageKernel<A>,
}

impl<A: Scalar> Kernels<A> {
    /// Calls `f(block, line, column, columns)` for blocks that cover the lines.
    fn each_block(&self, lines: Lines, mut f: impl FnMut(&Block<A>, usize, usize, usize)) {
        let mut column = 0;
        while column < lines.len {
            let vectors = (lines.len - column).div_ceil(self.lanes);
            let mut line = 0;
            let mut width = 0;
            while line < lines.count {
                let fits = |b: &&Block<A>| b.vectors <= vectors && b.lines <= lines.count - line;
                let block = self.chosen.iter().find(fits).expect("a block has one line and vector");
                width = (block.vectors * self.lanes).min(lines.len - column);
                f(block, line, column, width);
                line += block.lines;
            }
            column += width;
        }
    }

    /// Multiply-adds that take as long as a chosen result does in the gradient of the image, and of the weight.
    pub(crate) fn chosen_costs(&self, lines: Lines) -> [usize; 2] {
        // As measured: vectors of multiply-adds that take as long as what a block does beside its own, and twice that of an image's,
        // which are stored.
        let [mut image, mut weight] = [0usize; 2];
        self.each_block(lines, |block, _, _, _| {
            let vectors = block.lines * block.vectors;
            image += vectors + vectors / 2 + 2;
            weight += vectors + 4;
        });
        [image, weight].map(|vectors| vectors * self.lanes)
    }

    /// Adds to `dw`, `[outputs, lines, len]`, the gradient of the weights, where `g` holds those of each pooled window of the image
    /// `x` and `index` the places they go to.
    ///
    /// # Panics
    /// When an operand is shorter: a bug in the op.
    pub(crate) fn chosen_weight_grad(
        &self,
        grid: &Grid,
        lines: Lines,
        x: &[A],
        chosen: (&[A], &[i32]),
        dw: &mut [A],
        outputs: usize,
    ) {
        self.each_chosen(
            grid,
            lines,
            x.len(),
            chosen,
            [outputs, dw.len()],
            |block, job, image, weight| {
                // SAFETY: `each_chosen` compared what the block reads and writes; the instructions are this machine's.
                unsafe { (block.weight)(job, x.as_ptr().add(image), dw.as_mut_ptr().add(weight)) }
            },
        );
    }

    /// Adds to the image `dx` its gradient, for the weights `w`, `[outputs, lines, len]`.
    ///
    /// # Panics
    /// When an operand is shorter: a bug in the op.
    pub(crate) fn chosen_image_grad(
        &self,
        grid: &Grid,
        lines: Lines,
        w: &[A],
        chosen: (&[A], &[i32]),
        dx: &mut [A],
        outputs: usize,
    ) {
        self.each_chosen(
            grid,
            lines,
            dx.len(),
            chosen,
            [outputs, w.len()],
            |block, job, image, weight| {
                // SAFETY: as above.
                unsafe { (block.image)(job, w.as_ptr().add(weight), dx.as_mut_ptr().add(image)) }
            },
        );
    }

    /// Calls `f(block, job, where it starts in an image, and in the weight)` for every block of every output, having compared
    /// what they reach with the elements that the image and the weight have.
    fn each_chosen(
        &self,
        grid: &Grid,
        lines: Lines,
        image: usize,
        (g, index): (&[A], &[i32]),
        [outputs, weights]: [usize; 2],
        mut f: impl FnMut(&Block<A>, &Chosen<'_, A>, usize, usize),
    ) {
        let size = grid.lines * grid.windows * outputs;
        if size == 0 || lines.count * lines.len == 0 {
            return;
        }
        assert!(grid.last() + (lines.count - 1) * lines.step + lines.len <= image);
        assert!(size <= g.len() && size <= index.len() && outputs * lines.count * lines.len <= weights);
        for output in 0..outputs {
            self.each_block(lines, |block, line, column, columns| {
                let job = Chosen {
                    grid,
                    g: g[output..].as_ptr(),
                    index: index[output..].as_ptr(),
                    step: outputs,
                    image_step: lines.step,
                    weight_step: lines.len,
                    columns,
                };
                let weight = (output * lines.count + line) * lines.len + column;
                f(block, &job, line * lines.step + column, weight);
            });
        }
    }
}

/// Calls `$body` with each gradient `$g` and where its result's window starts in the image `$image`, `$at`. A place that is none
/// of a pooled window's is taken for one of them.
macro_rules! each_result {
    ($t:expr, $image:expr, |$g:ident, $at:ident| $body:block) => {{
        let (t, grid) = ($t, $t.grid);
        let width = grid.width as i32;
        // Which result was chosen is a toss: a table asks no questions that could be guessed wrong.
        let places = [0, grid.right, grid.below, grid.below.wrapping_add(grid.right)];
        let (mut g, mut index) = (t.g, t.index);
        for line in 0..grid.lines {
            let mut image = $image.wrapping_add(line.wrapping_mul(2 * grid.below));
            let mut place = (line as i32).wrapping_mul(2 * width);
            for _ in 0..grid.windows {
                let $g = *g;
                let chosen = (*index).wrapping_sub(place);
                let below = i32::from(chosen >= width);
                let beside = chosen.wrapping_sub(below.wrapping_mul(width)) & 1;
                let $at = image.wrapping_add(*places.get_unchecked((below.wrapping_mul(2) | beside) as usize));
                $body
                g = g.wrapping_add(t.step);
                index = index.wrapping_add(t.step);
                image = image.wrapping_add(2 * grid.right);
                place = place.wrapping_add(2);
            }
        }
    }};
}

/// # Safety
/// Every pointer reaches what the comments say, of `M` lines with at most `NV` vectors of columns and more than `NV − 1`; and the
/// machine has `V`'s instructions.
#[inline(always)]
pub(super) unsafe fn weight<V: Vector, const M: usize, const NV: usize>(
    t: &Chosen<'_, V::Element>,
    x: *const V::Element,
    dw: *mut V::Element,
) {
    let last = t.columns - (NV - 1) * V::LANES;
    let mut sums = [[V::zero(); NV]; M];
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        unrolled!(i < M {
            sums[i] = load::<V, NV>(dw.add(i * t.weight_step), last);
        });
        each_result!(t, x, |g, x| {
            let g = V::splat(g);
            unrolled!(i < M {
                let line = load::<V, NV>(x.wrapping_add(i.wrapping_mul(t.image_step)), last);
                sums[i] = add_products(sums[i], g, line);
            });
        });
        unrolled!(i < M {
            store(sums[i], dw.add(i * t.weight_step), last);
        });
    }
}

/// # Safety
/// As [`weight`].
#[inline(always)]
pub(super) unsafe fn image<V: Vector, const M: usize, const NV: usize>(
    t: &Chosen<'_, V::Element>,
    w: *const V::Element,
    dx: *mut V::Element,
) {
    let last = t.columns - (NV - 1) * V::LANES;
    let mut lines = [[V::zero(); NV]; M];
    // SAFETY: the caller's contract bounds every offset below.
    unsafe {
        unrolled!(i < M {
            lines[i] = load::<V, NV>(w.add(i * t.weight_step), last);
        });
        each_result!(t, dx, |g, dx| {
            let g = V::splat(g);
            unrolled!(i < M {
                let to = dx.wrapping_add(i.wrapping_mul(t.image_step));
                let sums = load::<V, NV>(to, last);
                store(add_products(sums, g, lines[i]), to, last);
            });
        });
    }
}
