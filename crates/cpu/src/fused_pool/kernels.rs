//! The micro-kernels of pooled convolutions for this machine, and the loops over an image around them.

use crate::fused_pool::argmax_microkernel::{self, ArgmaxJob, Block, Lines};
use crate::fused_pool::microkernel::{
    Gradient, GradientKernel, Largest, LargestKernel, PoolGeometry, WindowTaps, gradient, largest,
};
use crate::gemm::{Epilogue, Gemm, Panels};
use crate::simd::isa::by_isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::vector::x86::{Avx2, Avx512};
use crate::simd::vector::{Portable, Vector};
use kiln_core::ops::Activation;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

/// f32 and f64, the types with micro-kernels for pooled convolutions.
pub(crate) trait FusedPool: Gemm {
    /// The micro-kernels of every instruction set of this machine, in the order of [`Gemm::all_kernels`].
    fn all_pool_kernels() -> &'static [&'static PoolKernels<Self>];

    /// The micro-kernels of the widest instruction set.
    fn pool_kernels() -> &'static PoolKernels<Self> {
        Self::all_pool_kernels()[0]
    }
}

/// The micro-kernels of one instruction set.
pub(crate) struct PoolKernels<A: 'static> {
    /// The number of elements of a vector.
    pub(crate) lanes: usize,
    /// The forward kernels for one vector of outputs and for two.
    largest: [LargestKernel<A>; 2],
    /// The gradient kernels for one vector of outputs and for two, each with its number of taps, in descending order to 1.
    gradient: [&'static [(usize, GradientKernel<A>)]; 2],
    /// The kernels for blocks of lines, from the widest and highest down to one line of one vector.
    blocks: &'static [Block<A>],
}

impl<A: Gemm> PoolKernels<A> {
    /// Computes the largest of the results `f(x ⋆ w + bias)` of each pooled window of an image, and its index. The panels of
    /// `w` have a row of outputs for each tap.
    ///
    /// # Panics
    /// If an operand is too short, or the panels have several blocks of k: a bug in the op.
    pub(crate) fn largest_products(
        &self,
        pairs: &WindowTaps,
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
        for from in (0..outputs).step_by(2 * self.lanes) {
            let columns = (2 * self.lanes).min(outputs - from);
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
            unsafe { self.largest[usize::from(columns > self.lanes)](&job) };
        }
    }

