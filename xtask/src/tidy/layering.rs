//! The layers: the crates that a crate may import, and the only bound of generic items.

use super::workspace::{Finding, Workspace};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Each crate of the workspace, by its folder, and the workspace's packages that it may depend on, without `kiln-`;
/// `None` stands for all.
const ALLOWED: &[(&str, Option<&[&str]>)] = &[
    ("core", Some(&[])),
    ("derive", Some(&[])),
    ("files", Some(&[])),
    ("audio", Some(&["core", "files"])),
    ("cpu", Some(&["core"])),
    ("link", Some(&[])),
    ("device", Some(&["link"])),
    ("nvcc", Some(&[])),
    ("kernels", Some(&["core", "nvcc"])),
    ("cuda", Some(&["core", "device", "kernels", "nvtx"])),
    ("emulator/ptx", Some(&[])),
    ("emulator/simulator", Some(&["ptx"])),
    ("emulator/driver", Some(&["ptx", "simulator"])),
    ("machine-code", Some(&["ptx"])),
    ("forecast", Some(&["core"])),
    ("nn", Some(&["core", "derive", "files"])),
    ("instances", Some(&["cpu", "cuda", "nn"])),
    (
        "example-kernel",
        Some(&["core", "cpu", "cuda", "kernels", "nn", "nvcc"]),
    ),
    ("tokenizer", Some(&["files"])),
    ("npy", Some(&["core", "files", "nn"])),
    ("models", Some(&["core", "data", "nn", "train"])),
    ("data", Some(&["audio", "core", "derive", "files", "nn", "tokenizer"])),
    ("nvtx", Some(&["core"])),
    ("train", Some(&["core", "files", "nn", "nvtx", "data"])),
    ("monitor", Some(&["train"])),
    ("tensorboard", Some(&["core", "files", "nn", "train"])),
    ("profile", Some(&["core"])),
    ("testkit", Some(&["core", "nn"])),
    ("fuzz", Some(&["core", "cpu", "nn", "data", "simulator"])),
    ("cli", None),
    ("benches", None),
    ("xtask", Some(&["machine-code"])),
];

/// The crates that are generic over a backend: they may name none and have no other bound than `Backend`.
const GENERIC: &[&str] = &[
    "nn",
    "npy",
    "models",
    "data",
    "train",
    "monitor",
    "tensorboard",
    "profile",
    "testkit",
];

/// Folders with a manifest that are excluded from the workspace.
const OUTSIDE: &[&str] = &["benches/peers/candle", "crates/fuzz/libfuzzer"];

/// External crates that only one crate may depend on, and the reason.
const SOLE_USER: &[(&str, &str, &str)] = &[
    ("cust", "device", "every CUDA call goes through one crate"),
    ("proptest", "testkit", "elsewhere it belongs under [dev-dependencies]"),
];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &workspace.files {
        let Some(name) = crate_of(&file.path) else { continue };
        match file.text.parse::<Table>() {
            Ok(manifest) => manifest_rules(name, &file.path, &manifest, &mut found),
            Err(e) => found.push(Finding::new(&file.path, format!("not TOML: {}", e.message()))),
        }
    }
    found.extend(bounds(workspace));
    found
}

/// The crate of a manifest: `nn` for `crates/nn/Cargo.toml`; `None` outside of the workspace.
fn crate_of(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let outside = OUTSIDE.contains(&folder);
    (!outside).then_some(folder.strip_prefix("crates/").unwrap_or(folder))
}

fn manifest_rules(name: &str, path: &str, manifest: &Table, found: &mut Vec<Finding>) {
    let Some((_, allowed)) = ALLOWED.iter().find(|(krate, _)| *krate == name) else {
        let message = "a new crate: give it a row in xtask/src/tidy/layering.rs and in docs/architecture.md";
        found.push(Finding::new(path, message));
        return;
    };
    for (dependency, dev) in dependencies(manifest) {
        let sole = SOLE_USER.iter().find(|(foreign, ..)| *foreign == dependency);
        if let Some((_, user, why)) = sole.filter(|(_, user, _)| !dev && *user != name) {
            found.push(Finding::new(path, format!("`{dependency}` is for {user} alone: {why}")));
        }
        let Some(ours) = dependency.strip_prefix("kiln-") else {
            continue;
        };
        if dev {
            continue;
        }
        if ours == "testkit" && name != "benches" {
            found.push(Finding::new(path, "kiln-testkit belongs under [dev-dependencies]"));
        } else if allowed.is_some_and(|a| !a.contains(&ours)) {
            let below = allowed.unwrap_or(&[]).join(", ");
            let below = if below.is_empty() { "no crate of ours" } else { &below };
            found.push(Finding::new(path, format!("{name} may import {below}, not {ours}")));
        }
    }
    let inherits = manifest.get("lints").and_then(|l| l.get("workspace"));
    if inherits != Some(&Value::Boolean(true)) {
        found.push(Finding::new(path, "lacks `[lints] workspace = true`"));
    }
}

