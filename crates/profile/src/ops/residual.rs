//! Sums of a residual stream and their layer norm, profiled.

use super::{elements, moved, optional};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{ResidualNormGrads, ResidualNormInputs, ResidualOps, ResidualParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> ResidualOps for Profiled<B> {
    fn residual_add(
        &self,
        p: &ResidualParams,
        x: &B::Buffer,
        y: &B::Buffer,
        step: Option<&B::Buffer>,
        s: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, residual_add(p, x, y, step, s));
        checks::residual_add(self, p, x, y, step, s)?;
        let cost = moved(bytes(x) + bytes(y) + bytes(s));
        self.op("residual_add", cost, elements(s), |b| b.residual_add(p, x, y, step, s))
    }

    fn residual_add_grad(
        &self,
        p: &ResidualParams,
        g: &B::Buffer,
        step: Option<&B::Buffer>,
        dy: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, residual_add_grad(p, g, step, dy));
        checks::residual_add_grad(self, p, g, step, dy)?;
        let cost = moved(bytes(g) + bytes(dy));
        self.op("residual_add_grad", cost, elements(dy), |b| {
            b.residual_add_grad(p, g, step, dy)
        })
    }

    fn residual_norm(
        &self,
        p: &ResidualParams,
        x: &B::Buffer,
        branch: Option<(&B::Buffer, &mut B::Buffer)>,
        step: Option<&B::Buffer>,
        scale: &B::Buffer,
        shift: &B::Buffer,
        n: &mut B::Buffer,
        mean: &mut B::Buffer,
        rstd: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, residual_norm(p, x, branch, step, scale, shift, n, mean, rstd));
        checks::residual_norm(
            self,
            p,
            x,
            branch.as_ref().map(|(y, s)| (*y, &**s)),
            step,
            scale,
            shift,
            n,
            mean,
            rstd,
        )?;
        let of = branch.as_ref().map(|(y, s)| (*y, &**s));
        let vectors = bytes(scale) + bytes(shift) + bytes(mean) + bytes(rstd);
        let sum = of.map_or(0, |(y, s)| bytes(y) + bytes(s));
        let cost = moved(bytes(x) + sum + bytes(n) + vectors);
        self.op("residual_norm", cost, elements(n), |b| {
            b.residual_norm(p, x, branch, step, scale, shift, n, mean, rstd)
        })
    }

    fn residual_norm_grad(
        &self,
        p: &ResidualParams,
        of: &ResidualNormInputs<'_, B::Buffer>,
        to: ResidualNormGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, residual_norm_grad(p, of, to));
        checks::residual_norm_grad(self, p, of, &to)?;
        let read = bytes(of.s) + bytes(of.g) + optional(of.more) + optional(of.sum);
        let written = bytes(to.ds) + optional(to.dy.as_deref());
        let vectors = bytes(of.scale) + bytes(of.mean) + bytes(of.rstd) + bytes(to.dscale) + bytes(to.dshift);
        let (cost, detail) = (moved(read + written + vectors), elements(to.ds));
        self.op("residual_norm_grad", cost, detail, |b| b.residual_norm_grad(p, of, to))
    }
}
