//! Random numbers, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes};
use kiln_core::ops::{RandomOps, RandomParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> RandomOps for Profiled<B> {
    fn random(&self, p: &RandomParams, step: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        checks::random(self, p, step, y)?;
        self.op("random", moved(bytes(y)), elements(y), |b| b.random(p, step, y))
    }

    fn tick(&self, counter: &mut B::Buffer, ticket: &mut B::Buffer) -> Result<()> {
        checks::tick(self, counter, ticket)?;
        let cost = moved(2 * bytes(counter) + bytes(ticket));
        self.op("tick", cost, elements(ticket), |b| b.tick(counter, ticket))
    }

    fn dropout(&self, p: &RandomParams, step: &B::Buffer, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        checks::dropout(self, p, step, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("dropout", cost, elements(y), |b| b.dropout(p, step, x, y))
    }
}