    /// Adds to `dw`, `[taps, outputs]`, the gradient of the weights. `g` holds the gradient of each pooled window, `index` the
    /// index of the result that it belongs to.
    ///
    /// # Panics
    /// If an operand is too short: a bug in the op.
    pub(crate) fn pooled_gradient(
        &self,
        pairs: &WindowTaps,
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
        for from in (0..outputs).step_by(2 * self.lanes) {
            let columns = (2 * self.lanes).min(outputs - from);
            let kernels = self.gradient[usize::from(columns > self.lanes)];
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

    /// Calls `f(block, line, column, columns)` for blocks that cover the lines.
    fn each_block(&self, lines: Lines, mut f: impl FnMut(&Block<A>, usize, usize, usize)) {
        let mut column = 0;
        while column < lines.len {
            let vectors = (lines.len - column).div_ceil(self.lanes);
            let mut line = 0;
            let mut width = 0;
            while line < lines.count {
                let fits = |b: &&Block<A>| b.vectors <= vectors && b.lines <= lines.count - line;
                let block = self.blocks.iter().find(fits).expect("a block has one line and vector");
                width = (block.vectors * self.lanes).min(lines.len - column);
                f(block, line, column, width);
                line += block.lines;
            }
            column += width;
        }
    }

    /// The time of one chosen result in the gradient of the image, and of the weight, in multiply-adds.
    pub(crate) fn argmax_costs(&self, lines: Lines) -> [usize; 2] {
        // Measured: the overhead of a block, in vectors of multiply-adds, and for the image also the stores of its vectors.
        let [mut image, mut weight] = [0usize; 2];
        self.each_block(lines, |block, _, _, _| {
            let vectors = block.lines * block.vectors;
            image += vectors + vectors / 2 + 2;
            weight += vectors + 4;
        });
        [image, weight].map(|vectors| vectors * self.lanes)
    }

    /// Adds to `dw`, `[outputs, lines, len]`, the gradient of the weights. `g` holds the gradient of each pooled window of the
    /// image `x`, `index` the index of the result that it belongs to.
    ///
    /// # Panics
    /// If an operand is too short: a bug in the op.
    pub(crate) fn argmax_weight_grad(
        &self,
        grid: &PoolGeometry,
        lines: Lines,
        x: &[A],
        chosen: (&[A], &[i32]),
        dw: &mut [A],
        outputs: usize,
    ) {
        self.each_job(
            grid,
            lines,
            x.len(),
            chosen,
            [outputs, dw.len()],
            |block, job, image, weight| {
                // SAFETY: `each_job` compared what the block reads and writes; the instructions are this machine's.
                unsafe { (block.weight)(job, x.as_ptr().add(image), dw.as_mut_ptr().add(weight)) }
            },
        );
    }

    /// Adds to the image `dx` its gradient, for the weights `w`, `[outputs, lines, len]`.
    ///
    /// # Panics
    /// If an operand is too short: a bug in the op.
    pub(crate) fn argmax_image_grad(
        &self,
        grid: &PoolGeometry,
        lines: Lines,
        w: &[A],
        chosen: (&[A], &[i32]),
        dx: &mut [A],
        outputs: usize,
    ) {
        self.each_job(
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

    /// Calls `f(block, job, start in the image, start in the weight)` for every block of every output, after comparing all
    /// accesses of the kernels with the lengths of the image and the weight.
    fn each_job(
        &self,
        grid: &PoolGeometry,
        lines: Lines,
        image: usize,
        (g, index): (&[A], &[i32]),
        [outputs, weights]: [usize; 2],
        mut f: impl FnMut(&Block<A>, &ArgmaxJob<'_, A>, usize, usize),
    ) {
        let size = grid.lines * grid.windows * outputs;
        if size == 0 || lines.count * lines.len == 0 {
            return;
        }
        assert!(grid.last() + (lines.count - 1) * lines.step + lines.len <= image);
        assert!(size <= g.len() && size <= index.len() && outputs * lines.count * lines.len <= weights);
        for output in 0..outputs {
            self.each_block(lines, |block, line, column, columns| {
                let job = ArgmaxJob {
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

/// The kernels of one instruction set over the vectors `$v`, each for one vector of outputs and for two: `$one` and `$two`
/// windows at once, gradients of `$of_one` and `$of_two` taps, and `$blocks` of lines and vectors.
macro_rules! pool_kernels {
    ($set:ident, $t:ident, $v:ty, [$($feature:literal)?], [$one:literal, $two:literal], [$of_one:tt, $of_two:tt], $blocks:tt) => {
        static $set: PoolKernels<$t> = PoolKernels {
            lanes: <$v as Vector>::LANES,
            largest: [
                pool_kernels!(@largest $t, $v, [$($feature)?], $one, 1),
                pool_kernels!(@largest $t, $v, [$($feature)?], $two, 2),
            ],
            gradient: [
                pool_kernels!(@gradients $t, $v, [$($feature)?], 1, $of_one),
                pool_kernels!(@gradients $t, $v, [$($feature)?], 2, $of_two),
            ],
            blocks: pool_kernels!(@chosen $t, $v, [$($feature)?], $blocks),
        };
    };
    (@chosen $t:ident, $v:ty, $feature:tt, [$($block:tt),+]) => {
        &[$(pool_kernels!(@block $t, $v, $feature, $block)),+]
    };
    (@block $t:ident, $v:ty, [$($feature:literal)?], ($lines:literal, $vectors:literal)) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn weight(t: &ArgmaxJob<'_, $t>, x: *const $t, dw: *mut $t) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { argmax_microkernel::weight::<$v, $lines, $vectors>(t, x, dw) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn image(t: &ArgmaxJob<'_, $t>, w: *const $t, dx: *mut $t) {
            // SAFETY: as above.
            unsafe { argmax_microkernel::image::<$v, $lines, $vectors>(t, w, dx) }
        }
        Block { lines: $lines, vectors: $vectors, weight, image }
    }};
    (@largest $t:ident, $v:ty, [$($feature:literal)?], $together:literal, $vectors:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn job(t: &Largest<'_, $t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { largest::<$v, $together, $vectors>(t) }
        }
        job
    }};
    (@gradients $t:ident, $v:ty, $feature:tt, $vectors:literal, [$($taps:literal),+]) => {
        &[$(pool_kernels!(@gradient $t, $v, $feature, $vectors, $taps)),+]
    };
    (@gradient $t:ident, $v:ty, [$($feature:literal)?], $vectors:literal, $taps:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn job(t: &Gradient<'_, $t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { gradient::<$v, $taps, $vectors>(t) }
        }
        ($taps, job)
    }};
}

/// The sets of one element type.
macro_rules! sets {
    ($t:ident, $portable:ident, $avx2:ident, $avx512:ident, $ymm:ident, $zmm:ident) => {
        pool_kernels!($portable, $t, Portable<$t>, [], [1, 1], [[3, 1], [3, 1]], [(3, 2), (1, 2), (3, 1), (1, 1)]);
        #[cfg(target_arch = "x86_64")]
        pool_kernels!(
            $avx2,
            $t,
            Avx2<$ymm>,
            ["avx2,fma"],
            [3, 1],
            [[9, 3, 1], [3, 1]],
            [(3, 4), (1, 4), (5, 2), (3, 2), (1, 2), (5, 1), (3, 1), (1, 1)]
        );
        #[cfg(target_arch = "x86_64")]
        pool_kernels!(
            $avx512,
            $t,
            Avx512<$zmm>,
            ["avx512f"],
            [3, 3],
            [[25, 9, 3, 1], [9, 3, 1]],
            [(3, 6), (1, 6), (5, 2), (3, 2), (1, 2), (5, 1), (3, 1), (1, 1)]
        );

        impl FusedPool for $t {
            by_isa!(fn all_pool_kernels() -> PoolKernels<$t>, $portable, $avx2, $avx512);
        }
    };
}
sets!(f32, PORTABLE_F32, AVX2_F32, AVX512_F32, __m256, __m512);
sets!(f64, PORTABLE_F64, AVX2_F64, AVX512_F64, __m256d, __m512d);
