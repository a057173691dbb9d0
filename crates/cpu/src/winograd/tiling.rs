//! The ways to cut a convolution into tiles, and their costs.

use crate::conv::Geometry;
use crate::winograd::filter::Direction;
use crate::winograd::tiles::{Sides, Tiles};
use kiln_core::ops::ConvPass as Pass;

/// The sides of the results of a tile of F(2×2, 3×3), and of F(4×2, 3×3).
pub(crate) const SMALL: Sides = [2, 2];
pub(crate) const LARGE: Sides = [4, 2];

/// A way to compute one pass of a convolution in tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiling {
    pub(crate) tiles: Tiles,
    pub(crate) direction: Direction,
    pub(crate) channels: usize,
    pub(crate) outputs: usize,
}

impl Tiling {
    /// All tilings of `pass`, for 3×3 windows without strides, dilation and groups.
    pub(crate) fn all(pass: Pass, g: &Geometry) -> impl Iterator<Item = Tiling> {
        let g = *g;
        // The data gradient as a convolution of the output's gradient with the rotated window cuts the input into tiles; as the
        // transpose of the forward pass it cuts the output, which has fewer tiles without padding.
        let directions: &[Direction] = match pass {
            Pass::Forward | Pass::WeightGrad => &[Direction::Forward],
            Pass::DataGrad => &[Direction::Backward, Direction::Transposed],
        };
        let each = directions
            .iter()
            .flat_map(|&direction| [(direction, SMALL), (direction, LARGE)]);
        each.filter_map(move |(direction, sides)| {
            let tiles = match direction {
                Direction::Forward => Tiles::new(&g, sides),
                Direction::Backward => Tiles::backward(&g, sides),
                Direction::Transposed => Tiles::new(&g, sides).filter(Tiles::image_fits),
            };
            Some(Tiling {
                tiles: tiles?,
                direction,
                channels: g.channels,
                outputs: g.outputs,
            })
        })
    }

    /// The estimated time of the pass, in multiply-adds.
    pub(crate) fn cost(&self) -> usize {
        self.tiles.cost(self.channels, self.outputs)
    }

    /// The name in profiles.
    pub(crate) fn name(&self) -> &'static str {
        match (self.tiles.sides, self.direction) {
            (SMALL, Direction::Transposed) => "Winograd F(2×2, 3×3) transposed",
            (_, Direction::Transposed) => "Winograd F(4×2, 3×3) transposed",
            (SMALL, _) => "Winograd F(2×2, 3×3)",
            _ => "Winograd F(4×2, 3×3)",
        }
    }
}
