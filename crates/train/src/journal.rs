//! The journal of a run: what was asked of it while it was in progress.

use crate::kept::Kept;
use crate::{Result, RunFolder, Warning};
use kiln_files::{FileError, Folder};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

/// The seconds of a day.
const DAY: u64 = 86_400;

/// A request to a run in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A stop.
    Stop,
    /// A checkpoint.
    Save {
        /// The name of its manifest; `None` for a run that writes no checkpoints.
        checkpoint: Option<String>,
    },
    /// Another learning rate.
    Lr {
        /// The name of the phase; empty where there is one alone.
        phase: String,
        /// The rate that the next update would have had.
        from: f64,
        /// The rate that the next update has.
        to: f64,
    },
    /// The run went on from the checkpoint of this step. What stands above under later steps was undone by that.
    Resume,
}

/// An entry of the journal of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The time by the clock of the machine, in UTC: `2026-01-31T12:00:00Z`.
    pub time: String,
    /// The number of steps of the run before, those skipped included, as in the names of checkpoints.
    pub step: u64,
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// The number of batches of the epoch before.
    pub batch: u64,
    /// The request.
    #[serde(flatten)]
    pub event: Event,
}

impl std::fmt::Display for JournalEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = self.step;
        match &self.event {
            Event::Stop => write!(f, "stop after step {step}"),
            Event::Save { checkpoint: Some(_) } => write!(f, "checkpoint after step {step}"),
            Event::Save { checkpoint: None } => write!(f, "no checkpoint: the run writes none"),
            Event::Lr { phase, from, to } => {
                let of = if phase.is_empty() { "" } else { " of " };
                write!(f, "learning rate{of}{phase} {from:.3e} to {to:.3e} after step {step}")
            }
            Event::Resume => write!(f, "resumed after step {step}"),
        }
    }
}

/// A time in UTC, to the second (RFC 3339).
pub(crate) fn utc(time: SystemTime) -> String {
    // A clock before 1970 is wrong in any case.
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / DAY, seconds % DAY);
    // Days are counted from 1 March of the year 0, so that the leap day is the last of a year: 400 years have 146,097 days. The
    // method is that of Howard Hinnant, "chrono-compatible low-level date algorithms".
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z",
        second % 60
    )
}

/// The journal in the folder of a run. The file is made with the first entry.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<Kept>);

impl Journal {
    /// Adds an entry to the file.
    pub(crate) fn push(&mut self, folder: &Folder, entry: &JournalEntry) -> Result<()> {
        let name = RunFolder::JOURNAL;
        let path = folder.path().join(name);
        let failed = |e: serde_json::Error| FileError::io(&path, "encode")(e.into());
        let mut line = serde_json::to_vec(entry).map_err(failed)?;
        line.push(b'\n');
        match &mut self.0 {
            Some(kept) => kept.append(&line),
            none if folder.contains(name) => {
                // The journal of the run that goes on; a kill may have left a part of a line.
                let mut text = Vec::new();
                let read = folder.open_file(name, false)?.read_to_end(&mut text);
                read.map_err(FileError::io(&path, "read"))?;
                text.truncate(text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1));
                text.extend(line);
                *none = Some(Kept::replace(folder, name.as_ref(), text)?);
                Ok(())
            }
            none => none.insert(Kept::create(folder, name.as_ref())?).append(&line),
        }
    }

    /// Writes the file again if it was removed or changed from outside.
    pub(crate) fn restore(&mut self) -> Result<Option<Warning>> {
        self.0.as_mut().map_or(Ok(None), Kept::restore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        // Every day is the one after the day before.
        let mut last = at(0);
        for day in 1..100_000 {
            let next = at(DAY * day);
            assert!(next > last, "{last} and {next}");
            last = next;
        }
    }
}
