//! The two halves of the gradient of batch norm: the sums of each channel, and that of the tensor. In between are the sums that a convolution
//! takes in place of the first.

use super::{ResultGrad, Totals, columns_of, with_affine};
use crate::buffer::maybe;
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{BatchNormInputs, BatchNormParams};
use kiln_core::{Buffer, DType, Result};
use kiln_device::Arg;
use kiln_kernels::norm as columns;

impl Cuda {
    /// The first half of [`NormOps::batch_norm_grad`](kiln_core::ops::NormOps::batch_norm_grad): `d`, the gradient before residual and ReLU, where it is written, and its sums
    /// `[dscale, dshift]`, of f32.
    pub(in crate::ops) fn batch_norm_grad_sums(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CudaBuffer>,
        (g, more): (&CudaBuffer, Option<&CudaBuffer>),
        d: &mut CudaBuffer,
        [dscale, dshift]: [&mut CudaBuffer; 2],
    ) -> Result<()> {
        let norm = match of.y {
            Some(_) => p.group_norm(),
            None => columns_of(p),
        };
        let norm = with_affine(&norm, of.scale.or(of.shift));
        let tiles = self.tiles(&norm, g.dtype())?;
        let mut factors = self.scratch(DType::F32, 2 * of.mean.len())?;
        let grad = ResultGrad {
            g,
            more,
            y: of.y,
            shift: of.shift,
            dr: Some(d),
        };
        let totals = Totals {
            dscale,
            dshift,
            factors: Some((of.scale, &mut factors)),
        };
        self.norm_sums(&norm, &tiles, of.x, (of.mean, of.rstd), grad, totals)?;
        Ok(())
    }

    /// [`NormOps::batch_norm_data_grad`](kiln_core::ops::NormOps::batch_norm_data_grad), of the sums `[dscale, dshift]`.
    pub(super) fn norm_data_grad_of_sums(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CudaBuffer>,
        d: &CudaBuffer,
        [dscale, dshift]: [&CudaBuffer; 2],
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        let norm = with_affine(&p.group_norm(), of.scale);
        let tiles = self.tiles(&norm, d.dtype())?;
        let args = [
            Arg::value(&norm),
            Arg::value(&tiles.cut),
            of.x.arg(),
            maybe(of.scale),
            of.mean.arg(),
            of.rstd.arg(),
            d.arg(),
            dscale.arg(),
            dshift.arg(),
            dx.out(),
        ];
        self.launch(instance(&columns::NORM_DATA_GRAD, d.dtype()), tiles.geometry, &args)
    }
}
