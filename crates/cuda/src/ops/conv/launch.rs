//! The launches of each variant of a convolution.

use super::algorithm::{Algorithm, Pass, Tile};
use super::choose::{FEW_THREADS, GRID_YZ, SPLIT_POSITIONS, SPLIT_SCRATCH, fours, product, tensor_parts};
use super::tensor;
use crate::buffer::maybe;
use crate::launch::{THREADS, linear};
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::ConvParams;
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{
    Kernel, PerFloat, conv, conv_depthwise as depthwise, conv_few as few, conv_pool, conv_shallow as shallow,
};
use kiln_kernels::{conv_tiled_bf16, conv_tiled_f16, conv_tiled_f32};

/// Blocks per multiprocessor of kernels that stride over their elements.
pub(super) const WAVES: u32 = 32;
/// A weight gradient that is not on tensor cores is split until every multiprocessor has this many blocks.
const SPLIT_BLOCKS: u64 = 4;

pub(super) fn geometry(x: u64, y: u64, z: u64, threads: u32) -> Geometry {
    Geometry {
        grid: [x as u32, y as u32, z as u32],
        block: [threads, 1, 1],
        shared: 0,
    }
}

/// The one of three kernels, named by their paths, that is the instance for `$dtype`.
macro_rules! by_dtype {
    ($dtype:expr, $f32:path, $bf16:path, $f16:path) => {
        match $dtype {
            DType::BF16 => &$bf16,
            DType::F16 => &$f16,
            _ => &$f32,
        }
    };
}

/// The kernel of a tiled product.
fn tiled(pass: Pass, tile: Tile, packed: bool, dtype: DType) -> &'static Kernel {
    use {conv_tiled_bf16 as b, conv_tiled_f16 as h, conv_tiled_f32 as f};
    match (pass, tile, packed) {
        (Pass::Forward, Tile::Large, _) => &f::CONV_TILED_PACKED_LARGE_F32,
        (Pass::DataGrad, Tile::Large, _) => &f::CONV_TILED_DATA_GRAD_PACKED_LARGE_F32,
        (Pass::WeightGrad, Tile::Large, _) => &f::CONV_TILED_WEIGHT_PARTS_PACKED_LARGE_F32,
        (Pass::Forward, Tile::Small, true) => by_dtype!(
            dtype,
            f::CONV_TILED_PACKED_F32,
            b::CONV_TILED_PACKED_BF16,
            h::CONV_TILED_PACKED_F16
        ),
        (Pass::DataGrad, Tile::Small, true) => by_dtype!(
            dtype,
            f::CONV_TILED_DATA_GRAD_PACKED_F32,
            b::CONV_TILED_DATA_GRAD_PACKED_BF16,
            h::CONV_TILED_DATA_GRAD_PACKED_F16
        ),
        (Pass::WeightGrad, Tile::Small, true) => by_dtype!(
            dtype,
            f::CONV_TILED_WEIGHT_PARTS_PACKED_F32,
            b::CONV_TILED_WEIGHT_PARTS_PACKED_BF16,
            h::CONV_TILED_WEIGHT_PARTS_PACKED_F16
        ),
        (Pass::Forward, Tile::Small, false) => {
            by_dtype!(dtype, f::CONV_TILED_F32, b::CONV_TILED_BF16, h::CONV_TILED_F16)
        }
        (Pass::DataGrad, Tile::Small, false) => by_dtype!(
            dtype,
            f::CONV_TILED_DATA_GRAD_F32,
            b::CONV_TILED_DATA_GRAD_BF16,
            h::CONV_TILED_DATA_GRAD_F16
        ),
        (Pass::WeightGrad, Tile::Small, false) => by_dtype!(
            dtype,
            f::CONV_TILED_WEIGHT_PARTS_F32,
            b::CONV_TILED_WEIGHT_PARTS_BF16,
            h::CONV_TILED_WEIGHT_PARTS_F16
        ),
    }
}

