//! The layers whose forward passes are in progress on a thread, and numbers for their paths, by which gradients find them again.
//! Nothing here runs unless a profiler listens.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The paths seen so far. The number of a path is its place in the list, counted from 1; 0 is no layer.
#[derive(Default)]
struct Paths {
    list: Vec<String>,
    numbers: HashMap<String, u32>,
}

static PATHS: Mutex<Option<Paths>> = Mutex::new(None);

thread_local! {
    /// The numbers of the scopes in progress on this thread, from the outermost to the innermost.
    static OPEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

fn paths() -> MutexGuard<'static, Option<Paths>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path with this number; `None` for 0.
pub(crate) fn path(number: u32) -> Option<String> {
    let at = (number as usize).checked_sub(1)?;
    paths().as_ref()?.list.get(at).cloned()
}

/// The number of the layer `name` inside of another one.
pub(crate) fn inside(outer: u32, name: &str) -> u32 {
    let path = match path(outer) {
        Some(outer) => format!("{outer}.{name}"),
        None => name.to_string(),
    };
    let mut paths = paths();
    let Paths { list, numbers } = paths.get_or_insert_default();
    *numbers.entry(path).or_insert_with_key(|path| {
        list.push(path.clone());
        list.len() as u32
    })
}

/// Begins a scope of this thread.
pub(crate) fn enter(number: u32) {
    OPEN.with_borrow_mut(|open| open.push(number));
}

/// Ends the innermost scope of this thread.
pub(crate) fn leave() {
    OPEN.with_borrow_mut(|open| open.pop());
}

/// The number of the innermost scope of this thread; 0 if there is none.
pub(crate) fn innermost() -> u32 {
    OPEN.with_borrow(|open| open.last().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_numbered_by_their_paths() {
        assert_eq!((innermost(), path(0)), (0, None));
        let block = inside(0, "h.3");
        enter(block);
        let inner = inside(innermost(), "fc");
        enter(inner);
        assert_eq!(path(innermost()).as_deref(), Some("h.3.fc"));
        // Another thread is in no layer, and the paths are those of all threads.
        let elsewhere = std::thread::spawn(|| (innermost(), inside(0, "h.3"))).join().unwrap();
        assert_eq!(elsewhere, (0, block));
        leave();
        assert_eq!((innermost(), inside(block, "fc")), (block, inner));
        leave();
        leave();
        assert_eq!((innermost(), path(u32::MAX)), (0, None));
    }
}
