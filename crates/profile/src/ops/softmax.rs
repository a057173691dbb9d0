//! Softmax, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> SoftmaxOps for Profiled<B> {
    fn softmax(&self, p: &SoftmaxParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, softmax(p, x, y));
        checks::softmax(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("softmax", cost, elements(y), |b| b.softmax(p, x, y))
    }

    fn softmax_grad(&self, p: &SoftmaxParams, y: &B::Buffer, g: &B::Buffer, dx: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, softmax_grad(p, y, g, dx));
        checks::softmax_grad(self, p, y, g, dx)?;
        let cost = moved(bytes(y) + bytes(g) + bytes(dx));
        self.op("softmax_grad", cost, elements(dx), |b| b.softmax_grad(p, y, g, dx))
    }
}
