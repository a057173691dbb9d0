//! The launches of Winograd's convolution: the weight once, then as many tiles at a time as fit the scratch memory.

use super::algorithm::{Pass, Tile};
use super::launch::{WAVES, geometry};
use crate::buffer::maybe;
use crate::launch::{THREADS, linear};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::ConvParams;
use kiln_core::{DType, Result};
use kiln_device::Arg;
use kiln_kernels::{Kernel, conv_winograd as kernels};

/// Elements of scratch for the transformed source and result of one turn (128 MiB).
const SCRATCH: u64 = 1 << 25;
/// Points of a transformed tile.
const POINTS: u64 = 16;
/// Tiles and channels of a block that writes results with moments or sums (`conv_winograd.cu`).
const MOMENT_TILES: u64 = 16;
const MOMENT_COLUMNS: u64 = 64;

/// The kernels of one pass.
struct Kernels {
    weight: &'static Kernel,
    source: &'static Kernel,
    product: &'static Kernel,
    result: &'static Kernel,
}

fn kernels(pass: Pass, tile: Tile) -> Kernels {
    match pass {
        Pass::DataGrad => Kernels {
            weight: &kernels::CONV_WINOGRAD_WEIGHT_DATA_GRAD_F32,
            source: &kernels::CONV_WINOGRAD_SOURCE_DATA_GRAD_F32,
            product: match tile {
                Tile::Small => &kernels::CONV_WINOGRAD_PRODUCT_DATA_GRAD_F32,
                Tile::Large => &kernels::CONV_WINOGRAD_PRODUCT_LARGE_DATA_GRAD_F32,
            },
            result: &kernels::CONV_WINOGRAD_RESULT_DATA_GRAD_F32,
        },
        _ => Kernels {
            weight: &kernels::CONV_WINOGRAD_WEIGHT_F32,
            source: &kernels::CONV_WINOGRAD_SOURCE_F32,
            product: match tile {
                Tile::Small => &kernels::CONV_WINOGRAD_PRODUCT_F32,
                Tile::Large => &kernels::CONV_WINOGRAD_PRODUCT_LARGE_F32,
            },
            result: &kernels::CONV_WINOGRAD_RESULT_F32,
        },
    }
}

/// Further work of the last kernel, which writes the results.
pub(super) enum Ends<'a> {
    /// A bias is added and the activation applied.
    Bias(Option<&'a CudaBuffer>),
    /// Their moments, by so many blocks of tiles, with the kernel's last arguments.
    Moments { blocks: u64, to: &'a [Arg<'a>] },
    /// The sums over the data gradient for the gradient of the batch norm before, by so many blocks of tiles, with the kernel's last arguments.
    Norm { blocks: u64, norm: &'a [Arg<'a>] },
}

/// Tiles of a result of `size` of all images.
fn all_tiles(p: &ConvParams, size: [u32; 3]) -> u64 {
    let images = u64::from(p.batch) * u64::from(p.window.input[0]);
    images * u64::from(size[1].div_ceil(2)) * u64::from(size[2].div_ceil(2))
}

/// The blocks of tiles, and of channels, of a result of `size` whose last kernel takes moments or sums.
pub(super) fn ending_blocks(p: &ConvParams, size: [u32; 3], channels: u32) -> (u64, u64) {
    (
        all_tiles(p, size).div_ceil(MOMENT_TILES),
        u64::from(channels).div_ceil(MOMENT_COLUMNS),
    )
}

impl Cuda {
    /// Forward, or the data gradient: `source` is x or g, `to` is y or dx.
    pub(super) fn winograd(
        &self,
        pass: Pass,
        tile: Tile,
        p: &ConvParams,
        source: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        to: &mut CudaBuffer,
    ) -> Result<()> {
        self.winograd_by(pass, tile, p, [source, w], to, Ends::Bias(bias))
    }

    /// The same, with what the last kernel makes of the results.
    pub(super) fn winograd_by(
        &self,
        pass: Pass,
        tile: Tile,
        p: &ConvParams,
        [source, w]: [&CudaBuffer; 2],
        to: &mut CudaBuffer,
        ends: Ends<'_>,
    ) -> Result<()> {
        let Kernels {
            weight,
            source: spread,
            product,
            result,
        } = kernels(pass, tile);
        let (inner, outer, size) = match pass {
            Pass::DataGrad => (p.out_channels, p.in_channels, p.window.input),
            _ => (p.in_channels, p.out_channels, p.window.output),
        };
        let (inner, outer) = (u64::from(inner), u64::from(outer));
        let total = all_tiles(p, size);
        let turn = (SCRATCH / (POINTS * (inner + outer))).clamp(128, 1 << 30);
        let turn = (turn - turn % MOMENT_TILES).min(total);
        let threads = |n: u64, block| linear(n, block, self.multiprocessors() * WAVES);

        let mut u = self.scratch(DType::F32, (POINTS * inner * outer) as usize)?;
        let args = [Arg::value(p), w.arg(), u.out()];
        self.launch(weight, threads(inner * outer / 4, THREADS), &args)?;
        let mut v = self.scratch(DType::F32, (POINTS * turn * inner) as usize)?;
        let mut sums = self.scratch(DType::F32, (POINTS * turn * outer) as usize)?;
        let edge = match tile {
            Tile::Small => 64,
            Tile::Large => 128,
        };
        let mut first = 0;
        while first < total {
            let tiles = turn.min(total - first) as u32;
            let n = u64::from(tiles);
            let args = [
                Arg::value(p),
                source.arg(),
                v.out(),
                Arg::value(&first),
                Arg::value(&tiles),
            ];
            self.launch(spread, threads(n * inner / 4, 128), &args)?;
            let args = [Arg::value(p), v.arg(), u.arg(), sums.out(), Arg::value(&tiles)];
            let grid = geometry(n.div_ceil(edge), outer.div_ceil(edge), POINTS, 256);
            self.launch(product, grid, &args)?;
            let operands = [Arg::value(p), source.arg(), w.arg(), sums.arg()];
            let place = [Arg::value(&first), Arg::value(&tiles)];
            let (kernel, blocks, last) = match ends {
                Ends::Bias(bias) => {
                    let args = [&operands[..], &[maybe(bias), to.out()], &place].concat();
                    self.launch(result, threads(n * outer / 4, 128), &args)?;
                    first += n;
                    continue;
                }
                Ends::Moments { blocks, to } => (&kernels::CONV_WINOGRAD_RESULT_MOMENTS_F32, blocks as u32, to),
                Ends::Norm { blocks, norm } => (&kernels::CONV_WINOGRAD_RESULT_NORM_DATA_GRAD_F32, blocks as u32, norm),
            };
            let args = [&operands[..], &[to.out()], &place, &[Arg::value(&blocks)], last].concat();
            let grid = geometry(n.div_ceil(MOMENT_TILES), outer.div_ceil(MOMENT_COLUMNS), 1, 128);
            self.launch(kernel, grid, &args)?;
            first += n;
        }
        Ok(())
    }
}
