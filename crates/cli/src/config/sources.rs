//! Where settings come from: flags before `--set` before a file, and the record of a run that is resumed.

use super::run::{ConfigArgs, PhaseConfig, RunConfig};
use crate::error::{Error, Result};
use kiln_files::{open_regular, shown, shown_path};
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// Entries of a run's `config.json` that are no settings.
const FACTS: [&str; 3] = ["kiln", "facts", "vocabulary"];

/// The largest file that is read: far more than settings take.
const MAX_BYTES: u64 = 1 << 20;

/// The settings of a command line.
pub(crate) fn combined(args: &ConfigArgs) -> Result<RunConfig> {
    let mut layers = Map::new();
    if let Some(file) = &args.file {
        merge(&mut layers, record(&read(file)?));
    }
    for entry in &args.set {
        merge(&mut layers, record(&set(entry)?));
    }
    merge(&mut layers, record(&args.flags));
    back(layers)
}

/// The settings in a file of TOML, or of JSON as in a run's `config.json`.
pub(crate) fn read(path: &Path) -> Result<RunConfig> {
    let failed = |why: &dyn std::fmt::Display| Error::failure(format!("{}: {why}", shown_path(path)));
    let (file, size) = open_regular(path).map_err(|e| failed(&e))?;
    if size > MAX_BYTES {
        return Err(failed(&format!("{size} bytes are no settings of a run")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|e| failed(&e))?;
    let wrong = |why: String| Error::usage(format!("{}: {}", shown_path(path), shown(&why).sentence()));
    let is_json = path.extension().is_some_and(|e| e == "json");
    let found: Value = match is_json {
        true => serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?,
        false => toml::from_str(&text).map_err(|e| wrong(at_line(&e, &text)))?,
    };
    let facts: &[&str] = if is_json { &FACTS } else { &[] };
    check_keys(&found, facts).map_err(|e| e.context(shown_path(path)))?;
    match is_json {
        true => serde_json::from_str(&text).map_err(|e| wrong(e.to_string())),
        false => toml::from_str(&text).map_err(|e| wrong(at_line(&e, &text))),
    }
}

/// Writes settings as a file that [`read`] takes, of JSON.
pub(crate) fn write(path: &Path, config: &RunConfig) -> Result<()> {
    let text = format!("{:#}\n", Value::Object(record(config)));
    std::fs::write(path, text).map_err(|e| Error::failure(format!("{}: {e}", shown_path(path))))
}

/// The setting of `--set KEY=VALUE`. A value that is none of TOML is a string.
pub(crate) fn set(entry: &str) -> Result<RunConfig> {
    let context = || format!("--set {}", shown(entry));
    let Some((key, value)) = entry.split_once('=') else {
        let help = "for instance --set optimizer.lr=3e-4";
        return Err(Error::usage(format!("{}: expected KEY=VALUE", context())).help(help));
    };
    let parsed = toml::from_str::<Value>(&format!("value = {value}"));
    let mut value = match parsed.map(|mut v| v["value"].take()) {
        Ok(value) => value,
        Err(_) => Value::String(value.to_string()),
    };
    for part in key.trim().rsplit('.') {
        value = Value::Object(Map::from_iter([(part.to_string(), value)]));
    }
    check_keys(&value, &[]).map_err(|e| e.context(context()))?;
    serde_json::from_value(value)
        .map_err(|e| Error::usage(format!("{}: {}", context(), shown(&e.to_string()).sentence())))
}

/// The message of a TOML error after the number of its line.
fn at_line(error: &toml::de::Error, text: &str) -> String {
    let line = error
        .span()
        .and_then(|span| Some(text.get(..span.start)?.matches('\n').count() + 1));
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_string(),
    }
}

/// The settings that are given, as JSON objects without nulls.
pub(crate) fn record(config: &RunConfig) -> Map<String, Value> {
    match all(config) {
        Value::Object(all) => given(all),
        _ => Map::new(),
    }
}

/// All settings, `null` for those that are not given.
fn all(config: &RunConfig) -> Value {
    // Serialising fails for keys that are no strings and for writers that fail; there are neither.
    serde_json::to_value(config).unwrap_or_default()
}

fn given(all: Map<String, Value>) -> Map<String, Value> {
    let given = all.into_iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Object(table) => {
            let table = given(table);
            (!table.is_empty()).then_some((key, Value::Object(table)))
        }
        value => Some((key, value)),
    });
    given.collect()
}

