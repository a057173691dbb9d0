//! The statistics of columns, and norms whose statistics are given.

use super::{Affine, M2, Tiles, columns_of, striding, with_affine};
use crate::buffer::maybe;
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{BatchNormParams, GroupNormParams};
use kiln_core::{Buffer, DType, Result};
use kiln_device::Arg;
use kiln_kernels::{PerFloat, norm as columns};

impl Cuda {
    /// The statistics of `groups` groups: the mean and rstd (with `M2` the sums of squared deviations, behind the means), the running
    /// mean and variance, the number of batches, and the momentum.
    pub(super) fn norm_statistics(
        &self,
        p: &GroupNormParams,
        tiles: &Tiles,
        x: &CudaBuffer,
        groups: u64,
        to: [Arg<'_>; 6],
    ) -> Result<()> {
        let channels = p.groups * p.width;
        let mut partial = self.scratch(DType::F32, (tiles.parts() * 2 * channels) as usize)?;
        let ends = tiles.ends(p);
        let (p, cut, none) = (Arg::value(p), Arg::value(&tiles.cut), maybe(None));
        let kernel = instance(&columns::NORM_MOMENTS, x.dtype());
        let [a, b, c, d, e, f] = if ends {
            to
        } else {
            [none, none, none, none, none, to[5]]
        };
        let args = [p, cut, x.arg(), partial.out(), a, b, c, d, e, f];
        self.launch(kernel, tiles.geometry, &args)?;
        if ends {
            return Ok(());
        }
        let stats = striding(groups, 1, [128, 1, 1]);
        let [a, b, c, d, e, f] = to;
        self.launch(&columns::NORM_STATS, stats, &[p, cut, partial.arg(), a, b, c, d, e, f])
    }

    /// The moments `[2, channels]` of a tensor that is not empty: the mean of each channel, and the sum of squared deviations from it.
    pub(in crate::ops) fn channel_moments(
        &self,
        channels: u64,
        x: &CudaBuffer,
        moments: &mut CudaBuffer,
    ) -> Result<()> {
        let p = GroupNormParams {
            pad: M2,
            ..GroupNormParams::of_channels(x.len() as u64 / channels, channels, 0.0)
        };
        let (tiles, none) = (self.tiles(&p, x.dtype())?, maybe(None));
        let to = [moments.out(), none, none, none, none, Arg::value(&0.0f64)];
        self.norm_statistics(&p, &tiles, x, channels, to)
    }

    /// A batch norm with given statistics, by one of two kernels that read the same parameters.
    pub(super) fn norm_of_given(
        &self,
        kernels: &PerFloat,
        p: &BatchNormParams,
        x: &CudaBuffer,
        residual: Option<&CudaBuffer>,
        (scale, shift): Affine<'_>,
        (mean, second): (&CudaBuffer, &CudaBuffer),
        y: &mut CudaBuffer,
    ) -> Result<()> {
        let p = with_affine(&columns_of(p), scale.or(shift));
        let tiles = self.tiles(&p, x.dtype())?;
        let args = [
            Arg::value(&p),
            Arg::value(&tiles.cut),
            x.arg(),
            maybe(residual),
            maybe(scale),
            maybe(shift),
            mean.arg(),
            second.arg(),
            y.out(),
        ];
        self.launch(instance(kernels, x.dtype()), tiles.geometry, &args)
    }
}
