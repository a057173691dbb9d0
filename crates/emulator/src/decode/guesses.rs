//! Loops around a compare-and-swap, as the CUDA C++ Programming Guide builds other atomic functions from it. They begin
//! with a plain read of the same word: whatever it gives is right, because the swap compares it.

use crate::check::AccessKind;
use crate::exec::{Inst, with_kind};

/// The plain loads and the compare-and-swaps of one function, by their pcs.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    pub(super) loads: Vec<usize>,
    pub(super) swaps: Vec<usize>,
}

impl Guesses {
    /// Marks the loads whose address and size are those of a compare-and-swap: the same register, which nvcc writes once,
    /// and the same offset.
    pub(super) fn mark(&self, insts: &mut [Inst]) {
        for &load in &self.loads {
            let place = |i: &Inst| (i.a, i.imm, i.flags & 0xff);
            if self
                .swaps
                .iter()
                .any(|&swap| place(&insts[swap]) == place(&insts[load]))
            {
                insts[load].flags = with_kind(insts[load].flags, AccessKind::Guess);
            }
        }
    }
}
