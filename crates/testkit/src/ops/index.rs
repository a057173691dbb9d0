//! Shape ops, views, joins and index ops.

mod bad_input;
mod bag;
mod basic;
mod gather;
mod join;
mod masked;
mod pixels;
mod triangle;
mod view;
mod windows;

pub use bad_input::bad_input;
pub use bag::bags;
pub use basic::indexing;
pub use gather::{embedding, gather, index_add, index_copy, index_select, one_hot, scatter, scatter_add};
pub use join::{concat, pad, stack, tile};
pub use masked::masks;
pub use pixels::pixels;
pub use triangle::triangles;
pub use view::views;
pub use windows::windows;

/// Choices for an op's arguments, drawn after its shape is known: `next(n)` is below `n`.
#[derive(Clone, Debug)]
struct Choices(Vec<u16>);

impl Choices {
    fn next(&mut self, n: usize) -> usize {
        let value = self.0.pop().unwrap_or(0);
        usize::from(value) % n.max(1)
    }

    fn flag(&mut self) -> bool {
        self.next(2) == 1
    }

    /// An axis of a tensor of this rank, and the same axis counted from the start or, as a negative number, from the end.
    fn axis(&mut self, rank: usize) -> (usize, isize) {
        let axis = self.next(rank);
        (
            axis,
            if self.flag() {
                axis as isize
            } else {
                axis as isize - rank as isize
            },
        )
    }

    /// A permutation of `0..n`.
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.next(i + 1));
        }
        order
    }
}

/// A strategy of [`Choices`].
fn choices() -> impl proptest::strategy::Strategy<Value = Choices> {
    use proptest::prelude::*;
    prop::collection::vec(any::<u16>(), 40).prop_map(Choices)
}
