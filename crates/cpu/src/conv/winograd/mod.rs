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
use crate::gemm::{Epilogue, Transforms};
use crate::scalar::Scalar;
use convolve::{Direction, Weights, convolve};
use kiln_core::Result;
use kiln_core::ops::Activation;
use tiles::Tiles;

/// The fastest of the ways there are.
enum Way {
    Direct,
    Small(Tiles),
    Large(Tiles),
}

impl Way {
    fn new(tiles: impl Fn(usize) -> Option<Tiles>, channels: usize, outputs: usize) -> Self {
        let (Some(small), Some(large)) = (tiles(2), tiles(4)) else {
            return Way::Direct;
        };
        if channels < 16 || outputs < 16 {
            return Way::Direct;
        }
        let direct = small.direct() * channels * outputs * 9 / 10;
        let costs = [small, large].map(|tiles| tiles.cost(channels, outputs));
        if costs[0].min(costs[1]) >= direct {
            Way::Direct
        } else if costs[0] <= costs[1] {
            Way::Small(small)
        } else {
            Way::Large(large)
        }
    }
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
    let e = Epilogue { bias, activation: f };
    match Way::new(|side| Tiles::new(g, side), g.channels, g.outputs) {
        Way::Direct => Ok(None),
        Way::Small(tiles) => run(cpu, &A::kernels().winograd2, &tiles, x, w, g, Direction::Forward, e, y).map(Some),
        Way::Large(tiles) => run(cpu, &A::kernels().winograd4, &tiles, x, w, g, Direction::Forward, e, y).map(Some),
    }
}

/// The gradient with respect to the input; `None` when direct sums are as good.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<Option<()>> {
    let e = Epilogue {
        bias: None,
        activation: Activation::None,
    };
    match Way::new(|side| Tiles::backward(p, side), p.outputs, p.channels) {
        Way::Direct => Ok(None),
        Way::Small(tiles) => run(
            cpu,
            &A::kernels().winograd2,
            &tiles,
            g,
            w,
            p,
            Direction::Backward,
            e,
            dx,
        )
        .map(Some),
        Way::Large(tiles) => run(
            cpu,
            &A::kernels().winograd4,
            &tiles,
            g,
            w,
            p,
            Direction::Backward,
            e,
            dx,
        )
        .map(Some),
    }
}

#[allow(clippy::too_many_arguments)]
fn run<A: Scalar, const POINTS: usize, const RESULTS: usize>(
    cpu: &Cpu,
    transforms: &Transforms<A, POINTS, RESULTS>,
    tiles: &Tiles,
    x: &[A],
    w: &[A],
    g: &Geometry,
    direction: Direction,
    e: Epilogue<'_, A>,
    y: &mut [A],
) -> Result<()> {
    let weights = Weights::new(cpu, transforms, w, g.channels, direction)?;
    let (from, to) = match direction {
        Direction::Forward => (g.channels, g.outputs),
        Direction::Backward => (g.outputs, g.channels),
    };
    convolve(cpu, transforms, tiles, x, from, &weights, to, e, y)
}

/// The gradient with respect to the weight; `None` when direct sums are as good.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<Option<()>> {
    let sizes = [p.channels, p.outputs];
    match Way::new(|side| Tiles::new(p, side), p.channels, p.outputs) {
        Way::Direct => Ok(None),
        Way::Small(tiles) => weight::weight_grad(cpu, &A::kernels().winograd2, &tiles, g, x, sizes, dw).map(Some),
        Way::Large(tiles) => weight::weight_grad(cpu, &A::kernels().winograd4, &tiles, g, x, sizes, dw).map(Some),
    }
}
