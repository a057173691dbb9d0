//! Recurrent layers, profiled.

use super::{elements, optional};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{RecurrentGrads, RecurrentOperands, RecurrentOps, RecurrentParams};
use kiln_core::{Backend, Buffer, Cost, Result, checks};

impl<B: Backend> RecurrentOps for Profiled<B> {
    fn recurrent(
        &self,
        p: &RecurrentParams,
        x: &B::Buffer,
        of: &RecurrentOperands<'_, B::Buffer>,
        kept: Option<&mut B::Buffer>,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, recurrent(p, x, of, kept, y));
        checks::recurrent(self, p, x, of, kept.as_deref(), y)?;
        let cost = Cost {
            flops: p.flops(),
            bytes: bytes(x) + read(of) + optional(kept.as_deref()) + bytes(y),
        };
        self.op("recurrent", cost, elements(y), |b| b.recurrent(p, x, of, kept, y))
    }

    fn recurrent_grad(
        &self,
        p: &RecurrentParams,
        of: &RecurrentOperands<'_, B::Buffer>,
        kept: &B::Buffer,
        y: &B::Buffer,
        g: &B::Buffer,
        to: RecurrentGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, recurrent_grad(p, of, kept, y, g, to));
        checks::recurrent_grad(self, p, of, kept, y, g, &to)?;
        let written = bytes(to.dx) + optional(to.dr.as_deref()) + bytes(to.before) + bytes(to.dh0);
        let cost = Cost {
            flops: p.flops(),
            bytes: read(of) + bytes(kept) + bytes(y) + bytes(g) + written + optional(to.dc0.as_deref()),
        };
        self.op("recurrent_grad", cost, elements(g), |b| {
            b.recurrent_grad(p, of, kept, y, g, to)
        })
    }
}

/// The bytes of the operands.
fn read<B: Buffer>(x: &RecurrentOperands<'_, B>) -> u64 {
    let optional: u64 = [x.bias, x.c0, x.lengths].into_iter().flatten().map(bytes).sum();
    bytes(x.w) + bytes(x.h0) + optional
}