/// Every dependency by its package's name, with true for dev-dependencies; those of `[target.…]` are included.
fn dependencies(manifest: &Table) -> BTreeSet<(String, bool)> {
    let mut all = BTreeSet::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|t| t.values().filter_map(Value::as_table));
    for table in tables.chain([manifest]) {
        for (key, dev) in [
            ("dependencies", false),
            ("build-dependencies", false),
            ("dev-dependencies", true),
        ] {
            for (name, value) in table.get(key).and_then(Value::as_table).into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
                all.insert((package.to_string(), dev));
            }
        }
    }
    all
}

/// Checks that generic items above `core` have exactly the bound `B: Backend`.
fn bounds(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in workspace.sources.iter().filter(|s| GENERIC.contains(&s.krate())) {
        for (at, word) in source.all_words() {
            let before = source.code[..at].trim_end();
            let after = source.code[at + word.len()..].trim_start();
            let bound = before.ends_with('+') || before.ends_with(':') && !before.ends_with("::");
            let wrong = match word {
                "Backend" => before.ends_with('+') || bound && after.starts_with('+'),
                "Runtime" => bound,
                _ => bound && word.len() > 3 && word.ends_with("Ops"),
            };
            if wrong {
                let message = "above core everything generic says exactly `B: Backend`, with no other bound";
                found.push(Finding::new(source.place(at), message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn found(path: &str, manifest: &str) -> Vec<Finding> {
        check(&workspace(&[(path, &format!("{manifest}\n{LINTS}"))]))
    }

    #[test]
    fn an_import_upwards_is_found() {
        let nn = "crates/nn/Cargo.toml";
        assert!(found(nn, "[dependencies]\nkiln-core.workspace = true").is_empty());
        assert_eq!(places(&found(nn, "[dependencies]\nkiln-cpu.workspace = true")), [nn]);
        assert_eq!(
            places(&found(nn, "[target.'cfg(unix)'.dependencies]\nkiln-train = \"1\"")),
            [nn]
        );
        assert_eq!(
            places(&found(nn, "[dependencies]\nb = { package = \"kiln-cuda\" }")),
            [nn]
        );
        assert!(found(nn, "[dev-dependencies]\nkiln-cpu.workspace = true").is_empty());
        let simulator = "crates/emulator/simulator/Cargo.toml";
        assert!(found(simulator, "[dependencies]\nkiln-ptx.workspace = true").is_empty());
        assert_eq!(
            places(&found(simulator, "[dependencies]\nkiln-emulator.workspace = true")),
            [simulator]
        );
    }

    #[test]
    fn a_tool_of_the_tests_stays_with_the_tests() {
        let data = "crates/data/Cargo.toml";
        assert_eq!(
            places(&found(data, "[dependencies]\nkiln-testkit.workspace = true")),
            [data]
        );
        assert_eq!(
            places(&found(data, "[dependencies]\nproptest.workspace = true")),
            [data]
        );
        assert!(found(data, "[dev-dependencies]\nproptest.workspace = true").is_empty());
    }

    #[test]
    fn an_unknown_crate_and_missing_lints_are_found() {
        let new = "crates/new/Cargo.toml";
        assert_eq!(places(&found(new, "")), [new]);
        let cli = workspace(&[("crates/cli/Cargo.toml", "[dependencies]\nkiln-cpu = \"1\"")]);
        assert_eq!(places(&check(&cli)), ["crates/cli/Cargo.toml"]);
    }

    #[test]
    fn a_second_bound_is_found() {
        let one = |text: &str| check(&workspace(&[("crates/nn/src/a.rs", text)])).len();
        assert_eq!(
            one("impl<B: Backend> Tensor<B> {}\nuse kiln_core::{Backend, Runtime};"),
            0
        );
        assert_eq!(
            one("fn f<T: Into<f64>, B: Backend>(b: &B) { ConvOps::conv(b); kiln_core::ConvOps::conv(b) }"),
            0
        );
        assert_eq!(one("fn f<B: Backend + Debug>() {}"), 1);
        assert_eq!(one("fn f<B: Debug + Backend>() {}"), 1);
        assert_eq!(one("fn f<B>() where B: ConvOps {}"), 1);
        assert_eq!(one("fn f<B: Runtime>() {}"), 1);
    }
}
