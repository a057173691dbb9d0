//! `cargo xtask new-op NAME`: makes the files of a new op family, one in every layer.

#[cfg(test)]
mod tests;

use crate::instances;
use crate::workspace::{Outcome, root};
use std::path::Path;

#[derive(clap::Args)]
#[command(after_help = "\
The scaffold is a whole op that passes its tests: `y = factor·x`. Replace the formula layer by layer, from core to
testkit; docs/adding-an-op.md is the walk. An op of an existing family needs no scaffold: it goes into that family's
files. An op composed of others needs crates/nn and crates/testkit alone.")]
pub(crate) struct Args {
    /// The family's name, such as `grid_sample`, for file, method and (as `GridSampleOps`) trait
    name: String,
}

/// The files of a new family: folder, extension and template.
const FILES: &[(&str, &str, &str)] = &[
    ("crates/core/src/ops", "rs", include_str!("templates/core.rs.txt")),
    (
        "crates/core/src/checks",
        "rs",
        include_str!("templates/core_check.rs.txt"),
    ),
    ("crates/cpu/src/ops", "rs", include_str!("templates/cpu.rs.txt")),
    ("kernels/src", "cu", include_str!("templates/kernel.cu.txt")),
    ("crates/cuda/src/ops", "rs", include_str!("templates/cuda.rs.txt")),
    ("crates/nn/src/ops", "rs", include_str!("templates/nn.rs.txt")),
    ("crates/profile/src/ops", "rs", include_str!("templates/profile.rs.txt")),
    ("crates/testkit/src/ops", "rs", include_str!("templates/testkit.rs.txt")),
];

/// The files that list every family, and the line to add for a new one. After an arrow follows the beginning of the line before
/// which it is inserted; lines without an arrow are inserted into a list by [`enter`].
const LISTS: &[(&str, &str)] = &[
    ("crates/core/src/ops/mod.rs", "mod @name@;"),
    ("crates/core/src/ops/mod.rs", "pub use @name@::*;"),
    ("crates/core/src/checks/mod.rs", "mod @name@;"),
    ("crates/core/src/checks/mod.rs", "pub use @name@::*;"),
    ("crates/core/src/backend.rs", "+ @Name@Ops"),
    (
        "crates/core/src/op.rs",
        "        /// [`@Name@Ops::@name@`](crate::ops::@Name@Ops::@name@) → /// [`OptimOps::sgd`]",
    ),
    (
        "crates/core/src/op.rs",
        "        @Name@ = \"@name@\", → /// [`OptimOps::sgd`]",
    ),
    ("crates/cpu/src/ops/mod.rs", "mod @name@;"),
    ("crates/cuda/src/ops/mod.rs", "mod @name@;"),
    ("crates/nn/src/ops/mod.rs", "mod @name@;"),
    ("crates/profile/src/ops/mod.rs", "mod @name@;"),
    ("crates/testkit/src/ops/mod.rs", "pub mod @name@;"),
    (
        "crates/testkit/src/reference.rs",
        "impl kiln_core::ops::@Name@Ops for Reference {} → impl AttentionOps for",
    ),
    (
        "crates/testkit/src/suites.rs",
        "            ops::@name@ { @name@, refused } → ::golden",
    ),
];

pub(crate) fn run(args: &Args) -> Outcome {
    for path in scaffold(&root(), &args.name)? {
        println!("{path}");
    }
    let name = &args.name;
    println!(
        "\nIt compiles and its tests pass:\n  cargo test -p kiln-testkit {name}\n  cargo test -p kiln-cuda {name}"
    );
    println!("A test asks for a right call of it in crates/testkit/src/misfit/calls, to spoil it.");
    println!("Now put the op's formula where the scaffold has `y = factor·x`, from core down.");
    Ok(true)
}

