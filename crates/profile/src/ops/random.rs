//! Random numbers, profiled.

use super::{elements, moved};
use crate::backend::{Profiled, bytes, unless_recording};
use crate::record::Detail;
use kiln_core::ops::{RandomOps, RandomParams};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> RandomOps for Profiled<B> {
    fn random(&self, p: &RandomParams, step: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, random(p, step, y));
        checks::random(self, p, step, y)?;
        self.op("random", moved(bytes(y)), elements(y), |b| b.random(p, step, y))
    }

    fn tick(&self, counter: &mut B::Buffer, ticket: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, tick(counter, ticket));
        checks::tick(self, counter, ticket)?;
        let cost = moved(2 * bytes(counter) + bytes(ticket));
        self.op("tick", cost, elements(ticket), |b| b.tick(counter, ticket))
    }

    fn tick_each(&self, counters: &mut [&mut B::Buffer], tickets: &mut [&mut B::Buffer]) -> Result<()> {
        unless_recording!(self, tick_each(counters, tickets));
        checks::tick_each(self, counters, tickets)?;
        let cost = moved(tickets.iter().map(|ticket| 3 * bytes(&**ticket)).sum());
        let detail = Detail::Elements(tickets.len() as u64);
        self.op("tick_each", cost, detail, |b| b.tick_each(counters, tickets))
    }

    fn dropout(&self, p: &RandomParams, step: &B::Buffer, x: &B::Buffer, y: &mut B::Buffer) -> Result<()> {
        unless_recording!(self, dropout(p, step, x, y));
        checks::dropout(self, p, step, x, y)?;
        let cost = moved(bytes(x) + bytes(y));
        self.op("dropout", cost, elements(y), |b| b.dropout(p, step, x, y))
    }
}
