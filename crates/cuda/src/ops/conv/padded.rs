//! Convolutions of few input channels on tensor cores: the channels of input and weight are padded to 16 bytes with zeros first.

use super::algorithm::{Algorithm, Pass};
use super::choose::{in_pairs, padded, product, tensor_parts, tensor_tile};
use super::launch::{WAVES, geometry, tiles};
use crate::launch::{THREADS, linear};
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::ConvParams;
use kiln_core::{Buffer, DType, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::conv_pad as kernels;

/// The channels and taps of the padded convolution's weight gradient that are left when the padding is cut off (`Kept` of
/// `conv_parts.cuh`).
fn kept(p: &ConvParams, dtype: DType) -> [u32; 4] {
    let channels = (16 / dtype.size()) as u32;
    match in_pairs(p, dtype) {
        true => {
            let taps = p.window.kernel[2];
            [p.in_channels, channels / 2, taps, taps.next_multiple_of(2)]
        }
        false => [p.in_channels, channels, 1, 1],
    }
}

impl Cuda {
    pub(super) fn padded_forward(
        &self,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        let (q, dtype) = (padded(p, x.dtype()), x.dtype());
        let (x, w) = (self.padded_input(p, &q, x)?, self.padded_weight(p, &q, w)?);
        let tile = tensor_tile(Pass::Forward, &q, dtype, self.processors());
        self.forward(Algorithm::Tensor(tile), &q, &x, &w, bias, y)
    }

    pub(super) fn padded_weight_grad(
        &self,
        p: &ConvParams,
        g: &CudaBuffer,
        x: &CudaBuffer,
        dw: &mut CudaBuffer,
    ) -> Result<()> {
        let (q, dtype) = (padded(p, g.dtype()), g.dtype());
        let x = self.padded_input(p, &q, x)?;
        let tile = tensor_tile(Pass::WeightGrad, &q, dtype, self.processors());
        let (splits, _) = tensor_parts(tile, Pass::WeightGrad, &q, dtype, self.processors());
        let Some((kernel, [rows, columns], threads)) = tiles(Algorithm::Tensor(tile), Pass::WeightGrad, &q, dtype)
        else {
            unreachable!("tensor cores multiply tiles");
        };
        let size = product(Pass::WeightGrad, &q);
        let grid = Geometry {
            shared: Algorithm::Tensor(tile).dynamic_shared(),
            ..geometry(
                size.columns.div_ceil(columns),
                size.rows.div_ceil(rows),
                size.parts * splits,
                threads,
            )
        };
        let mut parts = self.scratch(DType::F32, (splits * size.rows * size.columns) as usize)?;
        let count = splits as u32;
        let groups = u64::from(grid.grid[0]) * u64::from(grid.grid[1]) * size.parts;
        let sharers = self.sharers(kernel, grid, groups, splits)?;
        let kept = kept(p, dtype);
        let args = [
            Arg::value(&q),
            g.arg(),
            x.arg(),
            parts.out(),
            Arg::value(&count),
            dw.out(),
            Arg::value(&sharers),
            Arg::value(&kept),
        ];
        self.launch(kernel, grid, &args)?;
        if sharers > 0 {
            return Ok(());
        }
        let len = size.rows * size.columns;
        let grid = self.strided(len);
        let args = [
            Arg::value(&len),
            Arg::value(&kept),
            Arg::value(&count),
            parts.arg(),
            dw.out(),
        ];
        self.launch(instance(&kernels::CONV_SUM_PADDED, dtype), grid, &args)
    }

    /// The input `x` of `p` as `q`, the padded convolution, reads it.
    pub(super) fn padded_input(&self, p: &ConvParams, q: &ConvParams, x: &CudaBuffer) -> Result<CudaBuffer> {
        match in_pairs(p, x.dtype()) {
            true => self.pad_pairs(p, x, (p.window.input[2], p.window.padding[2]), q.window.input[2]),
            false => self.pad_channels(p, x),
        }
    }

    /// The weight of `p` as `q`, the padded convolution, reads it.
    pub(super) fn padded_weight(&self, p: &ConvParams, q: &ConvParams, w: &CudaBuffer) -> Result<CudaBuffer> {
        match in_pairs(p, w.dtype()) {
            true => self.pad_pairs(p, w, (p.window.kernel[2], 0), q.window.kernel[2]),
            false => self.pad_channels(p, w),
        }
    }

    /// Rows of `width` positions, and `before` of zeros, in pairs.
    fn pad_pairs(
        &self,
        p: &ConvParams,
        from: &CudaBuffer,
        (width, before): (u32, u32),
        pairs: u32,
    ) -> Result<CudaBuffer> {
        let dtype = from.dtype();
        let rows = from.len() as u64 / (u64::from(p.in_channels) * u64::from(width));
        let n = rows * u64::from(pairs);
        let mut to = self.scratch(dtype, n as usize * (16 / dtype.size()))?;
        let args = [
            Arg::value(&rows),
            Arg::value(&p.in_channels),
            Arg::value(&width),
            Arg::value(&before),
            Arg::value(&pairs),
            from.arg(),
            to.out(),
        ];
        self.launch(instance(&kernels::CONV_PAD_PAIRS, dtype), self.strided(n), &args)?;
        Ok(to)
    }

    /// Rows of the convolution's input channels, padded to 16 bytes.
    fn pad_channels(&self, p: &ConvParams, rows_of: &CudaBuffer) -> Result<CudaBuffer> {
        let dtype = rows_of.dtype();
        let rows = rows_of.len() as u64 / u64::from(p.in_channels);
        let mut to = self.scratch(dtype, rows as usize * (16 / dtype.size()))?;
        let args = [Arg::value(&rows), Arg::value(&p.in_channels), rows_of.arg(), to.out()];
        self.launch(instance(&kernels::CONV_PAD_CHANNELS, dtype), self.strided(rows), &args)?;
        Ok(to)
    }

    fn strided(&self, n: u64) -> Geometry {
        linear(n, THREADS, self.multiprocessors() * WAVES)
    }
}
