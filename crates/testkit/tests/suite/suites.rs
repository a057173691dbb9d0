//! The list of suites is complete.

use kiln_testkit::SUITES;
use std::collections::BTreeSet;
use std::path::Path;

/// The suites that the files below `folder` define: functions whose only argument is a backend.
fn defined(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            defined(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|line| {
                let (name, rest) = line.strip_prefix("pub fn ")?.split_once('<')?;
                rest.starts_with("B: Backend>(backend: &B) {").then_some(name)
            });
            let sources = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
            // The suites of src/ops/index/join.rs belong to the module `index`, as those of src/ops/index.rs do.
            let parts: Vec<_> = sources
                .iter()
                .skip(1)
                .map(|p| p.to_string_lossy().into_owned())
                .collect();
            let module = if parts[0] == "ops" { &parts[1] } else { &parts[0] };
            let module = module.trim_end_matches(".rs");
            found.extend(names.map(|name| format!("{module}::{name}")));
        }
    }
}

#[test]
fn every_suite_is_listed() {
    let mut found = BTreeSet::new();
    defined(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let listed: BTreeSet<String> = SUITES
        .iter()
        .map(|(module, suite)| format!("{module}::{suite}"))
        .collect();
    assert!(
        found.contains("index::concat") && found.contains("golden::pytorch"),
        "{found:?}"
    );
    assert_eq!(found, listed);
}
