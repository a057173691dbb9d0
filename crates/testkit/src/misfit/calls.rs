//! A valid call of every op of a backend, by family.

mod elementwise;
mod fields;
mod indexing;
mod integers;
mod norms;
mod others;
mod products;
mod recurrent;
mod reductions;
mod updates;
mod windows;

use super::Call;
use kiln_core::Backend;

/// A valid call of every op. No buffer is empty, and no other size would be valid.
///
/// # Panics
/// Never: the shapes are valid.
pub fn calls<B: Backend>() -> Vec<Call<B>> {
    let mut all = elementwise::elementwise();
    all.extend(reductions::reductions());
    all.extend(products::products());
    all.extend(windows::windows());
    all.extend(norms::norms());
    all.extend(indexing::indexing());
    all.extend(integers::integers());
    all.extend(others::others());
    all.extend(recurrent::recurrent());
    all.extend(updates::updates());
    all
}
