//! The files of a crate form no circle: of two files at most one uses definitions of the other, directly or through others.

use super::modules::{Crate, Target};
use super::workspace::{Finding, Workspace};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    let folders = workspace
        .files
        .iter()
        .filter_map(|f| f.path.strip_suffix("/Cargo.toml"));
    for folder in folders {
        let krate = Crate::read(folder, &workspace.sources);
        let edges = edges(&krate);
        for circle in circles(krate.files.len(), &edges) {
            let src = format!("{folder}/src/");
            let inside = edges
                .iter()
                .filter(|((a, b), _)| circle.contains(a) && circle.contains(b));
            let steps: Vec<_> = inside
                .map(|((from, to), at)| {
                    let line = krate.files[*from].place(*at).replace(&src, "");
                    format!("{line} names {}", krate.files[*to].path.replace(&src, ""))
                })
                .collect();
            let message = format!(
                "{} files in a circle, move what they share into a file below them: {}",
                circle.len(),
                steps.join("; ")
            );
            found.push(Finding::new(&krate.files[circle[0]].path, message));
        }
    }
    found
}

/// The pairs of files, by their numbers, of which the first uses a definition of the second, with the offset of the first use.
fn edges(krate: &Crate<'_>) -> BTreeMap<(usize, usize), usize> {
    let mut edges = BTreeMap::new();
    for (number, module) in krate.modules.iter().enumerate() {
        let mut add = |target: Option<Target>, at: usize| {
            if let Some(Target::Item(file)) = target
                && file != module.file
            {
                edges.entry((module.file, file)).or_insert(at);
            }
        };
        for import in &module.imports {
            let target = krate.resolve(number, &import.path);
            match target {
                Some(Target::Module(from)) if import.name == "*" => {
                    let used = krate
                        .names(number, from)
                        .into_iter()
                        .filter(|name| module.words.contains(*name));
                    for name in used {
                        let path = [&import.path[..], &[name.to_string()]].concat();
                        add(krate.resolve(number, &path), import.at);
                    }
                }
                Some(Target::Item(file)) => {
                    // A re-export of a definition of a module below is no use.
                    let below = krate.modules.iter().any(|m| {
                        m.file == file && m.path.len() > module.path.len() && m.path.starts_with(&module.path)
                    });
                    if !(import.public && below && !module.words.contains(&import.name)) {
                        add(target, import.at);
                    }
                }
                _ => {}
            }
        }
        for (path, at) in &module.paths {
            add(krate.resolve(number, path), *at);
        }
    }
    edges
}

/// The sets of two or more files that reach each other, each sorted.
fn circles(files: usize, edges: &BTreeMap<(usize, usize), usize>) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..files)
        .map(|start| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
            while let Some(file) = next.pop() {
                for ((_, to), _) in edges.range((file, 0)..=(file, usize::MAX)) {
                    if seen.insert(*to) {
                        next.push(*to);
                    }
                }
            }
            seen
        })
        .collect();
    let mut found = Vec::new();
    let mut done = BTreeSet::new();
    for file in 0..files {
        if done.contains(&file) || !reach[file].contains(&file) {
            continue;
        }
        let circle: Vec<usize> = (0..files)
            .filter(|other| *other == file || reach[file].contains(other) && reach[*other].contains(&file))
            .collect();
        done.extend(circle.iter().copied());
        found.push(circle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "");

    /// The places of the findings for a crate with these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (format!("crates/a/src/{path}"), *text))
            .collect();
        let mut all = vec![MANIFEST];
        all.extend(files.iter().map(|(path, text)| (path.as_str(), *text)));
        let found = check(&workspace(&all));
        places(&found).into_iter().map(String::from).collect()
    }

    #[test]
    fn files_that_name_each_other_are_found() {
        let lib = ("lib.rs", "mod b;\nmod c;\nmod d;\n");
        let b = ("b.rs", "use crate::c::C;\npub struct B(C);\n");
        assert!(found(&[lib, b, ("c.rs", "pub struct C;\n"), ("d.rs", "use crate::b::B;\n")]).is_empty());
        let place = ["crates/a/src/b.rs"];
        assert_eq!(found(&[lib, b, ("c.rs", "use super::b::B;\npub struct C;\n")]), place);
        assert_eq!(
            found(&[lib, b, ("c.rs", "pub struct C;\nfn f(_: crate::b::B) {}\n")]),
            place
        );
        assert_eq!(
            found(&[
                lib,
                b,
                ("c.rs", "use crate::{b, d};\npub struct C;\nfn f(_: b::B) {}\n")
            ]),
            place
        );
        // A circle through a third file.
        let c = ("c.rs", "use super::d::D;\npub struct C;\n");
        assert_eq!(
            found(&[lib, b, c, ("d.rs", "use crate::b::*;\npub struct D(B);\n")]),
            place
        );
        assert!(found(&[lib, b, c, ("d.rs", "use crate::b::*;\npub struct D;\n")]).is_empty());
    }

    #[test]
    fn a_name_that_is_handed_on_is_its_definers() {
        let lib = ("lib.rs", "mod m;\npub use m::{B, C};\n");
        let files = [
            lib,
            ("m/mod.rs", "mod b;\nmod c;\npub use b::B;\npub use c::*;\n"),
            ("m/b.rs", "use super::C;\npub struct B(C);\n"),
            ("m/c.rs", "pub struct C;\n"),
        ];
        assert!(found(&files).is_empty());
        let back = [&files[..3], &[("m/c.rs", "use crate::B;\npub struct C;\n")]].concat();
        assert_eq!(found(&back), ["crates/a/src/m/b.rs"]);
        // A `mod.rs` that uses its children and has definitions that they use.
        let own = "mod b;\npub use b::B;\npub struct D;\nfn f() -> B { b::B(D) }\n";
        let own = [lib, ("m/mod.rs", own), ("m/b.rs", "pub struct B(pub super::D);\n")];
        assert_eq!(found(&own), ["crates/a/src/m/mod.rs"]);
    }

    #[test]
    fn tests_other_crates_and_words_are_no_edges() {
        let lib = ("lib.rs", "mod b;\nmod c;\n#[cfg(test)]\nmod tests;\n");
        let b = (
            "b.rs",
            "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n#[cfg(test)]\nfn f(_: crate::c::C) {}\n",
        );
        let c = ("c.rs", "use crate::b::B;\npub struct C(B);\n// crate::d::D\n");
        assert!(found(&[lib, b, c, ("tests.rs", "use crate::c::C;\npub struct T;\n")]).is_empty());
        let other = (
            "b.rs",
            "use other::c::C;\npub struct B(std::fmt::Error, &'static str);\nconst S: &str = \"crate::c::C\";\n",
        );
        assert!(found(&[lib, other, c]).is_empty());
    }
}
