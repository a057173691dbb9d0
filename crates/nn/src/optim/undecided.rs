//! Updates of which the device decides whether they are made, until the host has read which were left out.
//!
//! What an update reads of the number of its step (bias corrections, decays) is a formula of the host in f64. While the host does not
//! know how many of the last updates were made, it writes a table of them, with a row for every number that may have been left out,
//! and the device takes the row of the number that it has counted. So every optimizer has the numbers that it would have if
//! the host had decided, to the bit.

use crate::{Backend, Indices, Result, StorageSnapshot};
use std::collections::BTreeMap;

/// The rows of a table: more updates than that are not made before what was left out is read.
pub(super) const ROWS: usize = 64;

/// The updates that are not decided on the host. They change the same parameters, but perhaps for the last one.
pub(super) struct Undecided<B: Backend> {
    /// i32 `[1]`: how many of them were left out.
    missed: Indices<B>,
    /// i32 `[1]`: 1 if the last of them was.
    last: Indices<B>,
    /// The number of updates, without one that differs.
    count: usize,
    names: Vec<String>,
    /// The parameters of the last update, if they are others.
    other: Option<Vec<String>>,
}

impl<B: Backend> Undecided<B> {
    pub(super) fn new(backend: &B) -> Result<Self> {
        Ok(Undecided {
            missed: Indices::full(backend, &[1], 0i32)?,
            last: Indices::full(backend, &[1], 0i32)?,
            count: 0,
            names: Vec::new(),
            other: None,
        })
    }

    /// True if what was left out has to be read before the next update.
    pub(super) fn is_full(&self) -> bool {
        self.count + 1 >= ROWS || self.other.is_some()
    }

    /// The number of undecided updates of a parameter.
    pub(super) fn of(&self, name: &str) -> usize {
        let has = self.count > 0 && self.names.iter().any(|n| n == name);
        if has { self.count } else { 0 }
    }

    /// The row of the tables that the next update reads: i32 `[1]`.
    pub(super) fn row(&self) -> &Indices<B> {
        &self.missed
    }

    /// Counts, on the device, an update that was left out where `found_inf` is 1.
    pub(super) fn add(&mut self, found_inf: Option<&Indices<B>>) -> Result<()> {
        let backend = self.missed.backend().clone();
        let Some(found_inf) = found_inf else {
            return backend.fill(0.0, self.last.buffer_mut()?);
        };
        let missed = self.missed.add(found_inf)?;
        backend.copy(missed.buffer(), self.missed.buffer_mut()?)?;
        backend.copy(found_inf.buffer(), self.last.buffer_mut()?)
    }

    /// Counts the same update on the host, or a replay of it.
    pub(super) fn count(&mut self, names: &[String]) {
        if self.count == 0 {
            (self.names, self.count) = (names.to_vec(), 1);
        } else if self.names == names {
            self.count += 1;
        } else {
            self.other = Some(names.to_vec());
        }
    }

    /// Reads how many updates were left out: the parameters with the number of theirs.
    pub(super) fn read(&self) -> Result<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        if self.count == 0 {
            return Ok(all);
        }
        let (missed, last) = (self.missed.item()?, self.last.item()?);
        let before = if self.other.is_some() { missed - last } else { missed };
        let names = self.names.iter().map(|name| (name, before));
        for (name, missed) in names.chain(self.other.iter().flatten().map(|name| (name, last))) {
            *all.entry(name.clone()).or_default() += u64::try_from(missed).unwrap_or(0);
        }
        Ok(all)
    }

    /// Begins again after a read.
    pub(super) fn clear(&mut self) -> Result<()> {
        if self.count > 0 {
            self.missed.write(&[0i32])?;
        }
        (self.count, self.other) = (0, None);
        Ok(())
    }

    pub(super) fn storage(&self, storage: &mut StorageSnapshot) {
        storage.indices(&self.missed);
        storage.indices(&self.last);
    }
}
