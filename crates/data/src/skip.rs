//! The policy for bad records, and the list of those left out.

use crate::{DataError, Result};
use std::path::Path;

/// The policy for a record that is broken while the file around it is sound.
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
    /// The largest number of reasons kept; records beyond it are only counted, so that their memory is bounded.
    pub const LISTED: usize = 1000;

    /// The number of records that were left out.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The errors of the first [`Skipped::LISTED`] records left out; each names its file and record.
    pub fn reasons(&self) -> &[DataError] {
        &self.listed
    }

    /// The error of a dataset of which nothing is left: [`DataError::AllBad`], or [`DataError::Empty`] if none was bad.
    pub(crate) fn nothing_left(mut self, path: &Path, expected: &'static str) -> DataError {
        let path = path.to_path_buf();
        match self.listed.is_empty() {
            true => DataError::Empty { path, expected },
            false => DataError::AllBad {
                path,
                count: self.count,
                first: Box::new(self.listed.swap_remove(0)),
            },
        }
    }

    /// Applies the policy to a bad record: returns its error or counts it.
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
