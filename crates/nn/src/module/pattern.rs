//! Patterns of dotted names.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A pattern of dotted names of parameters and layers: `*` stands for any characters, dots included, `?` for one character. It
/// matches a name, and the names of all that is inside of a module that it matches.
///
/// ```
/// use kiln_nn::module::NamePattern;
/// let names = ["conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.bias", "layer10.weight"];
/// let matched = |pattern: &str| -> Vec<&str> {
///     let pattern: NamePattern = pattern.parse().unwrap();
///     names.into_iter().filter(|name| pattern.matches(name)).collect()
/// };
/// assert_eq!(matched("layer1"), ["layer1.0.conv1.weight", "layer1.0.bn1.bias"]);
/// assert_eq!(matched("*.weight"), ["conv1.weight", "layer1.0.conv1.weight", "layer10.weight"]);
/// assert_eq!(matched("layer?.*.bn?"), ["layer1.0.bn1.bias"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// The pattern of this text.
    ///
    /// ```
    /// use kiln_nn::module::NamePattern;
    /// assert_eq!(NamePattern::new("*.bias")?.to_string(), "*.bias");
    /// assert!(NamePattern::new("").is_err());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An empty text, white space, control characters.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let expected = "a dotted name, with * for any characters and ? for one";
            return Err(Error::invalid("name", "pattern", format!("{text:?}"), expected));
        }
        Ok(NamePattern(text))
    }

    /// True for a name that the pattern matches, and for one inside of a module that it matches.
    ///
    /// See the example of [`NamePattern`].
    pub fn matches(&self, name: &str) -> bool {
        let around = name.match_indices('.').map(|(dot, _)| &name[..dot]);
        std::iter::once(name).chain(around).any(|name| fits(&self.0, name))
    }
}

/// True if all of `name` is what `pattern` stands for.
fn fits(pattern: &str, name: &str) -> bool {
    let (mut rest, mut left) = (pattern.chars(), name.chars());
    // Behind the last `*` seen: the pattern, and the name from where that `*` has to take one more character.
    let mut retry = None;
    loop {
        let at = left.clone();
        match (rest.next(), left.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                left = at;
                retry = Some((rest.clone(), left.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(p), Some(c)) if p == c => {}
            _ => {
                let Some((behind, mut from)) = retry else { return false };
                if from.next().is_none() {
                    return false;
                }
                retry = Some((behind.clone(), from.clone()));
                (rest, left) = (behind, from);
            }
        }
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        NamePattern::new(text)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by recursion, as the definition has it.
    fn slow(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => slow(rest, name) || (!name.is_empty() && slow(pattern, &name[1..])),
            (['?', rest @ ..], [_, name @ ..]) => slow(rest, name),
            ([p, rest @ ..], [c, name @ ..]) => p == c && slow(rest, name),
            _ => false,
        }
    }

    /// Every text of at most `length` characters out of `letters`.
    fn texts(letters: &str, length: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut from = 0;
        for _ in 0..length {
            let until = all.len();
            for i in from..until {
                all.extend(letters.chars().map(|c| format!("{}{c}", all[i])).collect::<Vec<_>>());
            }
            from = until;
        }
        all
    }

    #[test]
    fn stars_and_question_marks_match_as_defined() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let (patterns, names) = (texts("aé*?", 5), texts("aé.", 5));
        assert_eq!((patterns.len(), names.len()), (1365, 364));
        for pattern in &patterns {
            for name in &names {
                let expected = slow(&chars(pattern), &chars(name));
                assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
            }
        }
    }
}
