//! Ops that move elements, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{IndexOps, IndexParams, Join, Split, ViewParams};
use kiln_core::{Backend, Buffer, Result, checks};

/// Where the part of a tensor that is read or written depends on index values, its bytes do not count.
impl<B: Backend> IndexOps for Profiled<B> {
    fn view_read(&self, p: &ViewParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, view_read(p, x, y));
        checks::view_read(self, p, x, y)?;
        // Elements that an expanded view repeats are read once.
        let cost = moved(bytes(y).min(bytes(x)) + bytes(y));
        self.op("view_read", cost, elements(y), |b| b.view_read(p, x, y))
    }

    fn view_write(&self, p: &ViewParams, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, view_write(p, x, y));
        checks::view_write(self, p, x, y)?;
        let cost = moved(2 * bytes(x));
        self.op("view_write", cost, elements(x), |b| b.view_write(p, x, y))
    }

    fn join(&self, joins: &mut [Join<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, join(joins));
        checks::join(self, joins)?;
        let cost = moved(joins.iter().map(|join| 2 * bytes(&*join.whole)).sum());
        let detail = Detail::Elements(joins.iter().map(|join| join.whole.len() as u64).sum());
        self.op("join", cost, detail, |b| b.join(joins))
    }

    fn split(&self, splits: &mut [Split<'_, B::Buffer>]) -> Result<()> {
        unless_recording!(self, split(splits));
        checks::split(self, splits)?;
        let parts = || {
            splits
                .iter()
                .flat_map(|split| split.parts.iter().map(|(_, part)| &**part))
        };
        let cost = moved(parts().map(|part| 2 * bytes(part)).sum());
        let detail = Detail::Elements(parts().map(|part| part.len() as u64).sum());
        self.op("split", cost, detail, |b| b.split(splits))
    }

    fn gather(&self, p: &IndexParams, x: &B::Buffer, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, gather(p, x, index, y));
        checks::gather(self, p, x, index, y)?;
        let cost = moved(bytes(index) + bytes(y));
        self.op("gather", cost, elements(y), |b| b.gather(p, x, index, y))
    }

    fn scatter_add(&self, p: &IndexParams, x: &B::Buffer, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, scatter_add(p, x, index, y));
        checks::scatter_add(self, p, x, index, y)?;
        let cost = moved(bytes(x) + bytes(index));
        self.op("scatter_add", cost, elements(x), |b| b.scatter_add(p, x, index, y))
    }

    fn index_select(&self, p: &IndexParams, x: &B::Buffer, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, index_select(p, x, index, y));
        checks::index_select(self, p, x, index, y)?;
        let cost = moved(bytes(index) + bytes(y));
        self.op("index_select", cost, elements(y), |b| b.index_select(p, x, index, y))
    }

    fn index_add(&self, p: &IndexParams, x: &B::Buffer, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, index_add(p, x, index, y));
        checks::index_add(self, p, x, index, y)?;
        let cost = moved(bytes(x) + bytes(index));
        self.op("index_add", cost, elements(x), |b| b.index_add(p, x, index, y))
    }

    fn one_hot(&self, p: &IndexParams, index: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, one_hot(p, index, y));
        checks::one_hot(self, p, index, y)?;
        let cost = moved(bytes(index) + bytes(y));
        self.op("one_hot", cost, elements(y), |b| b.one_hot(p, index, y))
    }
}
