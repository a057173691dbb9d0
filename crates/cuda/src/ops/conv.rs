//! Convolution and its two gradients: kernel variants, and the table that chooses among them.

mod algorithm;
mod choose;
mod launch;
mod moments;
mod norm;
mod padded;
mod tensor;
mod winograd;

pub use algorithm::{Algorithm, Pass, TensorTile, Tile};
pub use choose::choose;
pub(super) use launch::BiasGrad;

use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{BatchNormInputs, ConvNormGrads, ConvOps, ConvParams, ConvPass};
use kiln_core::{Buffer, DType, Error, Result, checks};

impl Cuda {
    /// True if `algorithm` can compute `pass` of `p` in `dtype` on this device.
    pub fn conv_fits(&self, algorithm: Algorithm, pass: Pass, p: &ConvParams, dtype: DType) -> bool {
        algorithm.fits(pass, p, dtype, self.processors())
    }

    /// [`ConvOps::conv`] by `algorithm`, for tests and benches.
    ///
    /// # Errors
    /// Operands that the parameters do not fit; [`Error::InvalidArgument`] when the algorithm cannot compute this convolution
    /// ([`Algorithm::fits`]).
    pub fn conv_with(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv(self, p, x, w, bias, y)?;
        self.fitting("conv", algorithm, Pass::Forward, p, x.dtype())?;
        self.forward(algorithm, p, x, w, bias, y)
    }

    /// [`ConvOps::conv_moments`] by `algorithm`, for tests and benches.
    ///
    /// # Errors
    /// As [`Cuda::conv_with`].
    pub fn conv_moments_with(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        y: &mut CudaBuffer,
        moments: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv_moments(self, p, x, w, y, moments)?;
        self.fitting("conv_moments", algorithm, Pass::Forward, p, x.dtype())?;
        self.forward_moments(algorithm, p, [x, w], y, moments)
    }

    /// [`ConvOps::conv_data_grad`] by `algorithm`, for tests and benches.
    ///
    /// # Errors
    /// As [`Cuda::conv_with`].
    pub fn conv_data_grad_with(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        g: &CudaBuffer,
        w: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        self.fitting("conv_data_grad", algorithm, Pass::DataGrad, p, g.dtype())?;
        self.data_grad(algorithm, p, g, w, dx)
    }

    /// [`ConvOps::conv_norm_grad`] by `algorithm`, for tests and benches.
    ///
    /// # Errors
    /// As [`Cuda::conv_with`].
    pub fn conv_norm_grad_with(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        g: &CudaBuffer,
        w: &CudaBuffer,
        of: &BatchNormInputs<'_, CudaBuffer>,
        more: Option<&CudaBuffer>,
        to: ConvNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::conv_norm_grad(self, p, g, w, of, more, &to)?;
        self.fitting("conv_norm_grad", algorithm, Pass::DataGrad, p, g.dtype())?;
        self.norm_data_grad(algorithm, p, [g, w], of, more, to)
    }

    /// [`ConvOps::conv_weight_grad`] by `algorithm`, for tests and benches.
    ///
    /// # Errors
    /// As [`Cuda::conv_with`].
    pub fn conv_weight_grad_with(
        &self,
        algorithm: Algorithm,
        p: &ConvParams,
        g: &CudaBuffer,
        x: &CudaBuffer,
        dw: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        self.fitting("conv_weight_grad", algorithm, Pass::WeightGrad, p, g.dtype())?;
        self.weight_grad(algorithm, p, g, x, dw, None)
    }

    /// [`ConvOps::conv_weight_grad`] together with the gradient of a bias.
    pub(super) fn conv_weight_and_bias_grad(
        &self,
        p: &ConvParams,
        g: &CudaBuffer,
        x: &CudaBuffer,
        dw: &mut CudaBuffer,
        bias: BiasGrad<'_>,
    ) -> Result<()> {
        self.weight_grad(self.chosen(Pass::WeightGrad, p, g.dtype()), p, g, x, dw, Some(bias))
    }

