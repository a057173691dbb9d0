//! Rules about single files: length, unfinished work, tests that do not run.

use super::workspace::{Finding, Workspace};

/// The number of lines above which there is a warning.
const SOFT: usize = 500;
/// The number of lines above which the check fails.
const HARD: usize = 600;

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &workspace.files {
        let counted = [".rs", ".cu", ".cuh", ".c", ".h", ".py"];
        // A list that a task writes has as many rows as there are.
        if !counted.iter().any(|e| file.path.ends_with(e)) || file.path == crate::instances::PATH {
            continue;
        }
        let lines = file.text.lines().count();
        if lines > SOFT {
            found.push(Finding {
                note: lines <= HARD,
                ..Finding::new(
                    &file.path,
                    format!("{lines} lines; a file is one idea in about {SOFT}, and never over {HARD}"),
                )
            });
        }
    }
    for source in &workspace.sources {
        for word in ["todo", "unimplemented"] {
            for at in source.words(word) {
                if source.code[at + word.len()..].starts_with('!') {
                    found.push(Finding::new(
                        source.place(at),
                        format!("`{word}!` is not an implementation"),
                    ));
                }
            }
        }
        for at in source.words("ignore") {
            if source.code[..at].trim_end().ends_with('[') {
                found.push(Finding::new(
                    source.place(at),
                    "an ignored test proves nothing: make it pass, or take it out and say what is missing",
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    #[test]
    fn long_files_are_found() {
        let lines = |n: usize| "x\n".repeat(n);
        for (n, found, notes) in [(500, 0, 0), (501, 0, 1), (600, 0, 1), (601, 1, 0)] {
            let all = check(&workspace(&[("crates/nn/src/a.rs", &lines(n))]));
            assert_eq!(
                (places(&all).len(), all.iter().filter(|f| f.note).count()),
                (found, notes),
                "{n} lines"
            );
        }
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = "fn a() { todo!() }\n#[ignore = \"slow\"]\nfn b() {}\nfn c() { unimplemented!(\"later\") }\n\
                    #[test]\n#[ignore]\nfn d() { let ignore = \"todo!()\"; } // todo!()";
        let all = check(&workspace(&[("crates/nn/src/a.rs", text)]));
        let expected = [1, 4, 2, 6].map(|line| format!("crates/nn/src/a.rs:{line}"));
        assert_eq!(places(&all), expected);
    }
}
