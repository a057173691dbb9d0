//! Convolutions that also give the moments of their channels, on tensor cores in the same kernel.

use super::algorithm::{Algorithm, Pass, TensorTile};
use super::choose::{padded, product, tensor_tile};
use super::launch::{by_dtype, geometry};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::ConvParams;
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, conv_tensor_bf16 as b, conv_tensor_f16 as h, conv_tensor_f32 as f};

/// Blocks of rows whose moments one of them joins (`conv_moments.cuh`).
pub(super) const MOMENT_BLOCKS: u64 = 64;
/// The most groups of blocks, with one for each tile of columns besides (`conv_moments.cuh`).
pub(super) const MOMENT_TICKETS: u64 = 16384;

#[rustfmt::skip]
fn kernel(tile: TensorTile, dtype: DType) -> &'static Kernel {
    match tile {
        TensorTile::T64x64 => by_dtype!(dtype, f::CONV_TENSOR_MOMENTS_64X64_F32, b::CONV_TENSOR_MOMENTS_64X64_BF16, h::CONV_TENSOR_MOMENTS_64X64_F16),
        TensorTile::T128x64 => by_dtype!(dtype, f::CONV_TENSOR_MOMENTS_128X64_F32, b::CONV_TENSOR_MOMENTS_128X64_BF16, h::CONV_TENSOR_MOMENTS_128X64_F16),
        TensorTile::T128x128 => by_dtype!(dtype, f::CONV_TENSOR_MOMENTS_128X128_F32, b::CONV_TENSOR_MOMENTS_128X128_BF16, h::CONV_TENSOR_MOMENTS_128X128_F16),
        TensorTile::T128x256 => by_dtype!(dtype, f::CONV_TENSOR_MOMENTS_128X256_F32, b::CONV_TENSOR_MOMENTS_128X256_BF16, h::CONV_TENSOR_MOMENTS_128X256_F16),
    }
}

impl Cuda {
    /// The convolution and its moments; those of a variant without tensor cores are taken of its result.
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
            let tile = tensor_tile(Pass::Forward, &q, x.dtype(), self.multiprocessors());
            return self.forward_moments(Algorithm::Tensor(tile), &q, [&x, &w], y, moments);
        }
        let size = product(Pass::Forward, p);
        if let Algorithm::Tensor(tile) = algorithm {
            let shape = tile.shape();
            let (rows, columns) = (size.rows.div_ceil(shape.rows), size.columns.div_ceil(shape.columns));
            let groups = rows.div_ceil(MOMENT_BLOCKS);
            if (groups + 1).saturating_mul(columns * size.parts) <= MOMENT_TICKETS {
                let sets = (rows + groups) * 2 * u64::from(p.out_channels);
                let mut partial = self.scratch(DType::F32, sets as usize)?;
                let geometry = Geometry {
                    shared: tile.dynamic_shared(),
                    ..geometry(rows, columns, size.parts, shape.threads)
                };
                let args = [Arg::value(p), x.arg(), w.arg(), y.out(), partial.out(), moments.out()];
                return self.launch(kernel(tile, x.dtype()), geometry, &args);
            }
        }
        self.forward(algorithm, p, x, w, None, y)?;
        self.channel_moments(u64::from(p.out_channels), y, moments)
    }
}
