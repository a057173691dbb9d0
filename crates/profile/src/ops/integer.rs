//! Ops on integers, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{AxisParams, BroadcastParams, IndexParams, IntegerFold, IntegerOps, ReduceParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> IntegerOps for Profiled<B> {
    fn integer_binary(&self, p: &BroadcastParams, a: &B::Buffer, b: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, integer_binary(p, a, b, y));
        checks::integer_binary(self, p, a, b, y)?;
        let cost = moved(bytes(a) + bytes(b) + bytes(y));
        self.op("integer_binary", cost, elements(y), |on| on.integer_binary(p, a, b, y))
    }

    fn integer_reduce(&self, f: IntegerFold, p: &ReduceParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, integer_reduce(f, p, x, y));
        checks::integer_reduce(self, f, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("integer_reduce", cost, elements(x), |on| on.integer_reduce(f, p, x, y))
    }

    fn integer_cumsum(&self, p: &AxisParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, integer_cumsum(p, x, y));
        checks::integer_cumsum(self, p, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("integer_cumsum", cost, elements(y), |on| on.integer_cumsum(p, x, y))
    }

    fn integer_scatter(
        &self,
        f: IntegerFold,
        p: &IndexParams,
        x: &B::Buffer,
        index: &B::Buffer,
        y: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, integer_scatter(f, p, x, index, y));
        checks::integer_scatter(self, p, x, index, y)?;
        let cost = moved(bytes(x) + bytes(index));
        self.op("integer_scatter", cost, elements(x), |on| {
            on.integer_scatter(f, p, x, index, y)
        })
    }
}
