//! Winograd's convolutions F(2×2, 3×3) and F(4×4, 3×3): windows of 3×3 and stride 1 with 16 multiplications for 2×2 results
//! instead of 36, or 36 for 4×4 instead of 144.
//!
//! The image is cut into tiles that overlap by two. Tiles and weights are transformed, each of the 16 or 36 points of a
//! transformed tile gives a product of matrices over the channels (tiles × channels · channels × outputs), and the results
//! of the products are transformed back.
//!
//! The data gradient is the same convolution of the output's gradient with the weights turned around. The weight gradient
//! sums products of transformed tiles of the image and of the output's gradient over all tiles.
//!
//! The transforms add and subtract values of like size, which costs digits. With f32 operands between -1 and 1, the largest
//! errors seen were 1.3 units in the last place of the sum of the sizes of a window's terms for F(2×2, 3×3), and 20 for
//! F(4×4, 3×3); the tests hold them below 2 and 48. What is not finite in one element of a tile is not finite in all of its
//! results.

mod convolve;
#[cfg(test)]
mod tests;
mod tiles;
mod weight;
mod weights;
mod whole;

use super::Geometry;
use crate::Cpu;
use crate::gemm::{Epilogue, Transforms};
use crate::scalar::Scalar;
use convolve::{convolve, transposed};
use kiln_core::Result;
use kiln_core::ops::Activation;
use tiles::Tiles;
use weights::{Direction, Filter, Weights};

/// Runs an expression with the transforms of the tiles' side.
macro_rules! with_transforms {
    ($tiles:expr, |$t:ident| $run:expr) => {
        match $tiles.side {
            2 => {
                let $t = &A::kernels().winograd2;
                $run
            }
            _ => {
                let $t = &A::kernels().winograd4;
                $run
            }
        }
    };
}

/// The cheaper of the tiles of side 2 and 4, with its cost; `None` when direct sums are as good, or tiles are none.
fn cheapest(
    tiles: impl Fn(usize) -> Option<Tiles>,
    direct: impl Fn(&Tiles) -> usize,
    [channels, outputs]: [usize; 2],
) -> Option<(usize, Tiles)> {
    if channels < 16 || outputs < 16 {
        return None;
    }
    let costs = [2, 4].map(|side| tiles(side).map(|tiles| (tiles.cost(channels, outputs), tiles)));
    let best = costs.into_iter().flatten().min_by_key(|(cost, _)| *cost)?;
    (best.0 < direct(&best.1) * channels * outputs * 9 / 10).then_some(best)
}

/// Elements from one point's matrix to the next: a line more than the matrix, so that the points of a tile do not meet in
/// one set of a cache.
fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
}

/// The convolution of `x` in the order that keeps more in cache.
fn along<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    filter: Filter<'_, A>,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<()> {
    if few(tiles, filter.shape()) {
        return whole::convolve(cpu, transforms, tiles, x, filter, e, y);
    }
    convolve(cpu, transforms, tiles, x, &Weights::new(cpu, transforms, filter)?, e, y)
}

/// Whether tiles are so few that weights are read more often than they are.
fn few(tiles: &Tiles, [steps, columns]: [usize; 2]) -> bool {
    tiles.all() * (steps + columns) < 2 * steps * columns
}

/// Multiply-adds that take as long as [`forward`] does; `None` when direct sums are as good.
pub(crate) fn cost(g: &Geometry) -> Option<usize> {
    cheapest(|side| Tiles::new(g, side), Tiles::inside, [g.channels, g.outputs]).map(|(cost, _)| cost)
}

/// `y = f(x ⋆ w + bias)`; `None` when direct sums are as good.
pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<Option<()>> {
    let Some((_, tiles)) = cheapest(|side| Tiles::new(g, side), Tiles::inside, [g.channels, g.outputs]) else {
        return Ok(None);
    };
    let e = Epilogue { bias, activation: f };
    with_transforms!(tiles, |t| {
        along(cpu, t, &tiles, x, Filter::new(w, g.channels, Direction::Forward), e, y).map(Some)
    })
}

/// The gradient with respect to the input; `None` when direct sums are as good.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<Option<()>> {
    // The convolution of the gradient with the window turned around cuts the input into tiles, the forward pass transposed
    // the output, which has fewer where there is no padding.
    let sizes = [p.channels, p.outputs];
    let around = cheapest(|side| Tiles::backward(p, side), Tiles::inside, [p.outputs, p.channels]);
    let back = cheapest(|side| Tiles::new(p, side), Tiles::inside, sizes).filter(|(_, t)| t.image_fits());
    let ways = [(Direction::Backward, around), (Direction::Transposed, back)];
    let ways = ways.into_iter().filter_map(|(way, tiles)| Some((way, tiles?)));
    let Some((way, (_, tiles))) = ways.min_by_key(|(_, (cost, _))| *cost) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| {
        let filter = Filter::new(w, p.channels, way);
        match way {
            Direction::Transposed => transposed(cpu, t, &tiles, g, &Weights::new(cpu, t, filter)?, dx)?,
            _ => along(cpu, t, &tiles, g, filter, Epilogue::NONE, dx)?,
        }
    });
    Ok(Some(()))
}

/// The gradient with respect to the weight; `None` when direct sums are as good.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<Option<()>> {
    let sizes = [p.channels, p.outputs];
    let Some((_, tiles)) = cheapest(|side| Tiles::new(p, side), |_| 9 * p.rows(), sizes) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| if few(&tiles, sizes) {
        whole::weight_grad(cpu, t, &tiles, g, x, sizes, dw)
    } else {
        weight::weight_grad(cpu, t, &tiles, g, x, sizes, dw)
    })
    .map(Some)
}
