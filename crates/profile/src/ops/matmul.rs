//! Matrix products, profiled.

use super::optional;
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{LinearGrads, LinearInputs, MatmulOps, MatmulParams};
use kiln_core::{Backend, Buffer, Cost, DType, Result, checks};

impl<B: Backend> Profiled<B> {
    fn product(&self, p: &MatmulParams, dtype: DType) -> Detail {
        let sizes = [p.batches() as u64, p.m, p.n, p.k];
        Detail::Product(sizes, self.inner().matmul_algorithm(p, dtype))
    }
}

impl<B: Backend> MatmulOps for Profiled<B> {
    fn matmul_algorithm(&self, p: &MatmulParams, dtype: DType) -> Option<&'static str> {
        self.inner().matmul_algorithm(p, dtype)
    }

    fn matmul(&self, p: &MatmulParams, a: &B::Buffer, b: &B::Buffer, c: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, matmul(p, a, b, c));
        checks::matmul(self, p, a, b, c)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(a) + bytes(b) + bytes(c),
        };
        self.op("matmul", cost, self.product(p, c.dtype()), |inner| {
            inner.matmul(p, a, b, c)
        })
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &B::Buffer,
        w: &B::Buffer,
        bias: Option<&B::Buffer>,
        h: Option<&mut B::Buffer>,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, linear(p, x, w, bias, h, y));
        checks::linear(self, p, x, w, bias, h.as_deref(), y)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(x) + bytes(w) + optional(bias) + optional(h.as_deref()) + bytes(y),
        };
        self.op("linear", cost, self.product(p, y.dtype()), |b| {
            b.linear(p, x, w, bias, h, y)
        })
    }

    fn remakes_input(&self, p: &MatmulParams, dtype: DType) -> bool {
        self.inner().remakes_input(p, dtype)
    }

    fn linear_grad(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, B::Buffer>,
        g: &B::Buffer,
        to: LinearGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, linear_grad(p, of, g, to));
        checks::linear_grad(self, p, of, g, &to)?;
        let of_input = to.dx.as_deref().map(|dx| bytes(of.w) + bytes(dx));
        let again = to.x.as_deref();
        let of_weight = to.dw.as_deref().map(|dw| optional(of.x.or(again)) + bytes(dw));
        let cost = Cost {
            flops: p.flops() * (u64::from(of_input.is_some()) + u64::from(of_weight.is_some())),
            bytes: bytes(g)
                + optional(of.y)
                + optional(of.slope.as_ref().map(|slope| slope.at))
                + optional(again)
                + optional(of.norm.as_ref().map(|norm| norm.s))
                + of_input.unwrap_or(0)
                + of_weight.unwrap_or(0)
                + optional(to.db.as_deref()),
        };
        let sizes = [1, p.m, p.n, p.k];
        self.op("linear_grad", cost, Detail::Product(sizes, None), |b| {
            b.linear_grad(p, of, g, to)
        })
    }
}