/// Puts the entries of `over` over those of `base`, table by table.
fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(over)) => merge(base, over),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

fn back(layers: Map<String, Value>) -> Result<RunConfig> {
    serde_json::from_value(Value::Object(layers)).map_err(|e| Error::usage(e.to_string()))
}

/// The settings `saved` with those of `flags` over them, and the keys that `flags` changes.
pub(crate) fn changed(saved: &RunConfig, flags: &RunConfig) -> Result<(RunConfig, Vec<String>)> {
    let before = record(saved);
    let mut after = before.clone();
    merge(&mut after, record(flags));
    let (before, mut changed) = (
        leaves(&Value::Object(before), ""),
        leaves(&Value::Object(after.clone()), ""),
    );
    changed.retain(|leaf| !before.contains(leaf));
    Ok((back(after)?, changed.into_iter().map(|(key, _)| key).collect()))
}

/// The settings that are given, by their dotted keys.
pub(crate) fn flat(config: &RunConfig) -> Vec<(String, Value)> {
    leaves(&Value::Object(record(config)), "")
}

/// The values of a tree by their dotted keys.
fn leaves(tree: &Value, prefix: &str) -> Vec<(String, Value)> {
    match tree {
        Value::Object(table) => table
            .iter()
            .flat_map(|(key, value)| leaves(value, &dotted(prefix, key)))
            .collect(),
        value => vec![(prefix.to_string(), value.clone())],
    }
}

fn dotted(prefix: &str, key: &str) -> String {
    match prefix {
        "" => key.to_string(),
        prefix => format!("{prefix}.{key}"),
    }
}

/// Refuses keys that are no settings and suggests the nearest.
fn check_keys(found: &Value, facts: &[&str]) -> Result<()> {
    let mut known = all(&RunConfig::default());
    // Every name of a phase has the same keys; which phases there are is the model's business.
    if let Some(Value::Object(named)) = found.get("phases") {
        let keys = serde_json::to_value(PhaseConfig::default()).unwrap_or_default();
        known["phases"] = named.keys().map(|name| (name.clone(), keys.clone())).collect();
    }
    let keys: Vec<String> = leaves(&known, "").into_iter().map(|(key, _)| key).collect();
    let Value::Object(found) = found else {
        return Err(Error::usage("settings are a table"));
    };
    let unknown = found.iter().filter(|(key, _)| !facts.contains(&key.as_str()));
    for (key, value) in unknown {
        if let Some(key) = unknown_key(key, value, known.get(key), "") {
            let of_table: Vec<&str> = keys
                .iter()
                .filter(|k| table_of(k) == Some(&key))
                .map(String::as_str)
                .collect();
            let help = match (nearest(&key, &keys), &of_table[..]) {
                (_, [_, ..]) => format!("it is a table of settings: {}", of_table.join(", ")),
                (Some(near), []) => format!("did you mean `{near}`?"),
                (None, []) => format!("the settings are {}", keys.join(", ")),
            };
            return Err(Error::usage(format!("there is no setting `{}`", shown(&key))).help(help));
        }
    }
    Ok(())
}

/// The dotted key of the first entry of `value` that is not in `known`, or that is no table where `known` is one.
fn unknown_key(key: &str, value: &Value, known: Option<&Value>, prefix: &str) -> Option<String> {
    let dotted = dotted(prefix, key);
    match (value, known) {
        (Value::Object(table), Some(Value::Object(known))) => table
            .iter()
            .find_map(|(key, value)| unknown_key(key, value, known.get(key), &dotted)),
        (_, Some(Value::Null)) => None,
        _ => Some(dotted),
    }
}

/// The table of a dotted key.
fn table_of(key: &str) -> Option<&str> {
    key.rsplit_once('.').map(|(table, _)| table)
}

