//! The tokens of a long text in memory, in two bytes each where the vocabulary allows.

use crate::Result;
use crate::error::reserve;

/// The purpose of the memory, in errors.
const WHAT: &str = "the tokens of a text";

/// The ids of tokens.
#[derive(Debug, Clone)]
pub(super) enum Ids {
    Small(Vec<u16>),
    Large(Vec<u32>),
}

impl Ids {
    /// No ids below `vocabulary`, with room for so many.
    ///
    /// # Errors
    /// [`DataError::OutOfMemory`](crate::DataError::OutOfMemory).
    pub(super) fn new(vocabulary: usize, room: usize) -> Result<Self> {
        Ok(match vocabulary <= 1 << 16 {
            true => {
                let mut ids = Vec::new();
                reserve(&mut ids, room, WHAT)?;
                Ids::Small(ids)
            }
            false => {
                let mut ids = Vec::new();
                reserve(&mut ids, room, WHAT)?;
                Ids::Large(ids)
            }
        })
    }

    /// Adds an id.
    ///
    /// # Errors
    /// [`DataError::OutOfMemory`](crate::DataError::OutOfMemory).
    pub(super) fn push(&mut self, id: u32) -> Result<()> {
        match self {
            Ids::Small(ids) => {
                if ids.len() == ids.capacity() {
                    reserve(ids, ids.len().max(1024), WHAT)?;
                }
                ids.push(id as u16);
            }
            Ids::Large(ids) => {
                if ids.len() == ids.capacity() {
                    reserve(ids, ids.len().max(1024), WHAT)?;
                }
                ids.push(id);
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Ids::Small(ids) => ids.len(),
            Ids::Large(ids) => ids.len(),
        }
    }

    /// The id at a place, which must be one.
    pub(super) fn get(&self, at: usize) -> i32 {
        match self {
            Ids::Small(ids) => ids[at].into(),
            Ids::Large(ids) => ids[at] as i32,
        }
    }
}
