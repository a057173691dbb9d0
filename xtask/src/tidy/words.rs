//! Names use the field's own words: private words are refused, with a replacement for each.

use super::workspace::{Finding, Workspace};

/// Refused words in names (separated by underscores and capitals), each with its replacement. docs/glossary.md explains the
/// replacements.
const REFUSED: &[(&str, &str)] = &[
    ("rung", "variant"),
    ("rungs", "variants"),
    ("ladder", "variants"),
    ("rectifies", "activation or applies_slope"),
    ("rectify", "mask_relu"),
    ("rectified", "slope_applied"),
    ("descend", "optimizer_step"),
    ("weigh", "scale_loss"),
    ("suits", "is_profitable or is_supported"),
];

/// Refused whole names, each with its replacement.
const NAMES: &[(&str, &str)] = &[
    ("ALONE", "SERIAL_THRESHOLD"),
    ("WATCHES", "an Observer"),
    ("by_columns", "gemm_tn_segmented"),
    ("by_panels", "gemm_tn"),
    ("by_dots", "gemm_nt_small"),
    ("take_back", "rollback"),
    ("read_every", "log_every"),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        // This file has the refused words in its tables and tests.
        if source.path.ends_with("xtask/src/tidy/words.rs") {
            continue;
        }
        for (at, word) in source.all_words() {
            if let Some(instead) = instead(word) {
                found.push(Finding::new(
                    source.place(at),
                    format!("`{word}`: the field says {instead}"),
                ));
            }
        }
        let stem = source.path.rsplit('/').next().unwrap_or_default();
        if let Some(instead) = instead(stem.trim_end_matches(".rs")) {
            found.push(Finding::new(
                &source.path,
                format!("the name of the file: the field says {instead}"),
            ));
        }
    }
    found
}

/// The replacement for a refused name.
fn instead(name: &str) -> Option<&'static str> {
    let whole = NAMES.iter().find(|(refused, _)| *refused == name);
    let part = REFUSED
        .iter()
        .find(|(refused, _)| parts(name).any(|part| part == *refused));
    whole.or(part).map(|(_, instead)| *instead)
}

/// The words of a name in lower case: `every_rung`, `EveryRung` and `EVERY_RUNG` have the same two.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    let mut lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && lower) {
            spaced.push(' ');
        }
        lower = c.is_lowercase() || c.is_numeric();
        if c != '_' {
            spaced.extend(c.to_lowercase());
        }
    }
    spaced.split(' ').map(String::from).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    #[test]
    fn private_words_are_found_in_names_and_not_in_others() {
        let text = "fn every_rung() {}\nstruct EveryRung;\nconst ALONE: u8 = 0;\nfn strung() {}\n// a rung\n";
        let found = check(&workspace(&[
            ("crates/cpu/src/a.rs", text),
            ("crates/cpu/src/ladder.rs", ""),
        ]));
        let expected = [
            "crates/cpu/src/a.rs:1",
            "crates/cpu/src/a.rs:2",
            "crates/cpu/src/a.rs:3",
            "crates/cpu/src/ladder.rs",
        ];
        assert_eq!(places(&found), expected);
    }
}
