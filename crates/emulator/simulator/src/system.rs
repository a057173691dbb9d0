//! Services of the driver for running kernels: `printf`'s output, and the heap behind `malloc`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::memory::{Kind, Memory};

/// Bytes that an entry of the output takes beside its arguments.
const ENTRY: usize = 24;

/// The output and the heap of one context.
#[derive(Debug, Default)]
pub struct System {
    output: Mutex<Output>,
    heap: Mutex<Heap>,
}

/// Text printed by kernels and not yet read by the host.
#[derive(Debug, Default)]
struct Output {
    entries: VecDeque<Entry>,
    used: usize,
    limit: usize,
    /// True once a kernel has printed.
    begun: bool,
}

/// One call of `printf`, or one failed assertion.
#[derive(Debug)]
struct Entry {
    /// The launch and the block, for the order.
    order: (u64, u64),
    bytes: usize,
    text: Text,
}

/// Text for one of the program's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Text of `printf`.
    Output(Vec<u8>),
    /// Text of `assert`.
    Error(Vec<u8>),
}

/// Memory that kernels allocate from.
#[derive(Debug, Default)]
struct Heap {
    base: u64,
    size: u64,
    /// The length of each allocation, by its offset.
    taken: BTreeMap<u64, u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl System {
    /// A system whose output holds `limit` bytes.
    pub fn new(limit: usize) -> System {
        let system = System::default();
        lock(&system.output).limit = limit;
        system
    }

    /// Sets how many bytes of output are kept; `false` once a kernel has printed.
    pub fn set_limit(&self, limit: usize) -> bool {
        let mut output = lock(&self.output);
        if !output.begun {
            output.limit = limit;
        }
        !output.begun
    }

    /// Adds text of a block of a launch, whose arguments took `bytes`. The oldest is lost when there is no room.
    pub(crate) fn print(&self, order: (u64, u64), bytes: usize, text: Text) {
        let mut output = lock(&self.output);
        let bytes = bytes + ENTRY;
        output.begun = true;
        output.used += bytes;
        output.entries.push_back(Entry { order, bytes, text });
        while output.used > output.limit {
            let Some(lost) = output.entries.pop_front() else { break };
            output.used -= lost.bytes;
        }
    }

    /// Takes the printed text: launches in order, and for each its blocks in order.
    pub fn take(&self) -> Vec<Text> {
        let mut output = lock(&self.output);
        output.used = 0;
        let mut entries: Vec<Entry> = output.entries.drain(..).collect();
        entries.sort_by_key(|e| e.order);
        entries.into_iter().map(|e| e.text).collect()
    }

    /// Gives kernels a heap of this size, unless they have one.
    pub fn ensure_heap(&self, memory: &Memory, device: u32, size: u64) {
        let mut heap = lock(&self.heap);
        if heap.size == 0
            && let Ok(range) = memory.allocate(device, size.max(1), Kind::Variable)
        {
            (heap.base, heap.size) = (range.base, range.len);
        }
    }

    /// True if kernels have a heap.
    pub fn has_heap(&self) -> bool {
        lock(&self.heap).size > 0
    }

    /// Gives the heap's memory back.
    pub fn free_heap(&self, memory: &Memory) {
        let heap = std::mem::take(&mut *lock(&self.heap));
        if heap.size > 0 {
            // This cannot fail: the range was allocated for the heap and is freed here alone.
            let _ = memory.free(heap.base);
        }
    }

    /// `malloc`: an address, or 0 when there is no room.
    pub(crate) fn allocate(&self, bytes: u64) -> u64 {
        let mut heap = lock(&self.heap);
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(16) else {
            return 0;
        };
        let mut at = 0;
        for (start, length) in &heap.taken {
            if start - at >= bytes {
                break;
            }
            at = start + length;
        }
        if heap.size - at < bytes {
            return 0;
        }
        heap.taken.insert(at, bytes);
        heap.base + at
    }

    /// `free`; `false` when `malloc` did not give the address.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut heap = lock(&self.heap);
        let at = address.wrapping_sub(heap.base);
        address == 0 || heap.taken.remove(&at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_output_is_lost() {
        let system = System::new(100);
        for k in 0..5u8 {
            system.print((0, u64::from(5 - k)), 10, Text::Output(vec![k]));
        }
        // Two entries of 34 bytes fit; blocks come in order.
        assert_eq!(system.take(), [Text::Output(vec![4]), Text::Output(vec![3])]);
        assert!(system.take().is_empty() && !system.set_limit(1));
    }

    #[test]
    fn the_heap_is_used_again() {
        let memory = Memory::new(1 << 20, false);
        let system = System::new(0);
        assert_eq!(system.allocate(1), 0);
        system.ensure_heap(&memory, 0, 64);
        let [a, b, c] = [16, 17, 16].map(|bytes| system.allocate(bytes));
        assert_eq!((b - a, c - a, system.allocate(1)), (16, 48, 0));
        assert!(system.free(b) && !system.free(b) && !system.free(a + 1) && system.free(0));
        assert_eq!(system.allocate(32), b);
        assert_eq!(system.allocate(u64::MAX), 0);
        system.free_heap(&memory);
        assert!(!system.has_heap() && memory.of_device(0).is_empty());
    }
}
