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
        let images = u64::from(p.batch) * u64::from(p.window.input[0]);
        let total = images * u64::from(size[1].div_ceil(2)) * u64::from(size[2].div_ceil(2));
        let turn = (SCRATCH / (POINTS * (inner + outer))).clamp(128, 1 << 30).min(total);
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
            let args = [
                Arg::value(p),
                source.arg(),
                w.arg(),
                sums.arg(),
                maybe(bias),
                to.out(),
                Arg::value(&first),
                Arg::value(&tiles),
            ];
            self.launch(result, threads(n * outer / 4, 128), &args)?;
            first += n;
        }
        Ok(())
    }
}
