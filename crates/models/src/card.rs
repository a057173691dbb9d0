//! Facts about a network that are known before it is built.

use crate::{Input, OutputKind, Recipe};
use std::collections::BTreeMap;

/// The way in which a measured value is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A number.
    Number,
    /// A number with a unit.
    Unit(&'static str),
    /// A share, as a percentage.
    Percent,
    /// The exponential of the value of this name, which is what is measured.
    ExpOf(&'static str),
    /// A number that is measured in validation and is smallest, or largest, with the value of this name.
    Along(&'static str),
}

/// A measured value as users see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// The name: that in the history, unless it is computed from another.
    pub name: &'static str,
    /// The name in a line of text.
    pub label: &'static str,
    /// How it is written.
    pub form: Form,
}

impl Shown {
    /// A value that is labelled with its name.
    pub const fn new(name: &'static str, form: Form) -> Self {
        Shown::labelled(name, name, form)
    }

    /// A value with another label than its name.
    pub const fn labelled(name: &'static str, label: &'static str, form: Form) -> Self {
        Shown { name, label, form }
    }

    /// The value, if it is among the measured ones.
    pub fn of(&self, measured: &BTreeMap<String, f64>) -> Option<f64> {
        match self.form {
            Form::ExpOf(name) => measured.get(name).map(|value| value.exp()),
            _ => measured.get(self.name).copied(),
        }
    }
}

/// Facts about a network that are known before it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// A description in one line, as `kiln models` shows it.
    pub description: &'static str,
    /// The input.
    pub input: Input,
    /// The output.
    pub output: OutputKind,
    /// Number of values in all parameters, for this output.
    pub parameters: usize,
    /// The measured values that are shown, in order. Others are in the history alone.
    pub values: &'static [Shown],
    /// The name of the value that decides which weights are best, and true if larger is better.
    pub monitor: (&'static str, bool),
    /// The way to train it.
    pub recipe: Recipe,
}

impl Card {
    /// The monitored value, those that are computed from it, and those that go along with it.
    pub fn monitored(&self) -> impl Iterator<Item = &'static Shown> {
        let name = self.monitor.0;
        self.values
            .iter()
            .filter(move |shown| shown.name == name || [Form::ExpOf(name), Form::Along(name)].contains(&shown.form))
    }

    /// The values that are computed from others.
    pub fn computed(&self) -> impl Iterator<Item = &'static Shown> {
        self.values.iter().filter(|shown| matches!(shown.form, Form::ExpOf(_)))
    }

    /// The name of the metric of its results: `accuracy`, `perplexity`.
    pub fn metric(&self) -> &'static str {
        let computed = |shown: &&Shown| !matches!(shown.form, Form::Along(_));
        let last = self.monitored().filter(computed).last();
        last.map_or(self.monitor.0, |shown| shown.name)
    }
}
