//! `cargo xtask names`: the guide's table of PyTorch's names, made from the documentation of `kiln-nn`.

use crate::workspace::{File, Outcome, root};
use std::collections::{BTreeMap, BTreeSet};

/// The file of the table.
pub(crate) const PATH: &str = "docs/guide/pytorch.md";

const HEAD: &str = "\
# PyTorch's names

What `torch` calls it, and what `kiln_nn` does. Made by `cargo xtask names` from the documentation of the items, which says what differs.
Methods are those of `Tensor` and `Indices`; images are channels-last. Where PyTorch has one name for each number of dimensions
(`Conv1d`, `conv1d`), the table has one of them.
";

const SECTIONS: [(&str, &str); 5] = [
    ("torch.nn.functional.", "Functions"),
    ("torch.nn.", "Layers and initial values"),
    ("torch.optim", "Optimizers and schedules"),
    ("torch.autograd", "Gradients"),
    ("", "Tensors"),
];

/// Items by the PyTorch names that their documentation gives.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The names in backquotes that begin with `torch`.
fn torch_names(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| name.starts_with("torch") && name.contains('.') && name.chars().all(is_path))
}

fn is_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// The identifier that a text begins with.
fn identifier(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    &text[..end]
}

/// The type that `impl… for Type` or `impl… Type` is of.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let mut depth = 0;
    let end = rest.find(|c: char| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c == ' '
    })?;
    let rest = rest[end..].trim_start();
    Some(identifier(rest.split_once(" for ").map_or(rest, |(_, of)| of)))
}

/// The item that a line declares: a function or a type, an optimizer in `optimizer!`, or a method in a table of them.
fn declared(line: &str) -> Option<(bool, &str)> {
    if let Some(rest) = line.trim_start().strip_prefix("pub ") {
        let (kind, rest) = rest.split_once(' ')?;
        return match kind {
            "fn" => Some((true, identifier(rest))),
            "struct" | "enum" | "type" | "trait" => Some((false, identifier(rest))),
            _ => None,
        };
    }
    if let Some((name, rule)) = line.trim().strip_suffix(" {").and_then(|row| row.split_once(", ")) {
        return (rule == format!("{name}Rule")).then_some((false, name));
    }
    // A row of a macro that makes methods: `name => …;`, `name, other => …;` or `name(…) => …;`.
    let row = line
        .strip_prefix("    ")
        .filter(|row| row.contains(" => ") && row.ends_with(';'))?;
    Some((true, identifier(row))).filter(|(_, name)| !name.is_empty())
}

/// Adds the names in the documentation of public items.
fn documented(text: &str, names: &mut Names) {
    let (mut doc, mut of) = (String::new(), "");
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(more) = trimmed.strip_prefix("///") {
            doc.push_str(more);
            continue;
        }
        if trimmed.starts_with("#[") {
            continue;
        }
        of = implemented(line).unwrap_or(of);
        if let Some((function, name)) = declared(line) {
            let method = function && line.starts_with("    ");
            let item = if method {
                format!("{of}::{name}")
            } else {
                name.to_string()
            };
            for torch in torch_names(&doc) {
                names.entry(torch.into()).or_default().insert(item.clone());
            }
        }
        doc.clear();
    }
}

/// Adds the rows of the table of pointwise functions.
fn functions(text: &str, names: &mut Names) {
    let (mut variant, mut method) = ("", "");
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {").filter(|name| identifier(name) == *name) {
            variant = name;
        }
        for kind in ["function ", "custom "] {
            method = line.strip_prefix(kind).map_or(method, identifier);
        }
        for (key, item) in [
            ("torch: \"", format!("Tensor::{method}")),
            ("layer: \"", variant.to_string()),
        ] {
            if let Some((torch, _)) = line.split_once(key).and_then(|(_, rest)| rest.split_once('"'))
                && torch.starts_with("torch.")
            {
                names.entry(torch.into()).or_default().insert(item);
            }
        }
    }
}

/// The text of the table.
pub(crate) fn table(files: &[File]) -> String {
    let mut names = Names::new();
    for file in files {
        if file.path.starts_with("crates/nn/src/") && file.path.ends_with(".rs") {
            documented(&file.text, &mut names);
        }
        if file.path == "crates/core/src/ops/elementwise/functions.rs" {
            functions(&file.text, &mut names);
        }
    }
    let mut text = HEAD.to_string();
    for (i, (prefix, title)) in SECTIONS.iter().enumerate() {
        let here = |name: &str| name.starts_with(prefix) && !SECTIONS[..i].iter().any(|(p, _)| name.starts_with(p));
        text += &format!("\n## {title}\n\n| PyTorch | Kiln |\n|---|---|\n");
        for (torch, items) in names.iter().filter(|(name, _)| here(name)) {
            let items: Vec<String> = items.iter().map(|item| format!("`{item}`")).collect();
            text += &format!("| `{torch}` | {} |\n", items.join(", "));
        }
    }
    text
}

/// Writes the table.
pub(crate) fn run() -> Outcome {
    let files = crate::workspace::files(&root())?;
    std::fs::write(root().join(PATH), table(&files)).map_err(|e| format!("cannot write {PATH}: {e}"))?;
    println!("{PATH} is written");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_items_they_document() {
        let text = "\
impl<B: Backend> Layer<B> for Net<B> {
    /// A sum (`torch.sum`), as [`Tensor`] has it.
    #[must_use]
    pub fn sum(&self) {}
}
/// A layer (`torch.nn.Linear`, `no.name`).
pub struct Linear;
/// An optimizer (`torch.optim.NAdam`).
    NAdam, NAdamRule {
/// `torch.lost` is not an item's.

pub fn other() {}
";
        let mut names = Names::new();
        documented(text, &mut names);
        let found: Vec<String> = names
            .iter()
            .map(|(torch, items)| format!("{torch} {items:?}"))
            .collect();
        let want = [
            "torch.nn.Linear {\"Linear\"}",
            "torch.optim.NAdam {\"NAdam\"}",
            "torch.sum {\"Net::sum\"}",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn functions_and_their_layers_are_in_the_table() {
        let path = "crates/core/src/ops/elementwise/functions.rs".to_string();
        let text =
            "Celu {\n    custom celu(alpha = 1.0), torch: \"torch.nn.functional.celu\", layer: \"torch.nn.CELU\",\n"
                .to_string();
        let table = table(&[File { path, text }]);
        assert!(
            table.contains("| `torch.nn.functional.celu` | `Tensor::celu` |"),
            "{table}"
        );
        assert!(table.contains("| `torch.nn.CELU` | `Celu` |"), "{table}");
    }
}
