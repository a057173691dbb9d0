//! Micro-kernels for the gradients of a convolution followed by 2×2 max pooling with stride 2, from the chosen results
//! alone: each adds its gradient times its window of the image to the gradient of the weight, and times the weight to that
//! of the image. Vectors run along the lines of the windows, so they are full even with few outputs.

use crate::fused_pool::microkernel::PoolGeometry;
use crate::gemm::microkernel::{add_products, load, store, unrolled};
use crate::simd::vector::Vector;

/// The windows of a convolution, as lines that are contiguous in the image and in the weight.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    pub(crate) count: usize,
    /// The number of elements of a line.
    pub(crate) len: usize,
    /// The number of elements from a line to the next in the image.
    pub(crate) step: usize,
}

/// One output channel of an image: the gradients of its chosen results and their indices, `step` apart, and the block of
/// lines that a kernel processes.
pub(crate) struct ArgmaxJob<'s, A> {
    pub(crate) grid: &'s PoolGeometry,
    pub(crate) g: *const A,
    pub(crate) index: *const i32,
    pub(crate) step: usize,
    /// The number of elements from a line to the next in the image, and below in the weight.
    pub(crate) image_step: usize,
    pub(crate) weight_step: usize,
    /// The number of columns of the block.
    pub(crate) columns: usize,
}

/// Adds to the gradient of the weight: `(chosen, image, gradient)`.
type WeightKernel<A> = for<'a, 's> unsafe fn(&'a ArgmaxJob<'s, A>, *const A, *mut A);
/// Adds to the gradient of the image: `(chosen, weight, gradient)`.
type ImageKernel<A> = for<'a, 's> unsafe fn(&'a ArgmaxJob<'s, A>, *const A, *mut A);

/// The kernels for blocks of `lines` lines and `vectors` vectors.
pub(crate) struct Block<A: 'static> {
    pub(crate) lines: usize,
    pub(crate) vectors: usize,
    pub(crate) weight: WeightKernel<A>,
    pub(crate) image: ImageKernel<A>,
}

/// Calls `$body` with each gradient `$g` and the start `$at` of its result's window in the image `$image`. An index outside
/// the pooled window is treated as one inside it.
macro_rules! each_result {
    ($t:expr, $image:expr, |$g:ident, $at:ident| $body:block) => {{
        let (t, grid) = ($t, $t.grid);
        let width = grid.width as i32;
        // The chosen result is unpredictable, so it is looked up in a table instead of by branches.
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

/// Adds to a block of the weight's gradient `dw` each chosen gradient times its window of the image `x`.
///
/// # Safety
/// Every pointer reaches the elements that its comment describes, for `M` lines with at most `NV` vectors of columns and
/// more than `NV − 1`; and the machine has `V`'s instructions.
#[inline(always)]
pub(crate) unsafe fn weight<V: Vector, const M: usize, const NV: usize>(
    t: &ArgmaxJob<'_, V::Element>,
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

/// Adds to the image's gradient `dx`, at the window of each chosen result, its gradient times a block of the weight `w`.
///
/// # Safety
/// As [`weight`].
#[inline(always)]
pub(crate) unsafe fn image<V: Vector, const M: usize, const NV: usize>(
    t: &ArgmaxJob<'_, V::Element>,
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
