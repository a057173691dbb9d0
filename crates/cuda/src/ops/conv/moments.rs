//! Convolutions that also give the moments of their channels, where they multiply tiles in the same kernel.

use super::algorithm::{Algorithm, Pass, Tile};
use super::choose::{fours, padded, product, tensor_tile};
use super::launch::geometry;
use super::{tensor, winograd};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::ConvParams;
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, conv_tiled_f32 as t};

/// Blocks of rows whose moments one of them joins (`conv_moments.cuh`).
const MOMENT_BLOCKS: u64 = 64;
/// The most groups of blocks, with one for each tile of columns besides (`conv_moments.cuh`).
const MOMENT_TICKETS: u64 = 16384;

/// The kernel of a variant that multiplies tiles and has one with moments, the rows and columns of a tile, and the threads of a block.
fn tiles(algorithm: Algorithm, p: &ConvParams, dtype: DType) -> Option<(&'static Kernel, [u64; 2], u32)> {
    let tile = match algorithm {
        Algorithm::Tiled(tile) if fours(p) && dtype == DType::F32 => {
            return Some(match tile {
                Tile::Small => (&t::CONV_TILED_MOMENTS_PACKED_F32, [64; 2], 256),
                Tile::Large => (&t::CONV_TILED_MOMENTS_PACKED_LARGE_F32, [128; 2], 256),
            });
        }
        Algorithm::Tensor(tile) => tile,
        _ => return None,
    };
    let shape = tile.shape();
    Some((
        tensor::kernels(tile, dtype).moments,
        [shape.rows, shape.columns],
        shape.threads,
    ))
}

/// The groups of `blocks` of rows, if there are tickets for them and `columns` tiles of columns.
pub(super) fn moment_groups(blocks: u64, columns: u64) -> Option<u64> {
    let groups = blocks.div_ceil(MOMENT_BLOCKS);
    ((groups + 1).saturating_mul(columns) <= MOMENT_TICKETS).then_some(groups)
}

impl Cuda {
    /// The convolution and its moments; those of a variant without them are taken of its result.
    pub(super) fn forward_moments(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        [x, w]: [&CudaBuffer; 2],
        y: &mut CudaBuffer,
        moments: &mut CudaBuffer,
    ) -> Result<()> {
        if algorithm == Algorithm::Padded {
            let q = padded(p, x.dtype());
            let (x, w) = (self.padded_input(p, &q, x)?, self.padded_weight(p, &q, w)?);
            let tile = tensor_tile(Pass::Forward, &q, x.dtype(), self.processors());
            return self.forward_moments(Algorithm::Tensor(tile), &q, [&x, &w], y, moments);
        }
        let size = product(Pass::Forward, p);
        if let Some((kernel, tile, threads)) = tiles(algorithm, p, x.dtype()) {
            let (rows, columns) = (size.rows.div_ceil(tile[0]), size.columns.div_ceil(tile[1]));
            if let Some(groups) = moment_groups(rows, columns * size.parts) {
                let sets = (rows + groups) * 2 * u64::from(p.out_channels);
                let mut partial = self.scratch(DType::F32, sets as usize)?;
                let geometry = Geometry {
                    shared: algorithm.dynamic_shared(),
                    ..geometry(rows, columns, size.parts, threads)
                };
                let args = [Arg::value(p), x.arg(), w.arg(), y.out(), partial.out(), moments.out()];
                return self.launch(kernel, geometry, &args);
            }
        }
        if let Algorithm::Winograd(tile) = algorithm {
            let (blocks, columns) = winograd::ending_blocks(p, p.window.output, p.out_channels);
            if let Some(groups) = moment_groups(blocks, columns) {
                let sets = (blocks + groups) * (2 * u64::from(p.out_channels) + columns);
                let mut partial = self.scratch(DType::F32, sets as usize)?;
                let to = [partial.out(), moments.out()];
                let ends = winograd::Ends::Moments { blocks, to: &to };
                return self.winograd_by(Pass::Forward, tile, p, [x, w], y, ends);
            }
        }
        self.forward(algorithm, p, x, w, None, y)?;
        self.channel_moments(u64::from(p.out_channels), y, moments)
    }
}
