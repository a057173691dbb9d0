//! `cargo xtask tidy`: checks the rules of docs/architecture.md that can be checked automatically.
//!
//! Each rule is a function from the workspace's files to findings, so a test can call it on a small workspace with one fault.

mod checks;
mod circles;
mod files;
mod generated;
mod layering;
mod modules;
mod op_modules;
mod source;
mod unsafety;
mod words;
mod workspace;

use crate::workspace::{Outcome, root};
#[cfg(test)]
use std::path::Path;
use workspace::{Finding, Workspace};

/// The findings of every rule, sorted by place.
fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = op_modules::check(workspace);
    found.extend(layering::check(workspace));
    found.extend(unsafety::check(workspace));
    found.extend(files::check(workspace));
    found.extend(checks::check(workspace));
    found.extend(circles::check(workspace));
    found.extend(generated::check(workspace));
    found.extend(words::check(workspace));
    found.sort();
    found
}

pub(crate) fn run() -> Outcome {
    let workspace = Workspace::read(&root())?;
    let found = check(&workspace);
    for f in &found {
        println!("{}{}: {}", if f.note { "note: " } else { "" }, f.place, f.message);
    }
    let faults = found.iter().filter(|f| !f.note).count();
    match faults {
        0 => println!("tidy: {} files, every rule holds", workspace.files.len()),
        1 => println!("tidy: 1 rule broken"),
        n => println!("tidy: {n} rules broken"),
    }
    Ok(faults == 0)
}

/// The broken rules of the workspace at `root`, one line each.
#[cfg(test)]
pub(crate) fn faults(root: &Path) -> Result<Vec<String>, String> {
    let found = check(&Workspace::read(root)?);
    let faults = found.into_iter().filter(|f| !f.note);
    Ok(faults.map(|f| format!("{}: {}", f.place, f.message)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::File;

    /// A workspace of the given files.
    pub(super) fn workspace(files: &[(&str, &str)]) -> Workspace {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        Workspace::new(files.iter().map(file).collect())
    }

    /// The places of the findings that fail.
    pub(super) fn places(found: &[Finding]) -> Vec<&str> {
        found.iter().filter(|f| !f.note).map(|f| &f.place[..]).collect()
    }

    #[test]
    fn the_workspace_is_tidy() {
        let found = check(&Workspace::read(&root()).expect("the workspace can be read"));
        let faults: Vec<_> = found.iter().filter(|f| !f.note).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
