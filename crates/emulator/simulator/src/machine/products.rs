//! Products of a warpgroup (`wgmma`) that are under way.

use std::collections::HashMap;

use super::slot::Slot;

/// The products that one warp takes part in. Their results stand in the registers as soon as they are issued; a kernel may
/// rely on them only after a wait.
#[derive(Debug, Default)]
pub(crate) struct Products {
    /// The groups that the warp has committed, which is the number of the open one.
    pub(crate) committed: u32,
    /// Groups before this one are complete.
    pub(crate) complete: u32,
    /// True once the warp has made a fence of its registers.
    pub(crate) fenced: bool,
    /// The group of the last product into a register, by the register's frame and slot. Only kept where an observer asks.
    results: HashMap<(u32, u32), u32>,
}

impl Products {
    pub(crate) fn clear(&mut self) {
        (self.committed, self.complete, self.fenced) = (0, 0, false);
        self.results.clear();
    }

    /// Notes the registers that a product of the open group writes.
    pub(crate) fn issue(&mut self, frame: u32, slots: &[Slot]) {
        let group = self.committed;
        self.results.extend(slots.iter().map(|slot| ((frame, slot.0), group)));
    }

    /// True if a product into this register is not complete.
    pub(crate) fn pending(&self, frame: u32, slot: Slot) -> bool {
        self.results
            .get(&(frame, slot.0))
            .is_some_and(|group| *group >= self.complete)
    }

    /// Notes that a register gets the value of another.
    pub(crate) fn copy(&mut self, frame: u32, from: Slot, to: Slot) {
        match self.results.get(&(frame, from.0)).copied() {
            Some(group) => drop(self.results.insert((frame, to.0), group)),
            None => drop(self.results.remove(&(frame, to.0))),
        }
    }
}
