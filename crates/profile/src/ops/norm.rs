//! Norms, profiled.

use super::{elements, moved, optional};
use crate::backend::{Profiled, bytes};
use kiln_core::ops::{BatchNormParams, BatchNormTrainParams, GroupNormParams, NormOps};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> NormOps for Profiled<B> {
    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &B::Buffer,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        mean: &B::Buffer,
        var: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        checks::batch_norm_eval(self, p, x, scale, shift, mean, var, y)?;
        let cost = moved(bytes(x) + optional(scale) + optional(shift) + bytes(mean) + bytes(var) + bytes(y));
        self.op("batch_norm_eval", cost, elements(y), |b| {
            b.batch_norm_eval(p, x, scale, shift, mean, var, y)
        })
    }

    fn batch_norm(
        &self,
        p: &BatchNormTrainParams,
        x: &B::Buffer,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        y: &mut B::Buffer,
        mean: &mut B::Buffer,
        rstd: &mut B::Buffer,
        running_mean: &mut B::Buffer,
        running_var: &mut B::Buffer,
        batches: &mut B::Buffer,
    ) -> Result<()> {
        checks::batch_norm(
            self,
            p,
            x,
            scale,
            shift,
            y,
            mean,
            rstd,
            running_mean,
            running_var,
            batches,
        )?;
        let moves = 2 * (bytes(running_mean) + bytes(running_var) + bytes(batches));
        let vectors = optional(scale) + optional(shift) + bytes(mean) + bytes(rstd) + moves;
        self.op("batch_norm", moved(bytes(x) + bytes(y) + vectors), elements(y), |b| {
            b.batch_norm(p, x, scale, shift, y, mean, rstd, running_mean, running_var, batches)
        })
    }

    fn group_norm(
        &self,
        p: &GroupNormParams,
        x: &B::Buffer,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        y: &mut B::Buffer,
        mean: &mut B::Buffer,
        rstd: &mut B::Buffer,
    ) -> Result<()> {
        checks::group_norm(self, p, x, scale, shift, y, mean, rstd)?;
        let cost = moved(bytes(x) + optional(scale) + optional(shift) + bytes(y) + bytes(mean) + bytes(rstd));
        let name = if p.is_batch_norm() { "batch_norm" } else { "group_norm" };
        self.op(name, cost, elements(y), |b| {
            b.group_norm(p, x, scale, shift, y, mean, rstd)
        })
    }

    fn group_norm_grad(
        &self,
        p: &GroupNormParams,
        x: &B::Buffer,
        scale: Option<&B::Buffer>,
        mean: &B::Buffer,
        rstd: &B::Buffer,
        g: &B::Buffer,
        dx: &mut B::Buffer,
        dscale: &mut B::Buffer,
        dshift: &mut B::Buffer,
    ) -> Result<()> {
        checks::group_norm_grad(self, p, x, scale, mean, rstd, g, dx, dscale, dshift)?;
        let vectors = optional(scale) + bytes(mean) + bytes(rstd) + bytes(dscale) + bytes(dshift);
        let cost = moved(bytes(x) + bytes(g) + bytes(dx) + vectors);
        let name = match p.is_batch_norm() {
            true => "batch_norm_grad",
            false => "group_norm_grad",
        };
        self.op(name, cost, elements(dx), |b| {
            b.group_norm_grad(p, x, scale, mean, rstd, g, dx, dscale, dshift)
        })
    }
}
