//! Patterns of names of parameters and layers, and numbers that belong to them.

use super::values::Rate;
use clap::ValueEnum;
use kiln_nn::module::NamePattern;
use kiln_nn::optim::ByName;
use kiln_train::GradNorm;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A pattern of dotted names, as text: `layer1`, `*.bias`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Names(NamePattern);

impl Names {
    pub(crate) fn pattern(&self) -> NamePattern {
        self.0.clone()
    }
}

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |_| "expected a dotted name, with * for any characters and ? for one".to_string();
        NamePattern::new(text).map(Names).map_err(expected)
    }
}

impl TryFrom<String> for Names {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Names> for String {
    fn from(names: Names) -> String {
        names.0.to_string()
    }
}

/// A number for the parameters that a pattern matches, as text: `layer1=0.1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Rules {
    pub(crate) names: Names,
    pub(crate) value: Rate,
}

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (names, value) = text
            .rsplit_once('=')
            .ok_or("expected PATTERN=NUMBER, such as layer1=0.1")?;
        Ok(Rules {
            names: names.parse()?,
            value: value.parse()?,
        })
    }
}

impl TryFrom<String> for Rules {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rules> for String {
    fn from(rule: Rules) -> String {
        format!("{}={}", rule.names.0, rule.value.get())
    }
}

/// The learning rates and weight decays of an update by names.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameRules {
    pub(crate) lr_for: Vec<Rules>,
    pub(crate) decay_for: Vec<Rules>,
}

impl NameRules {
    pub(crate) fn by_name(&self) -> ByName {
        let rates = self.lr_for.iter().fold(ByName::new(), |by_name, rule| {
            by_name.lr_factor(rule.names.pattern(), rule.value.get())
        });
        self.decay_for.iter().fold(rates, |by_name, rule| {
            by_name.weight_decay(rule.names.pattern(), rule.value.get())
        })
    }
}

/// The norms of gradients that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GradNormKind {
    /// The norm of all gradients
    Total,
    /// And those of each layer
    Layers,
}

impl From<GradNormKind> for GradNorm {
    fn from(kind: GradNormKind) -> Self {
        match kind {
            GradNormKind::Total => GradNorm::Total,
            GradNormKind::Layers => GradNorm::Layers,
        }
    }
}

/// A list as a setting: none that is empty.
pub(crate) fn given<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_a_pattern_and_a_number() {
        let rule: Rules = "layer?.*=0.1".parse().unwrap();
        assert_eq!((rule.value.get(), String::from(rule).as_str()), (0.1, "layer?.*=0.1"));
        for wrong in ["layer1", "=1", "layer1=", "layer1=fast", "layer1=-1", "a b=1"] {
            assert!(wrong.parse::<Rules>().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<Names>("\"\"").is_err());
    }
}