/// The kernel of a variant that multiplies tiles, the rows and columns of a tile, and the threads of a block.
pub(super) fn tiles(
    algorithm: Algorithm,
    pass: Pass,
    p: &ConvParams,
    dtype: DType,
) -> Option<(&'static Kernel, [u64; 2], u32)> {
    match algorithm {
        Algorithm::Tiled(Tile::Small) => Some((tiled(pass, Tile::Small, fours(p), dtype), [64; 2], 256)),
        Algorithm::Tiled(Tile::Large) => Some((tiled(pass, Tile::Large, true, dtype), [128; 2], 256)),
        Algorithm::Tensor(tile) => {
            let shape = tile.shape();
            Some((
                tensor::kernels(tile, dtype).of(pass),
                [shape.rows, shape.columns],
                shape.threads,
            ))
        }
        _ => None,
    }
}

/// One of two instances of the depthwise kernels, and the channels of a block.
fn depthwise_lanes(
    p: &ConvParams,
    dtype: DType,
    single: &'static PerFloat,
    packed: &'static PerFloat,
) -> (&'static Kernel, u64) {
    let pairs = p.in_channels == p.out_channels && p.in_channels.is_multiple_of(2);
    match pairs {
        true => (instance(packed, dtype), 64),
        false => (instance(single, dtype), 32),
    }
}

/// The gradient `db` of a bias: the sums of the columns of `g`, which counts as zero where `y`, the result of a ReLU, is not positive.
pub(in crate::ops) struct BiasGrad<'a> {
    pub(in crate::ops) g: &'a CudaBuffer,
    pub(in crate::ops) y: Option<&'a CudaBuffer>,
    pub(in crate::ops) db: &'a mut CudaBuffer,
}

impl BiasGrad<'_> {
    fn positions(&self) -> u64 {
        (self.g.len() / self.db.len().max(1)) as u64
    }
}

impl Cuda {
    pub(super) fn forward(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        let (len, dtype) = (y.len() as u64, x.dtype());
        let args = [Arg::value(p), x.arg(), w.arg(), maybe(bias), y.out()];
        if len == 0 {
            return Ok(());
        }
        let size = product(Pass::Forward, p);
        if let Some((kernel, tile, threads)) = tiles(algorithm, Pass::Forward, p, dtype) {
            let (rows, columns) = (size.rows.div_ceil(tile[0]), size.columns.div_ceil(tile[1]));
            let geometry = Geometry {
                shared: algorithm.dynamic_shared(),
                ..geometry(rows, columns, size.parts, threads)
            };
            return self.launch(kernel, geometry, &args);
        }
        match algorithm {
            Algorithm::Padded => self.padded_forward(p, x, w, bias, y),
            Algorithm::Winograd(tile) => self.winograd(Pass::Forward, tile, p, x, w, bias, y),
            Algorithm::Shallow => {
                let outputs = u64::from(p.out_channels).div_ceil(16);
                let grid = geometry(size.rows.div_ceil(256), outputs, 1, 128);
                self.launch(instance(&shallow::CONV_SHALLOW, dtype), grid, &args)
            }
            Algorithm::Depthwise => {
                let (kernel, channels) =
                    depthwise_lanes(p, dtype, &depthwise::CONV_DEPTHWISE, &depthwise::CONV_DEPTHWISE_PACKED);
                let outputs = u64::from(p.out_channels).div_ceil(channels);
                self.launch(kernel, geometry(size.rows.div_ceil(32), outputs, 1, 256), &args)
            }
            _ => self.launch(instance(&conv::CONV_NAIVE, dtype), self.elements(len), &args),
        }
    }

