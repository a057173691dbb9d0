//! `cargo xtask licences`: checks every dependency's licence against the list in deny.toml, which `cargo deny` reads too.

use crate::workspace::{Outcome, cargo, line, root};
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Table;

/// The allowed licences, with additional ones for some crates.
struct Allowed {
    all: Vec<String>,
    exceptions: BTreeMap<String, Vec<String>>,
    /// Crates that may not be used at all.
    banned: Vec<String>,
}

impl Allowed {
    fn read(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|e| format!("deny.toml: {e}"))?;
        let strings = |value: Option<&toml::Value>| -> Vec<String> {
            let list = value.and_then(toml::Value::as_array).into_iter().flatten();
            list.filter_map(toml::Value::as_str).map(String::from).collect()
        };
        let tables = |section: &str, key: &str| -> Vec<Table> {
            let list = table
                .get(section)
                .and_then(|s| s.get(key))
                .and_then(toml::Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(toml::Value::as_table)
                .cloned()
                .collect()
        };
        let name = |entry: &Table| {
            entry
                .get("crate")
                .and_then(toml::Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let allowed = Allowed {
            all: strings(table.get("licenses").and_then(|l| l.get("allow"))),
            exceptions: tables("licenses", "exceptions")
                .iter()
                .map(|entry| (name(entry), strings(entry.get("allow"))))
                .collect(),
            banned: tables("bans", "deny").iter().map(name).collect(),
        };
        match allowed.all.is_empty() {
            true => Err("deny.toml: `licenses.allow` names no licence".to_string()),
            false => Ok(allowed),
        }
    }

    /// The reason why a package may not be used; `None` if it may.
    fn refuse(&self, name: &str, licence: Option<&str>) -> Option<String> {
        if self.banned.iter().any(|banned| banned == name) {
            return Some(format!("{name}: banned in deny.toml"));
        }
        let Some(licence) = licence else {
            return Some(format!("{name}: says no licence"));
        };
        let more = self.exceptions.get(name).map_or(&[][..], Vec::as_slice);
        let allows = |id: &str| self.all.iter().chain(more).any(|allowed| allowed == id);
        match satisfied(licence, &allows) {
            Some(true) => None,
            Some(false) => Some(format!("{name}: `{licence}` is not among the licences of deny.toml")),
            None => Some(format!("{name}: `{licence}` is no expression of SPDX")),
        }
    }
}

/// True if an SPDX expression can be satisfied by allowed licences; `None` if it is not an SPDX expression. A slash is an
/// old form of `OR`.
fn satisfied(expression: &str, allows: &dyn Fn(&str) -> bool) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = either(&words, allows)?;
    rest.is_empty().then_some(met)
}

type Parsed<'w> = Option<(bool, &'w [&'w str])>;

fn either<'w>(words: &'w [&'w str], allows: &dyn Fn(&str) -> bool) -> Parsed<'w> {
    let (mut met, mut rest) = both(words, allows)?;
    while let ["OR", after @ ..] = rest {
        let (other, after) = both(after, allows)?;
        (met, rest) = (met | other, after);
    }
    Some((met, rest))
}

fn both<'w>(words: &'w [&'w str], allows: &dyn Fn(&str) -> bool) -> Parsed<'w> {
    let (mut met, mut rest) = one(words, allows)?;
    while let ["AND", after @ ..] = rest {
        let (other, after) = one(after, allows)?;
        (met, rest) = (met & other, after);
    }
    Some((met, rest))
}

fn one<'w>(words: &'w [&'w str], allows: &dyn Fn(&str) -> bool) -> Parsed<'w> {
    match words {
        ["(", inner @ ..] => match either(inner, allows)? {
            (met, [")", rest @ ..]) => Some((met, rest)),
            _ => None,
        },
        [")" | "AND" | "OR" | "WITH", ..] | [] => None,
        // An exception (`WITH`) only adds permissions to the licence.
        [id, "WITH", _, rest @ ..] | [id, rest @ ..] => Some((allows(id), rest)),
    }
}

pub(crate) fn run() -> Outcome {
    let text = std::fs::read_to_string(root().join("deny.toml")).map_err(|e| format!("cannot read deny.toml: {e}"))?;
    let allowed = Allowed::read(&text)?;
    let mut command = cargo(["metadata", "--format-version", "1", "--all-features", "--locked"]);
    let output = command
        .output()
        .map_err(|e| format!("cannot run `{}`: {e}", line(&command)))?;
    if !output.status.success() {
        return Err(format!(
            "`{}`: {}",
            line(&command),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|p| allowed.refuse(p["name"].as_str().unwrap_or("?"), p["license"].as_str()))
        .collect();
    refused.iter().for_each(|why| println!("{why}"));
    if refused.is_empty() {
        println!(
            "licences: {} packages, each under a licence of deny.toml",
            packages.len()
        );
    }
    Ok(refused.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Allowed {
        let text = r#"
            [licenses]
            allow = ["MIT", "Zlib"]
            exceptions = [{ crate = "jpeg", allow = ["IJG"] }]
            [bans]
            deny = [{ crate = "old", reason = "nobody maintains it" }]
        "#;
        Allowed::read(text).expect("a table")
    }

    #[test]
    fn expressions_are_chosen_from() {
        let allowed = allowed();
        let fits = |name: &str, licence: &str| allowed.refuse(name, Some(licence)).is_none();
        for licence in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "Zlib AND (GPL-3.0 OR MIT)",
            "MIT WITH LLVM-exception",
        ] {
            assert!(fits("a", licence), "{licence}");
        }
        for licence in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR GPL-3.0) AND IJG",
            "MIT OR",
            "(MIT",
            "MIT MIT",
            "",
        ] {
            assert!(!fits("a", licence), "{licence}");
        }
        assert!(fits("jpeg", "MIT AND IJG"));
        assert!(!fits("old", "MIT") && allowed.refuse("a", None).is_some());
        assert!(Allowed::read("[licenses]").is_err());
    }

    #[test]
    fn every_dependency_is_allowed() {
        assert_eq!(run(), Ok(true));
    }
}
