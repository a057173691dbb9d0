//! What to do with bad records, and the account of those left out.

use crate::{DataError, Result};

/// What a reader does with a record that is broken while the file around it is sound.
///
/// Faults of the file itself (magic, header, counts, a file cut short in its header) are errors under either policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BadRecords {
    /// The first bad record is an error.
    #[default]
    Refuse,
    /// Bad records are left out, counted and listed in [`Skipped`].
    Skip,
}

/// The records left out under [`BadRecords::Skip`].
#[derive(Debug, Default)]
pub struct Skipped {
    count: u64,
    listed: Vec<DataError>,
}

impl Skipped {
    /// How many reasons are kept; the count goes on past it, so a file of nothing but bad records costs no memory.
    pub const LISTED: usize = 1000;

    /// How many records were left out.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Why, each naming its file and record: the first [`Skipped::LISTED`] of them.
    pub fn reasons(&self) -> &[DataError] {
        &self.listed
    }

    /// Applies the policy to a bad record.
    pub(crate) fn note(&mut self, policy: BadRecords, error: DataError) -> Result<()> {
        match policy {
            BadRecords::Refuse => Err(error),
            BadRecords::Skip => {
                self.count += 1;
                if self.listed.len() < Self::LISTED {
                    self.listed.push(error);
                }
                Ok(())
            }
        }
    }
}
