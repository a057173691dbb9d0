//! Several PTX texts as one, as a linker makes one program of objects.

use std::collections::HashSet;

use crate::directives::parse_module;
use crate::module::Linkage;

/// One text with everything that the texts define.
///
/// Symbols that only their own text sees are renamed; numbers of source files continue from text to text.
///
/// # Errors
/// A message if a text is no PTX, or if two texts define a `.visible` symbol of the same name.
pub fn merge(texts: &[String]) -> Result<String, String> {
    if let [text] = texts {
        return Ok(text.clone());
    }
    let (mut merged, mut defined, mut files) = (String::new(), HashSet::new(), 0);
    for (place, text) in texts.iter().enumerate() {
        let module = parse_module(text).map_err(|e| format!("input {place}: PTX line {}: {}", e.line, e.message))?;
        let functions = module.functions.iter().filter(|f| f.body.is_some());
        let variables = module.variables.iter().filter(|v| !v.external);
        let symbols: Vec<(&str, Linkage)> = functions
            .map(|f| (f.name.as_str(), f.linkage))
            .chain(variables.map(|v| (v.name.as_str(), v.linkage)))
            .collect();
        let mut own = HashSet::new();
        for (name, linkage) in symbols {
            match linkage {
                Linkage::Own => drop(own.insert(name)),
                Linkage::Weak => drop(defined.insert(name.to_string())),
                Linkage::Visible if !defined.insert(name.to_string()) => {
                    return Err(format!("input {place}: `{name}` is defined twice"));
                }
                Linkage::Visible => {}
            }
        }
        rename(text, &own, &format!("$input{place}"), files, &mut merged);
        merged.push('\n');
        files += module.files.iter().map(|(number, _)| *number).max().unwrap_or(0);
    }
    Ok(merged)
}

/// Copies a text with a suffix at each of the names, and with its source files counted from `files`.
fn rename(text: &str, names: &HashSet<&str>, suffix: &str, files: u32, into: &mut String) {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
    let (mut rest, mut before) = (text, "");
    while !rest.is_empty() {
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        if end == 0 {
            let end = rest.find(in_word).unwrap_or(rest.len());
            into.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let word = &rest[..end];
        rest = &rest[end..];
        match (before, word.parse::<u32>()) {
            (".file" | ".loc", Ok(number)) => into.push_str(&(number + files).to_string()),
            _ => into.push_str(word),
        }
        if names.contains(word) {
            into.push_str(suffix);
        }
        before = word;
    }
}
