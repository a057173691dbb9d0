//! Winograd's convolutions F(2×2, 3×3) and F(4×2, 3×3), for 3×3 windows of stride 1: 16 multiplications for 2×2 results
//! instead of 36, or 24 for 4×2 instead of 72.
//!
//! The image is cut into tiles that overlap by two. Tiles and weights are transformed. Each of the 16 or 24 points of a
//! transformed tile is a matrix product over the channels (tiles × channels · channels × outputs), and the results of the
//! products are transformed back.
//!
//! The data gradient is the same convolution of the output's gradient with the windows rotated by 180°, or the transpose of
//! the forward pass. The weight gradient sums products of transformed tiles of the image and of the output's gradient over
//! all tiles.
//!
//! The transforms add and subtract values of similar size, which costs digits. In f32, in layers as networks have them, no
//! result is further from the exact one than 4e-6 of the root mean square of all results; direct sums stay within 3e-6, and
//! 4×4 results, which would take 36 multiplications, within 5e-6. The tests check this bound for all three products. For
//! the same reason sums over channels and tiles are made of short partial sums ([`layout::CHANNELS`]).
//!
//! A NaN or infinity in one element of a tile spreads to all of its results. If that happens, direct sums recompute the
//! whole product, in which it affects only the windows that contain it.

mod filter;
mod forward;
mod kernels;
mod layout;
mod one_pass;
#[cfg(test)]
mod tests;
mod tiles;
mod tiling;
mod transform;
mod weight_grad;

use crate::Cpu;
use crate::conv::Operands;
use crate::gemm::Epilogue;
use transform::Transforms;

use tiling::SMALL;

use crate::scalar::Scalar;
use filter::{Direction, Filter, Weights};
use forward::{convolve, transposed};
pub(crate) use kernels::Winograd;
use kiln_core::Result;
use tiles::Tiles;
pub(crate) use tiling::Tiling;

/// Runs an expression with the transforms for the size of the tiles.
macro_rules! with_transforms {
    ($tiles:expr, |$t:ident| $run:expr) => {
        match $tiles.sides {
            SMALL => {
                let $t = &A::transforms().small;
                $run
            }
            _ => {
                let $t = &A::transforms().large;
                $run
            }
        }
    };
}

/// Computes the convolution of `x` in the order that makes better use of the cache. Like every product here, it returns true
/// if all results are finite.
fn along<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    filter: Filter<'_, A>,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<bool> {
    if is_weight_bound(tiles, filter.shape()) {
        return one_pass::convolve(cpu, transforms, tiles, x, filter, e, y);
    }
    convolve(cpu, transforms, tiles, x, &Weights::new(cpu, transforms, filter)?, e, y)
}

/// True if there are so few tiles that reading the weights takes longer than reading the tiles.
fn is_weight_bound(tiles: &Tiles, [steps, columns]: [usize; 2]) -> bool {
    tiles.all() * (steps + columns) < 2 * steps * columns
}

/// Computes `y = f(x ⋆ w + bias)`. This and the gradients return true if all results are finite.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, tiling: &Tiling, o: Operands<'_, A>, y: &mut [A]) -> Result<bool> {
    let tiles = &tiling.tiles;
    with_transforms!(tiles, |t| {
        let filter = Filter::new(o.w, tiling.channels, tiling.direction);
        along(cpu, t, tiles, o.x, filter, o.epilogue, y)
    })
}

/// Computes the gradient with respect to the input.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, tiling: &Tiling, g: &[A], w: &[A], dx: &mut [A]) -> Result<bool> {
    let tiles = &tiling.tiles;
    with_transforms!(tiles, |t| {
        let filter = Filter::new(w, tiling.channels, tiling.direction);
        match tiling.direction {
            Direction::Transposed => transposed(cpu, t, tiles, g, &Weights::new(cpu, t, filter)?, dx),
            _ => along(cpu, t, tiles, g, filter, Epilogue::NONE, dx),
        }
    })
}

/// Computes the gradient with respect to the weight.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, tiling: &Tiling, g: &[A], x: &[A], dw: &mut [A]) -> Result<bool> {
    let (tiles, sizes) = (&tiling.tiles, [tiling.channels, tiling.outputs]);
    with_transforms!(tiles, |t| if is_weight_bound(tiles, sizes) {
        one_pass::weight_grad(cpu, t, tiles, g, x, sizes, dw)
    } else {
        weight_grad::weight_grad(cpu, t, tiles, g, x, sizes, dw)
    })
}
