//! Layers that were to be computed again and were not.

use crate::Warning;
use std::collections::BTreeMap;

/// Their names with their types.
#[derive(Default)]
pub(crate) struct Left {
    /// Those of which nothing has been told yet.
    new: BTreeMap<String, &'static str>,
    told: BTreeMap<String, &'static str>,
}

impl Left {
    pub(crate) fn add(&mut self, layers: Vec<(String, &'static str)>) {
        let new = layers.into_iter().filter(|(name, _)| !self.told.contains_key(name));
        self.new.extend(new);
    }

    /// A warning of those of which nothing has been told yet, if there are any.
    pub(crate) fn warning(&mut self) -> Option<Warning> {
        if self.new.is_empty() {
            return None;
        }
        let new = std::mem::take(&mut self.new);
        let layers = new.iter().map(|(name, kind)| format!("`{name}` ({kind})")).collect();
        self.told.extend(new);
        Some(Warning::NotRecomputed { layers })
    }
}
