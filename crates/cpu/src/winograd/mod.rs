//! Winograd's convolutions F(2×2, 3×3) and F(4×2, 3×3): windows of 3×3 and stride 1 with 16 multiplications for 2×2 results
//! instead of 36, or 24 for 4×2 instead of 72.
//!
//! The image is cut into tiles that overlap by two. Tiles and weights are transformed, each of the 16 or 24 points of a
//! transformed tile gives a product of matrices over the channels (tiles × channels · channels × outputs), and the results
//! of the products are transformed back.
//!
//! The data gradient is the same convolution of the output's gradient with the weights turned around. The weight gradient
//! sums products of transformed tiles of the image and of the output's gradient over all tiles.
//!
//! The transforms add and subtract values of like size, which costs digits. In f32 no result is further from the exact one than
//! 4e-6 of the root of the mean of the squares of all, in layers as nets have them; direct sums stay within 3e-6, and with
//! 4×4 results, which would take 36 multiplications, it would be 5e-6. The tests hold all three products to it. For the same reason
//! sums over channels and tiles are added up from short ones ([`layout::CHANNELS`]).
//!
//! A NaN or infinity in one element of a tile spreads to all of its results. Where that happens the whole product is left
//! to direct sums, which keep it in the windows that see it.

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

/// Runs an expression with the transforms of the tiles' sides.
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

/// The convolution of `x` in the order that keeps more in cache. As of every product here, what is returned is whether all of it
/// is finite.
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

/// True if tiles are so few that weights are read more often than they are.
fn is_weight_bound(tiles: &Tiles, [steps, columns]: [usize; 2]) -> bool {
    tiles.all() * (steps + columns) < 2 * steps * columns
}

/// `y = f(x ⋆ w + bias)`. Of this and the gradients, what is returned is whether all of the result is finite.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, tiling: &Tiling, o: Operands<'_, A>, y: &mut [A]) -> Result<bool> {
    let tiles = &tiling.tiles;
    with_transforms!(tiles, |t| {
        let filter = Filter::new(o.w, tiling.channels, tiling.direction);
        along(cpu, t, tiles, o.x, filter, o.epilogue, y)
    })
}

/// The gradient with respect to the input.
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

/// The gradient with respect to the weight.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, tiling: &Tiling, g: &[A], x: &[A], dw: &mut [A]) -> Result<bool> {
    let (tiles, sizes) = (&tiling.tiles, [tiling.channels, tiling.outputs]);
    with_transforms!(tiles, |t| if is_weight_bound(tiles, sizes) {
        one_pass::weight_grad(cpu, t, tiles, g, x, sizes, dw)
    } else {
        weight_grad::weight_grad(cpu, t, tiles, g, x, sizes, dw)
    })
}