/// The key that looks most like `key`, as a whole or in its last part, if any does.
fn nearest<'k>(key: &str, keys: &'k [String]) -> Option<&'k str> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().replace(['-', '_'], "");
    let likeness = |known: &str| {
        let parts = strsim::normalized_damerau_levenshtein(&last(key), &last(known));
        parts + strsim::normalized_damerau_levenshtein(key, known) / 10.0
    };
    let near = keys.iter().map(|known| (likeness(known), known));
    let (likeness, known) = near.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness > 0.6).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> Result<RunConfig> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn what_is_given_later_goes_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.toml");
        let text =
            "model = \"lenet\"\nepochs = 3\nseed = 5\n[optimizer]\nlr = 1\nmomentum = 0.5\n[data]\nsynthetic = 20\n";
        std::fs::write(&path, text).unwrap();
        let args = ConfigArgs {
            flags: RunConfig {
                epochs: Some(7.try_into().unwrap()),
                ..Default::default()
            },
            file: Some(path),
            set: ["epochs=6", "optimizer.lr=3e-4", "optimizer.name=adam"]
                .map(str::to_string)
                .into(),
        };
        let mut expected = serde_json::json!({
            "model": "lenet", "epochs": 7, "seed": 5,
            "optimizer": { "name": "adam", "lr": 3e-4, "momentum": 0.5 },
            "data": { "synthetic": 20 },
        });
        let merged = combined(&args).unwrap();
        assert_eq!(Value::Object(record(&merged)), expected);
        // The record of a run is read as a file of settings.
        expected["kiln"] = "0.1.0".into();
        expected["vocabulary"] = "abc".into();
        let again = file("config.json", &expected.to_string()).unwrap();
        assert_eq!(record(&again), record(&merged));
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        for (text, wrong, help) in [
            ("epoch = 3", "`epoch`", "`epochs`"),
            ("lr = 3", "`lr`", "`optimizer.lr`"),
            (
                "[optimizer]\nmomentun = 3",
                "`optimizer.momentun`",
                "`optimizer.momentum`",
            ),
            (
                "[optimizer]\nweight-decay = 3",
                "`optimizer.weight-decay`",
                "`optimizer.weight_decay`",
            ),
            ("optimizer = \"adam\"", "`optimizer`", "a table of settings: optimizer."),
            ("[epochs]\nn = 3", "invalid type", ""),
            ("xyzzy = 3", "`xyzzy`", "the settings are accumulate, batch"),
            ("kiln = \"1\"", "`kiln`", ""),
        ] {
            let error = file("run.toml", text).unwrap_err();
            assert_eq!(error.code, crate::error::code::USAGE);
            assert!(error.message.contains(wrong), "{text}: {}", error.message);
            assert!(error.help.unwrap_or_default().contains(help), "{text}");
        }
    }

    #[test]
    fn wrong_values_name_their_place() {
        for (text, parts) in [
            (
                "seed = 1\nepochs = 0",
                ["run.toml: line 2", "a whole number of 1 or more"],
            ),
            ("seed = 1\nepochs = \"many\"", ["line 2", "invalid type"]),
            ("model = \"resnet\"", ["line 1", "none of mnist-cnn"]),
            ("seed = ", ["line 1", ""]),
            ("[device]\nname = \"gpu\"", ["line 2", "expected one of auto, cpu"]),
        ] {
            let message = file("run.toml", text).unwrap_err().message;
            assert!(parts.iter().all(|part| message.contains(part)), "{text}: {message}");
        }
        for (entry, part) in [
            ("epochs", "expected KEY=VALUE"),
            ("epochs=0", "a whole number of 1 or more"),
            ("epochs=many", "invalid type"),
            ("optimizer.lrr=1", "no setting `optimizer.lrr`"),
            ("=1", "no setting"),
        ] {
            let message = set(entry).unwrap_err().message;
            assert!(
                message.contains(part) && message.contains("--set"),
                "{entry}: {message}"
            );
        }
    }

    #[test]
    fn changes_are_named() {
        let saved = set("optimizer.lr=0.1").unwrap();
        let flags = set("optimizer.lr=0.2").unwrap();
        let (merged, keys) = changed(&saved, &flags).unwrap();
        assert_eq!(
            (merged.optimizer.lr.map(|r| r.get()), keys),
            (Some(0.2), vec!["optimizer.lr".to_string()])
        );
        let (_, keys) = changed(&saved, &saved).unwrap();
        assert!(keys.is_empty());
    }
}
