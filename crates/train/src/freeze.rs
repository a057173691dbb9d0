//! Parameters and layers that options name by patterns.

use crate::{Result, TrainError, TrainOptions};
use kiln_core::Backend;
use kiln_nn::autograd::checkpointable;
use kiln_nn::module::NamePattern;
use kiln_nn::optim::ByName;
use kiln_nn::{Module, Param};

/// The largest number of names that an error lists.
const LISTED: usize = 3;

impl TrainOptions {
    /// Checks that every pattern of names in these options matches something in `model`, and that a parameter is left to train; the
    /// start of a run does so too.
    ///
    /// # Errors
    /// [`TrainError::NoMatch`], [`TrainError::NoCopy`], [`TrainError::InvalidArgument`].
    pub fn check_names<B: Backend, M: Module<B>>(&self, model: &M) -> Result<()> {
        check_parameters("freeze", model, &self.freeze)?;
        let frozen = |name: &str| self.freeze.iter().any(|pattern| pattern.matches(name));
        let trained = |(name, p): &(String, &Param<B>)| p.is_trainable() && !frozen(name);
        if !self.freeze.is_empty() && !model.named_parameters().iter().any(trained) {
            let expected = "patterns that leave a parameter to train";
            return Err(TrainError::invalid("freeze", "all parameters", expected));
        }
        match self.recompute.is_empty() {
            true => Ok(()),
            false => check_layers(model, &self.recompute),
        }
    }
}

/// Freezes the parameters that the patterns match.
pub(crate) fn freeze<B: Backend, M: Module<B>>(model: &mut M, patterns: &[NamePattern]) {
    if !patterns.is_empty() {
        model.set_trainable(&|name| patterns.iter().any(|pattern| pattern.matches(name)), false);
    }
}

/// Checks that every pattern of `by_name` matches a parameter of `model`, so that a misspelt name does not pass for a rule: an optimizer
/// cannot tell.
///
/// # Errors
/// [`TrainError::NoMatch`].
pub fn check_by_name<B: Backend, M: Module<B>>(model: &M, by_name: &ByName) -> Result<()> {
    check_parameters("optimizer", model, by_name.patterns())
}

fn check_parameters<'p, B: Backend, M: Module<B>>(
    option: &'static str,
    model: &M,
    patterns: impl IntoIterator<Item = &'p NamePattern>,
) -> Result<()> {
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    check(option, "parameter", &names, patterns)
}

/// Checks that every pattern matches a layer that can be computed again.
fn check_layers<B: Backend, M: Module<B>>(model: &M, patterns: &[NamePattern]) -> Result<()> {
    let layers = checkpointable(model);
    for pattern in patterns.iter().filter(|p| !layers.iter().any(|name| p.matches(name))) {
        // Modules with parameters that it names all the same.
        let mut named: Vec<String> = Vec::new();
        for (name, _) in model.named_parameters() {
            let around = name.match_indices('.').map(|(dot, _)| &name[..dot]);
            for module in around.filter(|module| pattern.matches(module)) {
                let module = format!("`{module}`");
                if !named.contains(&module) {
                    named.push(module);
                }
            }
        }
        if !named.is_empty() {
            named.truncate(LISTED);
            return Err(TrainError::NoCopy {
                pattern: pattern.to_string(),
                names: named.join(", "),
            });
        }
    }
    check("recompute", "layer", &layers, patterns)
}

fn check<'p>(
    option: &'static str,
    kind: &'static str,
    names: &[String],
    patterns: impl IntoIterator<Item = &'p NamePattern>,
) -> Result<()> {
    match patterns.into_iter().find(|p| !names.iter().any(|name| p.matches(name))) {
        Some(pattern) => Err(TrainError::NoMatch {
            option,
            kind,
            pattern: pattern.to_string(),
            near: near(&pattern.to_string(), names),
        }),
        None => Ok(()),
    }
}

/// The names and names of modules around them that are most like a pattern.
fn near(pattern: &str, names: &[String]) -> String {
    let wanted = pattern.replace(['*', '?'], "");
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        let around = name.match_indices('.').map(|(dot, _)| &name[..dot]);
        for name in around.chain([name.as_str()]) {
            if !known.contains(&name) {
                known.push(name);
            }
        }
    }
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(wanted.trim_matches('.'), name);
    let mut known: Vec<(f64, &str)> = known.into_iter().map(|name| (likeness(name), name)).collect();
    known.sort_by(|a, b| b.0.total_cmp(&a.0));
    let listed: Vec<String> = known.iter().take(LISTED).map(|(_, name)| format!("`{name}`")).collect();
    match listed.is_empty() {
        true => "there are none".to_string(),
        false => format!("the nearest names are {}", listed.join(", ")),
    }
}