/// Writes the family `name` into the workspace at `root`; returns the written files. After an error nothing is written.
fn scaffold(root: &Path, name: &str) -> Result<Vec<String>, String> {
    check_name(name)?;
    let mut written: Vec<(String, String)> = Vec::new();
    for (folder, extension, template) in FILES {
        let path = format!("{folder}/{name}.{extension}");
        if root.join(&path).exists() || root.join(folder).join(name).exists() {
            return Err(format!("{path} exists: an op of that family goes into its files"));
        }
        written.push((path, fill(template, name)));
    }
    for (path, line) in LISTS {
        let text = match written.iter().find(|(p, _)| p == path) {
            Some((_, text)) => text.clone(),
            None => std::fs::read_to_string(root.join(path)).map_err(|e| format!("cannot read {path}: {e}"))?,
        };
        let text = enter(&text, &fill(line, name)).ok_or_else(|| format!("{path}: no list to enter `{name}` into"))?;
        written.retain(|(p, _)| p != path);
        written.push((path.to_string(), text));
    }
    for (path, text) in &written {
        std::fs::write(root.join(path), text).map_err(|e| format!("cannot write {path}: {e}"))?;
    }
    instances::write(root)?;
    Ok(written.into_iter().map(|(path, _)| path).collect())
}

fn check_name(name: &str) -> Result<(), String> {
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with('_')
        && !name.contains("__");
    // Rust keywords that could be the name of an op.
    let taken = [
        "as", "box", "const", "do", "dyn", "if", "in", "let", "loop", "match", "mod", "move", "ref", "type",
    ];
    if sound && !taken.contains(&name) {
        Ok(())
    } else {
        Err(format!(
            "`{name}` cannot name an op: use lower-case words joined by `_`, such as `grid_sample`"
        ))
    }
}

/// A template with the names filled in.
fn fill(template: &str, name: &str) -> String {
    let words: Vec<&str> = name.split('_').collect();
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    let camel: String = words.iter().map(|w| capital(w)).collect();
    let lower = words.join(" ");
    template
        .replace("@title@", &capital(&lower))
        .replace("@title_lower@", &lower)
        .replace("@Name@", &camel)
        .replace("@NAME@", &name.to_uppercase())
        .replace("@name@", name)
}

/// `text` with `line` inserted into the list that it belongs to: `mod` lines and `pub use` lines in alphabetical order, a
/// bound at the end of every list of bounds.
fn enter(text: &str, line: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    if let Some((line, next)) = line.split_once(" → ") {
        let at = lines.iter().position(|l| l.trim_start().starts_with(next))?;
        lines.insert(at, line.to_string());
        Some(lines.join("\n") + "\n")
    } else if line.starts_with('+') {
        let ends: Vec<usize> = (0..lines.len()).filter(|&i| ends_bounds(&lines, i)).collect();
        for &i in ends.iter().rev() {
            let indent = &lines[i][..lines[i].len() - lines[i].trim_start().len()];
            let entry = format!("{indent}{line}");
            lines.insert(i + 1, entry);
        }
        (!ends.is_empty()).then(|| lines.join("\n") + "\n")
    } else {
        let key = |l: &str| -> Option<String> {
            let (module, used) = (
                l.strip_prefix("mod ").or(l.strip_prefix("pub mod ")),
                l.strip_prefix("pub use "),
            );
            let own = if line.contains("use ") { used } else { module };
            own.filter(|_| l.ends_with(';')).map(String::from)
        };
        let new = key(line)?;
        let listed: Vec<(usize, String)> = (0..lines.len()).filter_map(|i| Some((i, key(&lines[i])?))).collect();
        let after = listed.iter().rev().find(|(_, k)| *k < new).map(|(i, _)| i + 1);
        lines.insert(after.or(listed.first().map(|(i, _)| *i))?, line.to_string());
        Some(lines.join("\n") + "\n")
    }
}

/// True if line `i` is the last `+ SomethingOps` of a list.
fn ends_bounds(lines: &[String], i: usize) -> bool {
    let bound = |i: usize| lines.get(i).is_some_and(|l| l.trim_start().starts_with("+ "));
    bound(i) && !bound(i + 1)
}
