//! Reductions, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{AxisParams, ReduceOps, ReduceParams};
use kiln_core::{Backend, Buffer, Result, checks};

impl<B: Backend> ReduceOps for Profiled<B> {
    fn reduce(&self, p: &ReduceParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, reduce(p, x, y));
        checks::reduce(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("reduce", cost, Detail::Reduce(p.op(), x.len() as u64), |b| {
            b.reduce(p, x, y)
        })
    }

    fn arg_reduce(&self, p: &AxisParams, x: &B::Buffer, index: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, arg_reduce(p, x, index));
        checks::arg_reduce(self, p, x, index)?;
        let cost = moved(bytes(x) + bytes(index));
        self.op("arg_reduce", cost, elements(x), |b| b.arg_reduce(p, x, index))
    }

    fn add_correct(
        &self,
        p: &AxisParams,
        x: &B::Buffer,
        labels: &B::Buffer,
        weight: f64,
        sum: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, add_correct(p, x, labels, weight, sum));
        checks::add_correct(self, p, x, labels, weight, sum)?;
        let cost = moved(bytes(x) + bytes(labels));
        self.op("add_correct", cost, elements(x), |b| {
            b.add_correct(p, x, labels, weight, sum)
        })
    }

    fn cumsum(&self, p: &AxisParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, cumsum(p, x, y));
        checks::cumsum(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("cumsum", cost, elements(y), |b| b.cumsum(p, x, y))
    }

    fn top_k(&self, p: &AxisParams, x: &B::Buffer, values: &mut B::Buffer, index: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, top_k(p, x, values, index));
        checks::top_k(self, p, x, values, index)?;
        let cost = moved(bytes(x) + bytes(values) + bytes(index));
        self.op("top_k", cost, elements(x), |b| b.top_k(p, x, values, index))
    }
}
