//! Optimizer updates, profiled.

use super::moved;
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{AdagradParams, AdamParams, GradNormParams, OptimOps, OptimSlot, RmspropParams, SgdParams};
use kiln_core::{Backend, Buffer, Cost, Result, checks};

/// Bytes of an update: gradients are read, parameters and state read and written, copies in half precision written.
fn updated<Buf: Buffer>(slots: &[OptimSlot<'_, Buf>]) -> (Cost, Detail) {
    let of = |s: &OptimSlot<'_, Buf>| {
        let state: u64 = s.state.iter().map(|b| bytes(&**b)).sum();
        let half = s.half.as_ref().map_or(0, |half| bytes(&**half));
        half + bytes(s.grad) + 2 * (bytes(&*s.param) + state)
    };
    let values = slots.iter().map(|s| s.param.len() as u64).sum();
    (moved(slots.iter().map(of).sum()), Detail::Elements(values))
}

impl<B: Backend> OptimOps for Profiled<B> {
    fn sgd(&self, p: &SgdParams, scalars: &B::Buffer, slots: &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, sgd(p, scalars, slots));
        checks::sgd(self, p, scalars, slots)?;
        let (cost, detail) = updated(slots);
        self.op("sgd", cost, detail, |b| b.sgd(p, scalars, slots))
    }

    fn adam(&self, p: &AdamParams, scalars: &B::Buffer, slots: &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, adam(p, scalars, slots));
        checks::adam(self, p, scalars, slots)?;
        let (cost, detail) = updated(slots);
        self.op("adam", cost, detail, |b| b.adam(p, scalars, slots))
    }

    fn rmsprop(&self, p: &RmspropParams, scalars: &B::Buffer, slots: &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, rmsprop(p, scalars, slots));
        checks::rmsprop(self, p, scalars, slots)?;
        let (cost, detail) = updated(slots);
        self.op("rmsprop", cost, detail, |b| b.rmsprop(p, scalars, slots))
    }

    fn adagrad(&self, p: &AdagradParams, scalars: &B::Buffer, slots: &mut [OptimSlot<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, adagrad(p, scalars, slots));
        checks::adagrad(self, p, scalars, slots)?;
        let (cost, detail) = updated(slots);
        self.op("adagrad", cost, detail, |b| b.adagrad(p, scalars, slots))
    }

    fn grad_norm(
        &self,
        p: &GradNormParams,
        grads: &[&B::Buffer],
        norm: &mut B::Buffer,
        factor: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, grad_norm(p, grads, norm, factor));
        checks::grad_norm(self, p, grads, norm, factor)?;
        let cost = moved(grads.iter().map(|g| bytes(*g)).sum());
        let detail = Detail::Elements(grads.iter().map(|g| g.len() as u64).sum());
        self.op("grad_norm", cost, detail, |b| b.grad_norm(p, grads, norm, factor))
    }

    fn unscale(&self, inverse: &B::Buffer, grads: &mut [&mut B::Buffer], found: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, unscale(inverse, grads, found));
        checks::unscale(self, inverse, grads, found)?;
        let cost = moved(grads.iter().map(|g| 2 * bytes(&**g)).sum());
        let detail = Detail::Elements(grads.iter().map(|g| g.len() as u64).sum());
        self.op("unscale", cost, detail, |b| b.unscale(inverse, grads, found))
    }
}
