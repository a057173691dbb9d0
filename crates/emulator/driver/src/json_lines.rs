//! Files with a line of JSON for each thing that happens.

use std::fmt::Arguments;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use crate::config::Config;

/// A file of lines.
pub(crate) struct JsonLines(Mutex<File>);

impl JsonLines {
    /// Makes the file anew; says so when that cannot be done. `what` is its name in the message.
    pub(crate) fn new(config: &Config, path: Option<&Path>, what: &str) -> Option<Self> {
        let path = path?;
        match File::create(path) {
            Ok(file) => Some(Self(Mutex::new(file))),
            Err(e) => {
                config.say(format_args!("cannot write the {what} {}: {e}", path.display()));
                None
            }
        }
    }

    /// Writes a line in one call, so that a program which ends at any time leaves whole lines.
    pub(crate) fn line(&self, text: Arguments<'_>) {
        let mut file = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // When the disk is full, the lines end here.
        let _ = file.write_all(format!("{text}\n").as_bytes());
    }
}
