//! `cargo xtask tidy`: the rules of docs/architecture.md that a machine can keep.
//!
//! Each rule is a function from the workspace's files to findings, so a test can hand it a small house with one fault.

mod checks;
mod files;
mod layering;
mod source;
mod stems;
mod unsafety;

use crate::workspace::{self, File, Outcome};
use source::Source;
use std::path::Path;

/// A broken rule, or a warning, at a place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// `crates/nn/src/lib.rs:12`, or a path alone.
    place: String,
    /// What is wrong and what to do.
    message: String,
    /// Whether it is worth a line but not a failure.
    note: bool,
}

impl Finding {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Finding {
            place: place.into(),
            message: message.into(),
            note: false,
        }
    }
}

/// The whole house as the rules see it.
struct House {
    files: Vec<File>,
    /// The Rust files among them, with comments and strings told apart from code.
    sources: Vec<Source>,
}

impl House {
    fn new(files: Vec<File>) -> Self {
        let sources = files
            .iter()
            .filter(|f| f.path.ends_with(".rs"))
            .map(Source::new)
            .collect();
        House { files, sources }
    }

    fn read(root: &Path) -> Result<Self, String> {
        workspace::files(root).map(House::new)
    }

    fn check(&self) -> Vec<Finding> {
        let mut found = stems::check(self);
        found.extend(layering::check(self));
        found.extend(unsafety::check(self));
        found.extend(files::check(self));
        found.extend(checks::check(self));
        found.sort();
        found
    }
}

pub(crate) fn run() -> Outcome {
    let house = House::read(&workspace::root())?;
    let found = house.check();
    for f in &found {
        println!("{}{}: {}", if f.note { "note: " } else { "" }, f.place, f.message);
    }
    let faults = found.iter().filter(|f| !f.note).count();
    match faults {
        0 => println!("tidy: {} files, every rule holds", house.files.len()),
        1 => println!("tidy: 1 rule broken"),
        n => println!("tidy: {n} rules broken"),
    }
    Ok(faults == 0)
}

/// The broken rules of the workspace at `root`, one line each.
#[cfg(test)]
pub(crate) fn faults(root: &Path) -> Result<Vec<String>, String> {
    let found = House::read(root)?.check();
    let faults = found.into_iter().filter(|f| !f.note);
    Ok(faults.map(|f| format!("{}: {}", f.place, f.message)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A house of the given files.
    pub(super) fn house(files: &[(&str, &str)]) -> House {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        House::new(files.iter().map(file).collect())
    }

    /// The places of the findings that fail.
    pub(super) fn places(found: &[Finding]) -> Vec<&str> {
        found.iter().filter(|f| !f.note).map(|f| &f.place[..]).collect()
    }

    #[test]
    fn the_workspace_is_tidy() {
        let found = House::read(&workspace::root())
            .expect("the workspace can be read")
            .check();
        let faults: Vec<_> = found.iter().filter(|f| !f.note).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
