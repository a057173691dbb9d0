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
//! errors seen were 0.8 units in the last place of the sum of the sizes of a window's terms for F(2×2, 3×3), and 13 for
//! F(4×4, 3×3); the tests hold them below 2 and 48. What is not finite in one element of a tile is not finite in all of its
//! results.

mod convolve;
#[cfg(test)]
mod tests;
mod tiles;
mod weight;

use super::Geometry;
use crate::Cpu;
use crate::gemm::Epilogue;
use crate::scalar::Scalar;
use convolve::{Direction, Weights, convolve, transposed};
use kiln_core::Result;
use kiln_core::ops::Activation;
use tiles::Tiles;

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
fn cheapest(tiles: impl Fn(usize) -> Option<Tiles>, channels: usize, outputs: usize) -> Option<(usize, Tiles)> {
    if channels < 16 || outputs < 16 {
        return None;
    }
    let costs = [2, 4].map(|side| tiles(side).map(|tiles| (tiles.cost(channels, outputs), tiles)));
    let best = costs.into_iter().flatten().min_by_key(|(cost, _)| *cost)?;
    (best.0 < best.1.direct() * channels * outputs * 9 / 10).then_some(best)
}

/// Elements from one point's matrix to the next: a line more than the matrix, so that the points of a tile do not meet in
/// one set of a cache.
fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
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
    let Some((_, tiles)) = cheapest(|side| Tiles::new(g, side), g.channels, g.outputs) else {
        return Ok(None);
    };
    let e = Epilogue { bias, activation: f };
    with_transforms!(tiles, |t| {
        let weights = Weights::new(cpu, t, w, g.channels, Direction::Forward)?;
        convolve(cpu, t, &tiles, x, &weights, e, y).map(Some)
    })
}

/// The gradient with respect to the input; `None` when direct sums are as good.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<Option<()>> {
    // The convolution of the gradient with the window turned around cuts the input into tiles, the forward pass transposed
    // the output, which has fewer where there is no padding.
    let around = cheapest(|side| Tiles::backward(p, side), p.outputs, p.channels);
    let back = cheapest(|side| Tiles::new(p, side), p.channels, p.outputs).filter(|(_, t)| t.image_fits());
    let ways = [(Direction::Backward, around), (Direction::Transposed, back)];
    let ways = ways.into_iter().filter_map(|(way, tiles)| Some((way, tiles?)));
    let Some((way, (_, tiles))) = ways.min_by_key(|(_, (cost, _))| *cost) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| {
        let weights = Weights::new(cpu, t, w, p.channels, way)?;
        match way {
            Direction::Transposed => transposed(cpu, t, &tiles, g, &weights, dx)?,
            _ => convolve(cpu, t, &tiles, g, &weights, Epilogue::NONE, dx)?,
        }
    });
    Ok(Some(()))
}

/// The gradient with respect to the weight; `None` when direct sums are as good.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<Option<()>> {
    let sizes = [p.channels, p.outputs];
    let Some((_, tiles)) = cheapest(|side| Tiles::new(p, side), p.channels, p.outputs) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| weight::weight_grad(cpu, t, &tiles, g, x, sizes, dw)
        .map(Some))
}
