//! Norms, profiled.

use super::{elements, moved, optional};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{
    BatchNormGrads, BatchNormInputs, BatchNormParams, BatchNormTrainParams, GroupNormParams, NormOps, RunningStats,
};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> NormOps for Profiled<B> {
    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &B::Buffer,
        residual: Option<&B::Buffer>,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        mean: &B::Buffer,
        var: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, batch_norm_eval(p, x, residual, scale, shift, mean, var, y));
        checks::batch_norm_eval(self, p, x, residual, scale, shift, mean, var, y)?;
        let tensors = bytes(x) + optional(residual) + bytes(y);
        let cost = moved(tensors + optional(scale) + optional(shift) + bytes(mean) + bytes(var));
        self.op("batch_norm_eval", cost, elements(y), |b| {
            b.batch_norm_eval(p, x, residual, scale, shift, mean, var, y)
        })
    }

    fn batch_norm(
        &self,
        p: &BatchNormTrainParams,
        x: &B::Buffer,
        moments: Option<&B::Buffer>,
        residual: Option<&B::Buffer>,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        y: &mut B::Buffer,
        mean: &mut B::Buffer,
        rstd: &mut B::Buffer,
        running: RunningStats<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(
            self,
            batch_norm(p, x, moments, residual, scale, shift, y, mean, rstd, running)
        );
        checks::batch_norm(self, p, x, moments, residual, scale, shift, y, mean, rstd, &running)?;
        let moves = 2 * (bytes(running.mean) + bytes(running.var) + bytes(running.batches));
        let vectors = optional(moments) + optional(scale) + optional(shift) + bytes(mean) + bytes(rstd) + moves;
        let cost = moved(bytes(x) + optional(residual) + bytes(y) + vectors);
        self.op("batch_norm", cost, elements(y), |b| {
            b.batch_norm(p, x, moments, residual, scale, shift, y, mean, rstd, running)
        })
    }

    fn batch_norm_apply(
        &self,
        p: &BatchNormParams,
        x: &B::Buffer,
        residual: Option<&B::Buffer>,
        scale: Option<&B::Buffer>,
        shift: Option<&B::Buffer>,
        mean: &B::Buffer,
        rstd: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, batch_norm_apply(p, x, residual, scale, shift, mean, rstd, y));
        checks::batch_norm_apply(self, p, x, residual, scale, shift, mean, rstd, y)?;
        let tensors = bytes(x) + optional(residual) + bytes(y);
        let cost = moved(tensors + optional(scale) + optional(shift) + bytes(mean) + bytes(rstd));
        self.op("batch_norm_apply", cost, elements(y), |b| {
            b.batch_norm_apply(p, x, residual, scale, shift, mean, rstd, y)
        })
    }

    fn batch_norm_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, B::Buffer>,
        g: &B::Buffer,
        more: Option<&B::Buffer>,
        to: BatchNormGrads<'_, B::Buffer>,
    ) -> Result<()> {
        unless_recording!(self, batch_norm_grad(p, of, g, more, to));
        checks::batch_norm_grad(self, p, of, g, more, &to)?;
        let vectors = optional(of.scale) + bytes(of.mean) + bytes(of.rstd) + bytes(to.dscale) + bytes(to.dshift);
        let shift = if p.relu == 1 && of.y.is_none() {
            optional(of.shift)
        } else {
            0
        };
        let vectors = vectors + shift;
        let read = bytes(of.x) + bytes(g) + optional(more) + optional(of.y);
        let written = bytes(to.dx) + optional(to.dr.as_deref());
        let size = elements(to.dx);
        self.op("batch_norm_grad", moved(read + written + vectors), size, |b| {
            b.batch_norm_grad(p, of, g, more, to)
        })
    }

    fn batch_norm_data_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, B::Buffer>,
        d: &B::Buffer,
        dscale: &B::Buffer,
        dshift: &B::Buffer,
        dx: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, batch_norm_data_grad(p, of, d, dscale, dshift, dx));
        checks::batch_norm_data_grad(self, p, of, d, dscale, dshift, dx)?;
        let vectors = optional(of.scale) + bytes(of.mean) + bytes(of.rstd) + bytes(dscale) + bytes(dshift);
        let cost = moved(bytes(of.x) + bytes(d) + bytes(dx) + vectors);
        self.op("batch_norm_data_grad", cost, elements(dx), |b| {
            b.batch_norm_data_grad(p, of, d, dscale, dshift, dx)
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
        unless_recording!(self, group_norm(p, x, scale, shift, y, mean, rstd));
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
        unless_recording!(self, group_norm_grad(p, x, scale, mean, rstd, g, dx, dscale, dshift));
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
