//! Matrix products, watched.

use super::optional;
use crate::backend::{Profiled, bytes};
use crate::record::Detail;
use kiln_core::ops::{MatmulOps, MatmulParams};
use kiln_core::{Backend, Cost, Result, checks};

fn product(p: &MatmulParams) -> Detail {
    Detail::Product([p.batches() as u64, p.m, p.n, p.k])
}

impl<B: Backend> MatmulOps for Profiled<B> {
    fn matmul(&self, p: &MatmulParams, a: &B::Buffer, b: &B::Buffer, c: &mut B::Buffer) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(a) + bytes(b) + bytes(c),
        };
        self.op("matmul", cost, product(p), |inner| inner.matmul(p, a, b, c))
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &B::Buffer,
        w: &B::Buffer,
        bias: Option<&B::Buffer>,
        y: &mut B::Buffer,
    ) -> Result<()> {
        checks::linear(self, p, x, w, bias, y)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(x) + bytes(w) + optional(bias) + bytes(y),
        };
        self.op("linear", cost, product(p), |b| b.linear(p, x, w, bias, y))
    }
}
