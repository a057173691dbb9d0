//! The micro-kernels that run on this machine.

use super::chosen::{self, Block, Chosen};
use super::kernel::{ColumnTile, DOTS, DotTile, RowTile, columns, dots, rows};
use super::pooled::{Gradient, Largest, Pooled, gradient, largest};
use super::vector::Portable;
#[cfg(target_arch = "x86_64")]
use super::vector::x86::{Avx2, Avx512};
use super::winograd::{self, Job, Transform, Transforms};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
use std::sync::OnceLock;

/// A micro-kernel over [`RowTile`]s.
pub(crate) type RowKernel<A> = for<'a, 's> unsafe fn(&'a RowTile<'s, A>);
/// A micro-kernel over [`ColumnTile`]s.
pub(crate) type ColumnKernel<A> = for<'a, 's> unsafe fn(&'a ColumnTile<'s, A>);

/// A micro-kernel over [`DotTile`]s.
pub(crate) type DotKernel<A> = for<'a, 'c> unsafe fn(&'a DotTile<A>, &'c mut [[A; DOTS]; DOTS]);

/// Micro-kernels of one tile height, for tiles of one vector and of two.
pub(crate) struct Height<A: 'static> {
    pub(crate) rows: usize,
    pub(crate) by_row: [RowKernel<A>; 2],
    pub(crate) by_column: [ColumnKernel<A>; 2],
}

/// The micro-kernels of one instruction set.
pub(crate) struct Kernels<A: 'static> {
    /// The instruction set's name.
    pub(crate) name: &'static str,
    /// Elements of a vector; a panel of B is two vectors wide.
    pub(crate) lanes: usize,
    /// Falling, down to 1.
    pub(crate) heights: &'static [Height<A>],
    /// For one row and for [`DOTS`].
    pub(crate) dots: [DotKernel<A>; 2],
    /// Winograd's convolutions F(2×2, 3×3) and F(4×2, 3×3).
    pub(crate) winograd2: Transforms<A, 16, 4>,
    pub(crate) winograd4: Transforms<A, 24, 8>,
    pub(super) pooled: Pooled<A>,
    /// The widest and highest first, down to one line of one vector.
    pub(super) chosen: &'static [Block<A>],
}

impl<A> Kernels<A> {
    /// Columns of a panel.
    pub(crate) fn panel(&self) -> usize {
        2 * self.lanes
    }

    /// Rows of the largest tile.
    pub(crate) fn tile(&self) -> usize {
        self.heights[0].rows
    }

    /// The lowest tile that covers `left` rows, or the highest there is.
    pub(crate) fn height(&self, left: usize) -> &'static Height<A> {
        let fits = self.heights.iter().rev().find(|h| h.rows >= left);
        fits.unwrap_or(&self.heights[0])
    }
}

