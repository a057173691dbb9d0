//! Data gradients that also give the sums of the batch norm that made the input, on tensor cores in the same kernel.

use super::algorithm::{Algorithm, Pass, TensorTile};
use super::choose::product;
use super::launch::{by_dtype, geometry};
use super::moments::{MOMENT_BLOCKS, MOMENT_TICKETS};
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{BatchNormInputs, ConvNormGrads, ConvParams};
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, conv_tensor_bf16 as b, conv_tensor_f16 as h, conv_tensor_f32 as f};

#[rustfmt::skip]
fn kernel(tile: TensorTile, dtype: DType) -> &'static Kernel {
    match tile {
        TensorTile::T64x64 => by_dtype!(dtype, f::CONV_TENSOR_NORM_DATA_GRAD_64X64_F32, b::CONV_TENSOR_NORM_DATA_GRAD_64X64_BF16, h::CONV_TENSOR_NORM_DATA_GRAD_64X64_F16),
        TensorTile::T128x64 => by_dtype!(dtype, f::CONV_TENSOR_NORM_DATA_GRAD_128X64_F32, b::CONV_TENSOR_NORM_DATA_GRAD_128X64_BF16, h::CONV_TENSOR_NORM_DATA_GRAD_128X64_F16),
        TensorTile::T128x128 => by_dtype!(dtype, f::CONV_TENSOR_NORM_DATA_GRAD_128X128_F32, b::CONV_TENSOR_NORM_DATA_GRAD_128X128_BF16, h::CONV_TENSOR_NORM_DATA_GRAD_128X128_F16),
        TensorTile::T128x256 => by_dtype!(dtype, f::CONV_TENSOR_NORM_DATA_GRAD_128X256_F32, b::CONV_TENSOR_NORM_DATA_GRAD_128X256_BF16, h::CONV_TENSOR_NORM_DATA_GRAD_128X256_F16),
    }
}

/// How blocks cover the data gradient of `p`: the launch, the blocks whose sums are joined for a channel, and their groups. `None` for a
/// variant without sums in its kernel, and where there are more groups than tickets.
fn sums_by(algorithm: Algorithm, p: &ConvParams) -> Option<(TensorTile, Geometry, u64)> {
    let Algorithm::Tensor(tile) = algorithm else {
        return None;
    };
    let (size, shape, of_groups) = (product(Pass::DataGrad, p), tile.shape(), u64::from(p.groups));
    let (rows, columns) = (size.rows.div_ceil(shape.rows), size.columns.div_ceil(shape.columns));
    let blocks = rows.saturating_mul(size.parts / of_groups);
    let groups = blocks.div_ceil(MOMENT_BLOCKS);
    let tickets = (groups + 1).saturating_mul(columns * of_groups);
    let geometry = Geometry {
        shared: tile.dynamic_shared(),
        ..geometry(rows, columns, size.parts, shape.threads)
    };
    (tickets <= MOMENT_TICKETS).then_some((tile, geometry, blocks + groups))
}

impl Cuda {
    /// True if the kernel of this variant sums.
    pub(super) fn sums_for_norm(&self, algorithm: Algorithm, p: &ConvParams) -> bool {
        sums_by(algorithm, p).is_some()
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
        let Some((tile, geometry, sets)) = sums_by(algorithm, p) else {
            let mut dx = self.scratch(dtype, to.d.len())?;
            self.data_grad(algorithm, p, g, w, &mut dx)?;
            return self.batch_norm_grad_sums(&p.norm_of_input(), of, (&dx, more), to.d, [to.dscale, to.dshift]);
        };
        let mut partial = self.scratch(DType::F32, (sets * 2 * u64::from(p.in_channels)) as usize)?;
        let wide = u32::from(of.scale.or(of.shift).is_some_and(|b| b.dtype() == DType::F32));
        let args = [
            Arg::value(p),
            g.arg(),
            w.arg(),
            to.d.out(),
            of.x.arg(),
            maybe(more),
            maybe(of.y),
            of.mean.arg(),
            of.rstd.arg(),
            maybe(of.scale),
            maybe(of.shift),
            Arg::value(&wide),
            partial.out(),
            to.dscale.out(),
            to.dshift.out(),
        ];
        self.launch(kernel(tile, dtype), geometry, &args)
    }
}