    pub(super) fn data_grad(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        g: &CudaBuffer,
        w: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        let (len, dtype) = (dx.len() as u64, g.dtype());
        let args = [Arg::value(p), g.arg(), w.arg(), dx.out()];
        if len == 0 {
            return Ok(());
        }
        let size = product(Pass::DataGrad, p);
        if let Some((kernel, tile, threads)) = tiles(algorithm, Pass::DataGrad, p, dtype) {
            let (rows, columns) = (size.rows.div_ceil(tile[0]), size.columns.div_ceil(tile[1]));
            let geometry = Geometry {
                shared: algorithm.dynamic_shared(),
                ..geometry(rows, columns, size.parts, threads)
            };
            return self.launch(kernel, geometry, &args);
        }
        let positions = len / u64::from(p.in_channels);
        match algorithm {
            Algorithm::Winograd(tile) => self.winograd(Pass::DataGrad, tile, p, g, w, None, dx),
            Algorithm::Shallow => {
                let kernel = instance(&shallow::CONV_SHALLOW_DATA_GRAD, dtype);
                self.launch(kernel, geometry(positions.div_ceil(128), 1, 1, 128), &args)
            }
            Algorithm::Few => {
                let image = (len / u64::from(p.batch)).div_ceil(FEW_THREADS);
                let grid = geometry(u64::from(p.batch) * image, 1, 1, FEW_THREADS as u32);
                self.launch(instance(&few::CONV_FEW_DATA_GRAD, dtype), grid, &args)
            }
            Algorithm::Depthwise => {
                let (kernel, channels) = depthwise_lanes(
                    p,
                    dtype,
                    &depthwise::CONV_DEPTHWISE_DATA_GRAD,
                    &depthwise::CONV_DEPTHWISE_DATA_GRAD_PACKED,
                );
                let inputs = u64::from(p.in_channels).div_ceil(channels);
                let blocks = positions.div_ceil(8).min(u64::from(self.multiprocessors() * WAVES));
                self.launch(kernel, geometry(blocks, inputs, 1, 256), &args)
            }
            _ => self.launch(instance(&conv::CONV_NAIVE_DATA_GRAD, dtype), self.elements(len), &args),
        }
    }

    pub(super) fn weight_grad(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        g: &CudaBuffer,
        x: &CudaBuffer,
        dw: &mut CudaBuffer,
        bias: Option<BiasGrad<'_>>,
    ) -> Result<()> {
        let (len, dtype) = (dw.len() as u64, g.dtype());
        if len == 0 {
            return bias.map_or(Ok(()), |bias| self.bias_grad(bias));
        }
        if algorithm == Algorithm::Padded {
            self.padded_weight_grad(p, g, x, dw)?;
            return bias.map_or(Ok(()), |bias| self.bias_grad(bias));
        }
        let size = product(Pass::WeightGrad, p);
        let outputs = u64::from(p.out_channels);
        // The kernel, its threads, and its grid for one split: the splits go to y or z.
        let (kernel, threads, mut grid, along) =
            if let Some((kernel, tile, threads)) = tiles(algorithm, Pass::WeightGrad, p, dtype) {
                let grid = [size.columns.div_ceil(tile[1]), size.rows.div_ceil(tile[0]), size.parts];
                (kernel, threads, grid, 2)
            } else if algorithm == Algorithm::Shallow {
                let kernel = instance(&shallow::CONV_SHALLOW_WEIGHT_PARTS, dtype);
                (kernel, 256, [outputs.div_ceil(32), 1, 1], 1)
            } else if algorithm == Algorithm::Depthwise {
                let (single, packed) = (
                    &depthwise::CONV_DEPTHWISE_WEIGHT_PARTS,
                    &depthwise::CONV_DEPTHWISE_WEIGHT_PARTS_PACKED,
                );
                let (kernel, channels) = depthwise_lanes(p, dtype, single, packed);
                (kernel, 256, [outputs.div_ceil(channels), p.window.taps() as u64, 1], 2)
            } else {
                let args = [Arg::value(p), g.arg(), x.arg(), dw.out()];
                self.launch(
                    instance(&conv::CONV_NAIVE_WEIGHT_GRAD, dtype),
                    self.elements(len),
                    &args,
                )?;
                return bias.map_or(Ok(()), |bias| self.bias_grad(bias));
            };
        let splits = match algorithm {
            Algorithm::Tensor(tile) => tensor_parts(tile, Pass::WeightGrad, p, dtype, self.processors()).0,
            _ => self.splits(p, grid, grid[along], len),
        };
        let mut scratch = match splits == 1 && dtype == DType::F32 {
            true => None,
            false => Some(self.scratch(DType::F32, (splits * len) as usize)?),
        };
        let groups: u64 = grid.iter().product();
        grid[along] *= splits;
        let count = splits as u32;
        let shared = algorithm.dynamic_shared();
        let sharers = match scratch {
            None => 0,
            Some(_) => {
                let geometry = Geometry {
                    shared,
                    ..geometry(grid[0], grid[1], grid[2], threads)
                };
                self.sharers(kernel, geometry, groups, splits)?
            }
        };
        let done = sharers > 0 || scratch.is_none();
        let (parts, end) = match &mut scratch {
            None => (dw.out(), maybe(None)),
            Some(parts) => (parts.out(), dw.out()),
        };
        let mut args = vec![
            Arg::value(p),
            g.arg(),
            x.arg(),
            parts,
            Arg::value(&count),
            end,
            Arg::value(&sharers),
        ];
        let (tiles, everything) = (grid[0] as u32, [0u32; 4]);
        let positions = bias.as_ref().map_or(0, BiasGrad::positions);
        let mut bias = bias;
        if matches!(algorithm, Algorithm::Tiled(_) | Algorithm::Shallow) {
            // More blocks have the gradient of the bias, one for each channel.
            match bias.take_if(|_| done) {
                Some(bias) => {
                    grid[0] += outputs.div_ceil(grid[1] * grid[2]);
                    args.extend([bias.g.arg(), maybe(bias.y), bias.db.out()]);
                }
                None => args.extend([maybe(None), maybe(None), maybe(None)]),
            }
            args.extend([Arg::value(&positions), Arg::value(&tiles)]);
        } else if let Algorithm::Tensor(_) = algorithm {
            args.push(Arg::value(&everything));
        }
        let geometry = Geometry {
            shared,
            ..geometry(grid[0], grid[1], grid[2], threads)
        };
        self.launch(kernel, geometry, &args)?;
        match (scratch.filter(|_| !done), bias) {
            (None, None) => Ok(()),
            (None, Some(bias)) => self.bias_grad(bias),
            (Some(parts), None) => {
                let args = [Arg::value(&len), Arg::value(&count), parts.arg(), dw.out()];
                self.launch(instance(&conv::CONV_SUM_PARTS, dtype), self.elements(len), &args)
            }
            (Some(parts), Some(bias)) => {
                let parts = (len, count, parts.arg(), dw.out());
                self.sum_and_bias(self.elements(len).grid[0], parts, bias)
            }
        }
    }