    fn fitting(&self, op: &'static str, algorithm: Algorithm, pass: Pass, p: &ConvParams, dtype: DType) -> Result<()> {
        if self.conv_fits(algorithm, pass, p, dtype) {
            return Ok(());
        }
        let found = format!("{algorithm:?}");
        Err(Error::invalid(op, "algorithm", found, "one that fits the convolution"))
    }

    fn chosen(&self, pass: Pass, p: &ConvParams, dtype: DType) -> Algorithm {
        choose(pass, p, dtype, self.options(), self.processors())
    }
}

impl ConvOps for Cuda {
    fn conv(
        &self,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv(self, p, x, w, bias, y)?;
        self.forward(self.chosen(Pass::Forward, p, x.dtype()), p, x, w, bias, y)
    }

    fn conv_moments(
        &self,
        p: &ConvParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        y: &mut CudaBuffer,
        moments: &mut CudaBuffer,
    ) -> Result<()> {
        checks::conv_moments(self, p, x, w, y, moments)?;
        self.forward_moments(self.chosen(Pass::Forward, p, x.dtype()), p, [x, w], y, moments)
    }

    fn conv_data_grad(&self, p: &ConvParams, g: &CudaBuffer, w: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        self.data_grad(self.chosen(Pass::DataGrad, p, g.dtype()), p, g, w, dx)
    }

    fn conv_norm_grad(
        &self,
        p: &ConvParams,
        g: &CudaBuffer,
        w: &CudaBuffer,
        of: &BatchNormInputs<'_, CudaBuffer>,
        more: Option<&CudaBuffer>,
        to: ConvNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::conv_norm_grad(self, p, g, w, of, more, &to)?;
        let algorithm = self.chosen(Pass::DataGrad, p, g.dtype());
        self.norm_data_grad(algorithm, p, [g, w], of, more, to)
    }

    fn conv_norm_grad_pays(&self, p: &ConvParams, dtype: DType) -> bool {
        self.sums_for_norm(self.chosen(Pass::DataGrad, p, dtype), p, dtype)
    }

    fn conv_weight_grad(&self, p: &ConvParams, g: &CudaBuffer, x: &CudaBuffer, dw: &mut CudaBuffer) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        self.weight_grad(self.chosen(Pass::WeightGrad, p, g.dtype()), p, g, x, dw, None)
    }

    fn conv_algorithm(&self, p: &ConvParams, pass: ConvPass, dtype: DType) -> Option<&'static str> {
        let pass = match pass {
            ConvPass::Forward => Pass::Forward,
            ConvPass::DataGrad => Pass::DataGrad,
            ConvPass::WeightGrad => Pass::WeightGrad,
        };
        Some(match self.chosen(pass, p, dtype) {
            Algorithm::Naive => "naive",
            Algorithm::Tiled(Tile::Small) => "tiled 64×64",
            Algorithm::Tiled(Tile::Large) => "tiled 128×128",
            Algorithm::Tensor(TensorTile::T64x64) => "tensor cores 64×64",
            Algorithm::Tensor(TensorTile::T128x64) => "tensor cores 128×64",
            Algorithm::Tensor(TensorTile::T128x128) => "tensor cores 128×128",
            Algorithm::Tensor(TensorTile::T128x256) => "tensor cores 128×256",
            Algorithm::Tensor(TensorTile::Warpgroup128x64) => "warp groups 128×64",
            Algorithm::Tensor(TensorTile::Warpgroup128x128) => "warp groups 128×128",
            Algorithm::Tensor(TensorTile::Warpgroup128x256) => "warp groups 128×256",
            Algorithm::Padded => "tensor cores, channels padded",
            Algorithm::Shallow => "shallow",
            Algorithm::Few => "few",
            Algorithm::Depthwise => "depthwise",
            Algorithm::Winograd(_) => "Winograd F(2×2, 3×3)",
        })
    }
}