/// The kernels of one instruction set, called `$name`, over the vectors `$v`, for tiles of `$rows` rows; and of pooled windows, for
/// one vector and for two, `$one` and `$two` at once and gradients of `$of_one` and `$of_two` taps; and of what was chosen of them,
/// for `$blocks` of lines and vectors.
macro_rules! kernels {
    ($set:ident, $name:literal, $t:ident, $v:ty, [$($feature:literal)?], $rows:tt, pooled: [$one:literal, $two:literal], [$of_one:tt, $of_two:tt],
     chosen: $blocks:tt) => {
        static $set: Kernels<$t> = Kernels {
            name: $name,
            lanes: <$v as super::vector::Vector>::LANES,
            heights: kernels!(@each $t, $v, [$($feature)?], $rows),
            dots: [kernels!(@dots $t, $v, [$($feature)?], 1), kernels!(@dots $t, $v, [$($feature)?], 4)],
            winograd2: kernels!(@winograd $t, $v, [$($feature)?], [4, 4], [2, 2]),
            winograd4: kernels!(@winograd $t, $v, [$($feature)?], [6, 4], [4, 2]),
            pooled: Pooled {
                largest: [
                    kernels!(@largest $t, $v, [$($feature)?], $one, 1),
                    kernels!(@largest $t, $v, [$($feature)?], $two, 2),
                ],
                gradient: [
                    kernels!(@gradients $t, $v, [$($feature)?], 1, $of_one),
                    kernels!(@gradients $t, $v, [$($feature)?], 2, $of_two),
                ],
            },
            chosen: kernels!(@chosen $t, $v, [$($feature)?], $blocks),
        };
    };
    (@chosen $t:ident, $v:ty, $feature:tt, [$($block:tt),+]) => {
        &[$(kernels!(@block $t, $v, $feature, $block)),+]
    };
    (@block $t:ident, $v:ty, [$($feature:literal)?], ($lines:literal, $vectors:literal)) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn weight(t: &Chosen<'_, $t>, x: *const $t, dw: *mut $t) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { chosen::weight::<$v, $lines, $vectors>(t, x, dw) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn image(t: &Chosen<'_, $t>, w: *const $t, dx: *mut $t) {
            // SAFETY: as above.
            unsafe { chosen::image::<$v, $lines, $vectors>(t, w, dx) }
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
        &[$(kernels!(@gradient $t, $v, $feature, $vectors, $taps)),+]
    };
    (@gradient $t:ident, $v:ty, [$($feature:literal)?], $vectors:literal, $taps:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn job(t: &Gradient<'_, $t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { gradient::<$v, $taps, $vectors>(t) }
        }
        ($taps, job)
    }};
    (@dots $t:ident, $v:ty, [$($feature:literal)?], $rows:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn tile(t: &DotTile<$t>, c: &mut [[$t; DOTS]; DOTS]) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { dots::<$v, $rows>(t, c) }
        }
        tile
    }};
    (@winograd $t:ident, $v:ty, $feature:tt, $tile:tt, $result:tt) => {
        Transforms {
            image: kernels!(@transform $t, $v, $feature, Image, $tile, $tile),
            image_grad: kernels!(@transform $t, $v, $feature, ImageGrad, $tile, $tile),
            weight: kernels!(@transform $t, $v, $feature, Weight, [3, 3], $tile),
            result: kernels!(@transform $t, $v, $feature, Result, $tile, $result),
            result_grad: kernels!(@transform $t, $v, $feature, ResultGrad, $result, $tile),
            weight_grad: kernels!(@transform $t, $v, $feature, WeightGrad, $tile, [3, 3]),
        }
    };
    (@transform $t:ident, $v:ty, [$($feature:literal)?], $name:ident, [$h:literal, $w:literal], [$to_h:literal, $to_w:literal]) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn transform(job: &Job<$t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { winograd::run::<$v, winograd::$name, $h, $w, $to_h, $to_w>(job) }
        }
        // SAFETY: a job of a tile of this size has as many pointers; the instructions are those of the set.
        unsafe { Transform::new(transform) }
    }};
    (@each $t:ident, $v:ty, $feature:tt, [$($rows:literal),+]) => {
        &[$(kernels!(@height $t, $v, $feature, $rows)),+]
    };
    (@height $t:ident, $v:ty, [$($feature:literal)?], $rows:literal) => {{
        $(#[target_feature(enable = $feature)])?
        unsafe fn row1(t: &RowTile<'_, $t>) {
            // SAFETY: the caller's contract; the instructions are enabled here.
            unsafe { rows::<$v, $rows, 1>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn row2(t: &RowTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { rows::<$v, $rows, 2>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn column1(t: &ColumnTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { columns::<$v, $rows, 1>(t) }
        }
        $(#[target_feature(enable = $feature)])?
        unsafe fn column2(t: &ColumnTile<'_, $t>) {
            // SAFETY: as above.
            unsafe { columns::<$v, $rows, 2>(t) }
        }
        Height { rows: $rows, by_row: [row1, row2], by_column: [column1, column2] }
    }};
}

/// The sets of one element type, the best of this machine first.
macro_rules! sets {
    ($all:ident, $t:ident, $portable:ident, $avx2:ident, $avx512:ident, $ymm:ident, $zmm:ident) => {
        kernels!(
            $portable, "portable", $t, Portable<$t>, [], [4, 2, 1],
            pooled: [1, 1], [[3, 1], [3, 1]], chosen: [(3, 2), (1, 2), (3, 1), (1, 1)]
        );
        #[cfg(target_arch = "x86_64")]
        kernels!(
            $avx2, "avx2", $t, Avx2<$ymm>, ["avx2,fma"], [6, 4, 2, 1],
            pooled: [3, 1], [[9, 3, 1], [3, 1]], chosen: [(3, 4), (1, 4), (5, 2), (3, 2), (1, 2), (5, 1), (3, 1), (1, 1)]
        );
        #[cfg(target_arch = "x86_64")]
        kernels!(
            $avx512,
            "avx512",
            $t,
            Avx512<$zmm>,
            ["avx512f"],
            [12, 8, 6, 4, 2, 1],
            pooled: [3, 3], [[25, 9, 3, 1], [9, 3, 1]],
            chosen: [(3, 6), (1, 6), (5, 2), (3, 2), (1, 2), (5, 1), (3, 1), (1, 1)]
        );

        pub(crate) fn $all() -> &'static [&'static Kernels<$t>] {
            static FOUND: OnceLock<Vec<&'static Kernels<$t>>> = OnceLock::new();
            FOUND.get_or_init(|| {
                let mut found = Vec::new();
                #[cfg(target_arch = "x86_64")]
                {
                    if is_x86_feature_detected!("avx512f") {
                        found.push(&$avx512);
                    }
                    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                        found.push(&$avx2);
                    }
                }
                found.push(&$portable);
                found
            })
        }
    };
}
sets!(all_f32, f32, PORTABLE_F32, AVX2_F32, AVX512_F32, __m256, __m512);
sets!(all_f64, f64, PORTABLE_F64, AVX2_F64, AVX512_F64, __m256d, __m512d);