    /// The gradient of a bias by itself.
    pub(in crate::ops) fn bias_grad(&self, bias: BiasGrad<'_>) -> Result<()> {
        self.sum_and_bias(0, (0, 0, maybe(None), maybe(None)), bias)
    }

    /// The sum of the `count` parts of a weight gradient of `len` elements by `blocks` blocks, and the gradient of a bias.
    fn sum_and_bias(
        &self,
        blocks: u32,
        (len, count, parts, dw): (u64, u32, Arg<'_>, Arg<'_>),
        bias: BiasGrad<'_>,
    ) -> Result<()> {
        let channels = bias.db.len() as u32;
        let positions = bias.positions();
        let kernel = instance(&conv_pool::CONV_POOL_SUM, bias.g.dtype());
        let args = [
            Arg::value(&len),
            Arg::value(&count),
            parts,
            dw,
            Arg::value(&positions),
            Arg::value(&channels),
            bias.g.arg(),
            maybe(bias.y),
            bias.db.out(),
            Arg::value(&blocks),
        ];
        self.launch(kernel, geometry(u64::from(blocks + channels), 1, 1, 256), &args)
    }

    /// The number of parts into which the positions of a weight gradient are split.
    fn splits(&self, p: &ConvParams, grid: [u64; 3], along: u64, len: u64) -> u64 {
        let positions = product(Pass::Forward, p).rows;
        let blocks: u64 = grid.iter().product();
        let wanted = (u64::from(self.multiprocessors()) * SPLIT_BLOCKS).div_ceil(blocks);
        let most = (positions / SPLIT_POSITIONS)
            .min(SPLIT_SCRATCH / len)
            .min(GRID_YZ / along);
        wanted.min(most).max(1)
    }

    /// A grid over the elements of a result.
    fn elements(&self, len: u64) -> Geometry {
        linear(len, THREADS, self.multiprocessors() * WAVES)
    }
}
