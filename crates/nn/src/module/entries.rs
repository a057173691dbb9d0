//! The list of a module's parameters, buffers, counters and modes. Functions on modules work on this list, so that they are
//! compiled once for each backend instead of once for each type of module.

use super::param::Param;
use super::walk::{Entry, EntryMut, Walk, WalkMut, Walkable};
use crate::{Backend, DType, Result};
use kiln_core::ModuleId;

/// The entries of a module with their dotted names, in the order of the walk.
pub(crate) type Entries<'a, B> = Vec<(String, Entry<'a, B>)>;

/// As [`Entries`], mutable.
pub(crate) type EntriesMut<'a, B> = Vec<(String, EntryMut<'a, B>)>;

/// Every entry of `module`.
pub(crate) fn entries<B: Backend, M: Walkable<B> + ?Sized>(module: &M) -> Entries<'_, B> {
    let mut found = Vec::new();
    module.walk(&mut Walk::new(&mut collect(&mut found)));
    found
}

/// As [`entries`], mutable.
pub(crate) fn entries_mut<B: Backend, M: Walkable<B> + ?Sized>(module: &mut M) -> EntriesMut<'_, B> {
    let mut found = Vec::new();
    module.walk_mut(&mut WalkMut::new(&mut collect(&mut found)));
    found
}

/// The dotted paths of the modules, lists, parameters and plain data inside of `module`, with their ids.
pub(crate) fn modules<B: Backend, M: Walkable<B> + ?Sized>(module: &M) -> Vec<(String, ModuleId)> {
    let mut found = Vec::new();
    module.walk(&mut Walk::modules(&mut |path, module| {
        found.push((path.to_string(), module.module_id()))
    }));
    found
}

/// The dotted paths of the modules inside of `module` of which there are copies ([`Walkable::copied`]).
pub(crate) fn copyable<B: Backend, M: Walkable<B> + ?Sized>(module: &M) -> Vec<String> {
    let mut found = Vec::new();
    module.walk(&mut Walk::modules(&mut |path, module| {
        if module.copied().is_some() {
            found.push(path.to_string());
        }
    }));
    found
}

fn collect<T>(found: &mut Vec<(String, T)>) -> impl FnMut(&str, T) {
    |name, entry| found.push((name.to_string(), entry))
}

impl<B: Backend> EntryMut<'_, B> {
    /// The same entry, immutable.
    pub(crate) fn reborrow(&self) -> Entry<'_, B> {
        match self {
            EntryMut::Param(p) => Entry::Param(p),
            EntryMut::State(s) => Entry::State(s),
            EntryMut::Counter(c) => Entry::Counter(c),
            EntryMut::Mode(m) => Entry::Mode(m),
        }
    }
}

/// The parameters among `entries`.
pub(super) fn parameters<B: Backend>(entries: Entries<'_, B>) -> Vec<(String, &Param<B>)> {
    let found = entries.into_iter().filter_map(|(name, entry)| match entry {
        Entry::Param(p) => Some((name, p)),
        _ => None,
    });
    found.collect()
}

/// As [`parameters`], mutable.
pub(super) fn parameters_mut<B: Backend>(entries: EntriesMut<'_, B>) -> Vec<(String, &mut Param<B>)> {
    let found = entries.into_iter().filter_map(|(name, entry)| match entry {
        EntryMut::Param(p) => Some((name, p)),
        _ => None,
    });
    found.collect()
}

/// The parameters among `entries`, without names.
pub(super) fn unnamed<B: Backend>(entries: Entries<'_, B>) -> Vec<&Param<B>> {
    parameters(entries).into_iter().map(|(_, p)| p).collect()
}

/// Number of values in the parameters that `counts` accepts.
pub(super) fn size<B: Backend>(entries: Entries<'_, B>, counts: fn(&Param<B>) -> bool) -> usize {
    let counted = parameters(entries).into_iter().filter(|(_, p)| counts(p));
    counted.map(|(_, p)| p.size()).sum()
}

/// True if a layer among `entries` is in training mode.
pub(crate) fn is_training<B: Backend>(entries: &Entries<'_, B>) -> bool {
    let mut entries = entries.iter();
    entries.any(|(_, entry)| matches!(entry, Entry::Mode(mode) if mode.is_training()))
}

pub(super) fn set_training<B: Backend>(entries: EntriesMut<'_, B>, training: bool) {
    for (_, entry) in entries {
        if let EntryMut::Mode(mode) = entry {
            mode.set_training(training);
        }
    }
}

pub(super) fn pin_eval<B: Backend>(entries: EntriesMut<'_, B>, pinned: bool) {
    for (_, entry) in entries {
        if let EntryMut::Mode(mode) = entry {
            mode.pin_eval(pinned);
        }
    }
}

pub(super) fn set_trainable<B: Backend>(
    entries: EntriesMut<'_, B>,
    select: &dyn Fn(&str) -> bool,
    trainable: bool,
) -> usize {
    let chosen = parameters_mut(entries).into_iter().filter(|(name, _)| select(name));
    chosen.map(|(_, param)| param.set_trainable(trainable)).count()
}

/// Converts every entry as far as that succeeds; returns the first error.
pub(super) fn to_dtype<B: Backend>(entries: EntriesMut<'_, B>, dtype: DType) -> Result<()> {
    let mut result = Ok(());
    for (name, entry) in entries {
        let converted = match entry {
            EntryMut::Param(p) => p.to_dtype(dtype),
            EntryMut::State(s) => s.to_dtype(if dtype == DType::F64 { DType::F64 } else { DType::F32 }),
            EntryMut::Counter(_) | EntryMut::Mode(_) => Ok(()),
        };
        if let (Ok(()), Err(e)) = (&result, converted) {
            result = Err(e.within(&name, "parameter"));
        }
    }
    result
}
