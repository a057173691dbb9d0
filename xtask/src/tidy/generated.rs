//! Files that a task makes from others are as it makes them.

use super::workspace::{Finding, Workspace};
use crate::workspace::File;
use crate::{instances, names};

/// The path of each file, the task, and the text that it makes.
type Made = (&'static str, &'static str, fn(&[File]) -> String);

const MADE: [Made; 2] = [
    (names::PATH, "names", names::table),
    (instances::PATH, "instances", instances::list),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let written = |path| workspace.files.iter().find(move |f| f.path == path);
    let mut found = Vec::new();
    for (path, task, text) in MADE {
        if written(path).is_some_and(|f| f.text != text(&workspace.files)) {
            found.push(Finding::new(path, format!("not what `cargo xtask {task}` writes")));
        }
    }
    for file in &workspace.files {
        for line in instances::unmarked(file) {
            let place = format!("{}:{line}", file.path);
            found.push(Finding::new(
                place,
                "ops that every program compiles again: mark the block `#[compiled_once]`",
            ));
        }
    }
    found
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

    #[test]
    fn a_block_that_is_not_marked_is_found() {
        let block = "impl<B: Backend> Tensor<B> {\n}\n";
        let marked = format!("#[compiled_once]\n{block}");
        let files = [
            ("crates/nn/src/ops/a.rs", block),
            ("crates/nn/src/ops/b.rs", &marked[..]),
        ];
        assert_eq!(places(&check(&workspace(&files))), ["crates/nn/src/ops/a.rs:1"]);
    }
}
