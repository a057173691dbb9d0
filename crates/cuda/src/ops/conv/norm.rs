//! Data gradients that also give the sums of the batch norm that made the input, where they multiply tiles in the same kernel.

use super::algorithm::{Algorithm, Pass, Tile};
use super::choose::{fours, product};
use super::launch::geometry;
use super::moments::moment_groups;
use super::{tensor, winograd};
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{BatchNormInputs, ConvNormGrads, ConvParams, NormOps};
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, conv_tiled_f32 as t};

/// The kernel of a variant that multiplies tiles and has one with sums, the rows and columns of a tile, and the threads of a block; on tensor
/// cores, with `again`, the one that also writes the norm's result.
fn tiles(algorithm: Algorithm, p: &ConvParams, again: bool, dtype: DType) -> Option<(&'static Kernel, [u64; 2], u32)> {
    let tile = match algorithm {
        Algorithm::Tiled(tile) if fours(p) && dtype == DType::F32 => {
            return Some(match tile {
                Tile::Small => (&t::CONV_TILED_NORM_DATA_GRAD_PACKED_F32, [64; 2], 256),
                Tile::Large => (&t::CONV_TILED_NORM_DATA_GRAD_PACKED_LARGE_F32, [128; 2], 256),
            });
        }
        Algorithm::Tensor(tile) => tile,
        _ => return None,
    };
    let kernels = tensor::kernels(tile, dtype);
    let kernel = if again { kernels.norm_again } else { kernels.norm };
    let shape = tile.shape();
    Some((kernel, [shape.rows, shape.columns], shape.threads))
}

/// The kernel that adds up the sums.
enum Sums {
    /// This kernel, launched so.
    Kernel(&'static Kernel, Geometry),
    /// The last kernel of Winograd's convolution, in so many blocks of tiles.
    Winograd(Tile, u64),
}

/// The kernel that adds up the sums of the data gradient of `p`, and how many sets of sums there are for a channel: of the blocks that are joined, and of
/// their groups; `again` if the norm's result is to be written. `None` for a variant without sums in its kernel, and where there are more groups than tickets.
fn sums_by(algorithm: Algorithm, p: &ConvParams, again: bool, dtype: DType) -> Option<(Sums, u64)> {
    if let Algorithm::Winograd(tile) = algorithm {
        let (blocks, columns) = winograd::ending_blocks(p, p.window.input, p.in_channels);
        let groups = moment_groups(blocks, columns)?;
        return Some((Sums::Winograd(tile, blocks), blocks + groups));
    }
    let (kernel, tile, threads) = tiles(algorithm, p, again, dtype)?;
    let (size, of_groups) = (product(Pass::DataGrad, p), u64::from(p.groups));
    let (rows, columns) = (size.rows.div_ceil(tile[0]), size.columns.div_ceil(tile[1]));
    let blocks = rows.saturating_mul(size.parts / of_groups);
    let groups = moment_groups(blocks, columns * of_groups)?;
    let geometry = Geometry {
        shared: algorithm.dynamic_shared(),
        ..geometry(rows, columns, size.parts, threads)
    };
    Some((Sums::Kernel(kernel, geometry), blocks + groups))
}

impl Cuda {
    /// True if the kernel of this variant sums.
    pub(super) fn sums_for_norm(&self, algorithm: Algorithm, p: &ConvParams, dtype: DType) -> bool {
        sums_by(algorithm, p, false, dtype).is_some()
    }

    /// The data gradient with the sums of the norm that made the input; those of a variant without them are taken of its result.
    pub(super) fn norm_data_grad(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        [g, w]: [&CudaBuffer; 2],
        of: &BatchNormInputs<'_, CudaBuffer>,
        more: Option<&CudaBuffer>,
        to: ConvNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        let dtype = g.dtype();
        let Some((by, sets)) = sums_by(algorithm, p, to.y.is_some(), dtype) else {
            let mut dx = self.scratch(dtype, to.d.len())?;
            self.data_grad(algorithm, p, g, w, &mut dx)?;
            self.batch_norm_grad_sums(&p.norm_of_input(), of, (&dx, more), to.d, [to.dscale, to.dshift])?;
            return match to.y {
                Some(y) => {
                    self.batch_norm_apply(&p.norm_of_input(), of.x, None, of.scale, of.shift, of.mean, of.rstd, y)
                }
                None => Ok(()),
            };
        };
        let mut partial = self.scratch(DType::F32, (sets * 2 * u64::from(p.in_channels)) as usize)?;
        let wide = u32::from(of.scale.or(of.shift).is_some_and(|b| b.dtype() == DType::F32));
        // Only kernels on tensor cores write the norm's result.
        let (y, apart) = match (to.y, algorithm) {
            (Some(y), Algorithm::Tensor(_)) => (y.out(), None),
            (apart, _) => (maybe(of.y), apart),
        };
        let norm = [
            of.x.arg(),
            maybe(more),
            y,
            of.mean.arg(),
            of.rstd.arg(),
            maybe(of.scale),
            maybe(of.shift),
            Arg::value(&wide),
            partial.out(),
            to.dscale.out(),
            to.dshift.out(),
        ];
        match by {
            Sums::Kernel(kernel, geometry) => {
                let args = [&[Arg::value(p), g.arg(), w.arg(), to.d.out()], &norm[..]].concat();
                self.launch(kernel, geometry, &args)?;
            }
            Sums::Winograd(tile, blocks) => {
                let ends = winograd::Ends::Norm { blocks, norm: &norm };
                self.winograd_by(Pass::DataGrad, tile, p, [g, w], to.d, ends)?;
            }
        }
        match apart {
            Some(y) => self.batch_norm_apply(&p.norm_of_input(), of.x, None, of.scale, of.shift, of.mean, of.rstd, y),
            None => Ok(()),
        }
    }
}
