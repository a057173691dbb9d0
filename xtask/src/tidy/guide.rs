//! The guide's table of PyTorch's names has those of the documentation.

use super::workspace::{Finding, Workspace};
use crate::names;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let written = workspace.files.iter().find(|f| f.path == names::PATH);
    match written {
        Some(file) if file.text != names::table(&workspace.files) => {
            vec![Finding::new(names::PATH, "not what `cargo xtask names` writes")]
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    #[test]
    fn a_table_that_is_old_is_found() {
        let source = "/// A sum (`torch.sum`).\npub fn sum() {}\n";
        let old = workspace(&[("crates/nn/src/a.rs", source), (names::PATH, "# PyTorch's names\n")]);
        assert_eq!(places(&check(&old)), [names::PATH]);
        let table = names::table(&old.files);
        assert!(table.contains("| `torch.sum` | `sum` |"));
        let new = workspace(&[("crates/nn/src/a.rs", source), (names::PATH, &table)]);
        assert_eq!(places(&check(&new)), [""; 0]);
    }
}
