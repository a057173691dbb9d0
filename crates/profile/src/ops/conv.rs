//! Convolutions, profiled.

use super::{optional, size};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{BatchNormInputs, ConvNormGrads, ConvOps, ConvParams, ConvPass};
use kiln_core::{Backend, Buffer, Cost, DType, Result, checks};

impl<B: Backend> ConvOps for Profiled<B> {
    fn conv(
        &self,
        p: &ConvParams,
        x: &B::Buffer,
        w: &B::Buffer,
        bias: Option<&B::Buffer>,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, conv(p, x, w, bias, y));
        checks::conv(self, p, x, w, bias, y)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: p.seen() * size(x) + bytes(w) + optional(bias) + bytes(y),
        };
        let algorithm = self.inner().conv_algorithm(p, ConvPass::Forward, x.dtype());
        self.op("conv", cost, Detail::Conv(*p, algorithm), |b| b.conv(p, x, w, bias, y))
    }

    fn conv_moments(
        &self,
        p: &ConvParams,
        x: &B::Buffer,
        w: &B::Buffer,
        y: &mut B::Buffer,
        moments: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, conv_moments(p, x, w, y, moments));
        checks::conv_moments(self, p, x, w, y, moments)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: p.seen() * size(x) + bytes(w) + bytes(y) + bytes(moments),
        };
        let algorithm = self.inner().conv_algorithm(p, ConvPass::Forward, x.dtype());
        self.op("conv_moments", cost, Detail::Conv(*p, algorithm), |b| {
            b.conv_moments(p, x, w, y, moments)
        })
    }

    fn conv_data_grad(&self, p: &ConvParams, g: &B::Buffer, w: &B::Buffer, dx: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, conv_data_grad(p, g, w, dx));
        checks::conv_data_grad(self, p, g, w, dx)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(g) + bytes(w) + bytes(dx),
        };
        let algorithm = self.inner().conv_algorithm(p, ConvPass::DataGrad, g.dtype());
        self.op("conv_data_grad", cost, Detail::Conv(*p, algorithm), |b| {
            b.conv_data_grad(p, g, w, dx)
        })
    }

    fn conv_norm_grad(
        &self,
        p: &ConvParams,
        g: &B::Buffer,
        w: &B::Buffer,
        of: &BatchNormInputs<'_, B::Buffer>,
        more: Option<&B::Buffer>,
        to: ConvNormGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, conv_norm_grad(p, g, w, of, more, to));
        checks::conv_norm_grad(self, p, g, w, of, more, &to)?;
        let shift = if of.y.is_none() { optional(of.shift) } else { 0 };
        let vectors = optional(of.scale) + shift + bytes(of.mean) + bytes(of.rstd);
        let again = optional(to.y.as_deref());
        let norm =
            bytes(of.x) + again + optional(more) + optional(of.y) + vectors + bytes(to.dscale) + bytes(to.dshift);
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(g) + bytes(w) + bytes(to.d) + norm,
        };
        let algorithm = self.inner().conv_algorithm(p, ConvPass::DataGrad, g.dtype());
        self.op("conv_norm_grad", cost, Detail::Conv(*p, algorithm), |b| {
            b.conv_norm_grad(p, g, w, of, more, to)
        })
    }

    fn conv_norm_grad_pays(&self, p: &ConvParams, dtype: DType) -> bool {
        self.inner().conv_norm_grad_pays(p, dtype)
    }

    fn conv_weight_grad(&self, p: &ConvParams, g: &B::Buffer, x: &B::Buffer, dw: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, conv_weight_grad(p, g, x, dw));
        checks::conv_weight_grad(self, p, g, x, dw)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(g) + p.seen() * size(x) + bytes(dw),
        };
        let algorithm = self.inner().conv_algorithm(p, ConvPass::WeightGrad, g.dtype());
        self.op("conv_weight_grad", cost, Detail::Conv(*p, algorithm), |b| {
            b.conv_weight_grad(p, g, x, dw)
        })
    }

    fn conv_algorithm(&self, p: &ConvParams, pass: ConvPass, dtype: DType) -> Option<&'static str> {
        self.inner().conv_algorithm(p, pass, dtype)
    }
}
