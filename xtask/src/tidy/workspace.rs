//! The files that rules check, and their findings.

use super::source::Source;
use crate::workspace::{self, File};
use std::path::Path;

/// A broken rule, or a warning, at a place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    /// A path with a line, such as `crates/nn/src/lib.rs:12`, or a path alone.
    pub(super) place: String,
    /// The fault, and its remedy.
    pub(super) message: String,
    /// True for a warning: it is printed, and `tidy` succeeds.
    pub(super) note: bool,
}

impl Finding {
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Finding {
            place: place.into(),
            message: message.into(),
            note: false,
        }
    }
}

/// The files of the workspace.
pub(super) struct Workspace {
    pub(super) files: Vec<File>,
    /// The Rust files, with comments and strings separated from code.
    pub(super) sources: Vec<Source>,
}

impl Workspace {
    pub(super) fn new(files: Vec<File>) -> Self {
        let sources = files
            .iter()
            .filter(|f| f.path.ends_with(".rs"))
            .map(Source::new)
            .collect();
        Workspace { files, sources }
    }

    pub(super) fn read(root: &Path) -> Result<Self, String> {
        workspace::files(root).map(Workspace::new)
    }
}
