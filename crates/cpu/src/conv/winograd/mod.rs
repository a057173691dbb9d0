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
//! sums over channels and tiles are added up from short ones ([`CHANNELS`]).
//!
//! What is not finite in one element of a tile is not finite in all of its results. Where that happens the whole product is left
//! to direct sums, which keep it in the windows that see it.

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
use tiles::{Sides, Tiles};
use weights::{Direction, Filter, Weights};

/// The results of a tile.
const SMALL: Sides = [2, 2];
const LARGE: Sides = [4, 2];

/// Channels, or tiles, whose products are summed by themselves.
const CHANNELS: usize = 64;

/// Runs an expression with the transforms of the tiles' sides.
macro_rules! with_transforms {
    ($tiles:expr, |$t:ident| $run:expr) => {
        match $tiles.sides {
            SMALL => {
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

/// The cheaper of small and large tiles, with its cost; `None` when direct sums are as good, or tiles are none.
fn cheapest(
    tiles: impl Fn(Sides) -> Option<Tiles>,
    direct: impl Fn(&Tiles) -> usize,
    [channels, outputs]: [usize; 2],
) -> Option<(usize, Tiles)> {
    if channels < 16 || outputs < 16 {
        return None;
    }
    let costs = [SMALL, LARGE].map(|sides| tiles(sides).map(|tiles| (tiles.cost(channels, outputs), tiles)));
    let best = costs.into_iter().flatten().min_by_key(|(cost, _)| *cost)?;
    (best.0 < direct(&best.1) * channels * outputs * 9 / 10).then_some(best)
}

/// Elements from one point's matrix to the next: a line more than the matrix, so that the points of a tile do not meet in
/// one set of a cache.
fn apart(rows: usize, columns: usize) -> usize {
    const LINE: usize = 16;
    (rows * columns).next_multiple_of(LINE) + LINE
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
    if few(tiles, filter.shape()) {
        return whole::convolve(cpu, transforms, tiles, x, filter, e, y);
    }
    convolve(cpu, transforms, tiles, x, &Weights::new(cpu, transforms, filter)?, e, y)
}

/// Whether tiles are so few that weights are read more often than they are.
fn few(tiles: &Tiles, [steps, columns]: [usize; 2]) -> bool {
    tiles.all() * (steps + columns) < 2 * steps * columns
}

/// Multiply-adds that take as long as [`forward`] does; `None` when direct sums are as good, or asked for.
pub(crate) fn cost(cpu: &Cpu, g: &Geometry) -> Option<usize> {
    if cpu.convolves_exactly() {
        return None;
    }
    cheapest(|sides| Tiles::new(g, sides), Tiles::inside, [g.channels, g.outputs]).map(|(cost, _)| cost)
}

/// `y = f(x ⋆ w + bias)`; `None` when direct sums are as good or the result is not finite.
pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<Option<()>> {
    let Some((_, tiles)) = cheapest(|sides| Tiles::new(g, sides), Tiles::inside, [g.channels, g.outputs]) else {
        return Ok(None);
    };
    let e = Epilogue { bias, activation: f };
    with_transforms!(tiles, |t| {
        along(cpu, t, &tiles, x, Filter::new(w, g.channels, Direction::Forward), e, y).map(finite)
    })
}

/// The gradient with respect to the input; `None` as in [`forward`].
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<Option<()>> {
    // The convolution of the gradient with the window turned around cuts the input into tiles, the forward pass transposed
    // the output, which has fewer where there is no padding.
    let sizes = [p.channels, p.outputs];
    let around = cheapest(
        |sides| Tiles::backward(p, sides),
        Tiles::inside,
        [p.outputs, p.channels],
    );
    let back = cheapest(|sides| Tiles::new(p, sides), Tiles::inside, sizes).filter(|(_, t)| t.image_fits());
    let ways = [(Direction::Backward, around), (Direction::Transposed, back)];
    let ways = ways.into_iter().filter_map(|(way, tiles)| Some((way, tiles?)));
    let Some((way, (_, tiles))) = ways.min_by_key(|(_, (cost, _))| *cost) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| {
        let filter = Filter::new(w, p.channels, way);
        match way {
            Direction::Transposed => transposed(cpu, t, &tiles, g, &Weights::new(cpu, t, filter)?, dx),
            _ => along(cpu, t, &tiles, g, filter, Epilogue::NONE, dx),
        }
    })
    .map(finite)
}

/// The gradient with respect to the weight; `None` as in [`forward`].
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<Option<()>> {
    let sizes = [p.channels, p.outputs];
    let Some((_, tiles)) = cheapest(|sides| Tiles::new(p, sides), |_| 9 * p.rows(), sizes) else {
        return Ok(None);
    };
    with_transforms!(tiles, |t| if few(&tiles, sizes) {
        whole::weight_grad(cpu, t, &tiles, g, x, sizes, dw)
    } else {
        weight::weight_grad(cpu, t, &tiles, g, x, sizes, dw)
    })
    .map(finite)
}

fn finite(finite: bool) -> Option<()> {
    finite.then_some(())
}
