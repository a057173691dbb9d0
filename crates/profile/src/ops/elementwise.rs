//! Elementwise ops, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{Binary, BroadcastParams, ElementwiseOps, UnaryParams};
use kiln_core::{Backend, Buffer, Result, checks};

impl<B: Backend> ElementwiseOps for Profiled<B> {
    fn unary(&self, p: &UnaryParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, unary(p, x, y));
        checks::unary(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("unary", cost, Detail::Unary(p.op(), y.len() as u64), |b| {
            b.unary(p, x, y)
        })
    }

    fn unary_grad(
        &self,
        p: &UnaryParams,
        x: &B::Buffer,
        y: &B::Buffer,
        g: &B::Buffer,
        dx: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, unary_grad(p, x, y, g, dx));
        checks::unary_grad(self, p, x, y, g, dx)?;
        let cost = moved(p.grad_reads() * bytes(x) + bytes(g) + bytes(dx));
        self.op("unary_grad", cost, Detail::Unary(p.op(), dx.len() as u64), |b| {
            b.unary_grad(p, x, y, g, dx)
        })
    }

    fn binary(&self, p: &BroadcastParams, a: &B::Buffer, b: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, binary(p, a, b, y));
        checks::binary(self, p, a, b, y)?;
        let cost = moved(bytes(a) + bytes(b) + bytes(y));
        let detail = Detail::Binary(Binary::ALL[p.op as usize], y.len() as u64);
        self.op("binary", cost, detail, |inner| inner.binary(p, a, b, y))
    }

    fn compare(&self, p: &BroadcastParams, a: &B::Buffer, b: &B::Buffer, mask: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, compare(p, a, b, mask));
        checks::compare(self, p, a, b, mask)?;
        let cost = moved(bytes(a) + bytes(b) + bytes(mask));
        self.op("compare", cost, elements(mask), |inner| inner.compare(p, a, b, mask))
    }

    fn select(
        &self,
        p: &BroadcastParams,
        mask: &B::Buffer,
        a: &B::Buffer,
        b: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, select(p, mask, a, b, y));
        checks::select(self, p, mask, a, b, y)?;
        // Of a and b only the elements that the mask selects must be read: at least as many bytes as the smaller one has.
        let cost = moved(bytes(mask) + bytes(a).min(bytes(b)) + bytes(y));
        self.op("select", cost, elements(y), |inner| inner.select(p, mask, a, b, y))
    }

    fn cast(&self, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, cast(x, y));
        checks::cast(self, x, y)?;
        self.op("cast", moved(bytes(x) + bytes(y)), elements(y), |b| b.cast(x, y))
    }

    fn cast_each(&self, xs: &[&B::Buffer], ys: &mut [&mut B::Buffer]) -> Result<()> {
        unless_recording!(self, cast_each(xs, ys));
        checks::cast_each(self, xs, ys)?;
        let cost = moved(xs.iter().map(|x| bytes(*x)).sum::<u64>() + ys.iter().map(|y| bytes(&**y)).sum::<u64>());
        let detail = Detail::Elements(xs.iter().map(|x| x.len() as u64).sum());
        self.op("cast_each", cost, detail, |b| b.cast_each(xs, ys))
    }

    fn fill(&self, value: f64, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, fill(value, y));
        checks::fill(self, y)?;
        self.op("fill", moved(bytes(y)), elements(y), |b| b.fill(value, y))
    }

    fn accumulate(&self, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, accumulate(x, y));
        checks::accumulate(self, x, y)?;
        let cost = moved(bytes(x) + 2 * bytes(y));
        self.op("accumulate", cost, elements(y), |b| b.accumulate(x, y))
    }
}
