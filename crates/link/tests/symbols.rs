//! The list of functions.

use std::collections::BTreeSet;

#[test]
fn symbols_are_in_order_and_once() {
    let symbols = kiln_link::symbols();
    assert!(symbols.windows(2).all(|w| w[0] < w[1]));
    assert!(symbols.iter().all(|s| s.starts_with("cu")));
}

/// Functions that kiln-device declares are in the list: one that is not would fail at link time, in its users only.
#[test]
fn what_the_device_crate_declares_is_listed() {
    let listed: BTreeSet<&str> = kiln_link::symbols().iter().copied().collect();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../device/src/ffi.rs");
    let Ok(text) = std::fs::read_to_string(source) else {
        return; // outside of the workspace
    };
    let declared: Vec<&str> = text
        .match_indices("fn cu")
        .filter_map(|(at, _)| text[at + 3..].split('(').next())
        .collect();
    assert!(declared.len() > 30);
    for name in declared {
        assert!(listed.contains(name), "{name} is not in symbols.txt");
    }
}
