//! Memory from the system: lines of the heap, or, when they are many, pages of their own, huge ones where the system has them.
//!
//! A walk over matrices touches a page after every few elements, and a processor remembers the addresses of few pages: with
//! pages of 4 KiB, products of 2048 × 2048 matrices took 7 % longer than with pages of 2 MiB.

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use memmap2::MmapMut;

/// One cache line: the unit and the alignment of every block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

/// Bytes of a line.
pub(crate) const LINE: usize = size_of::<Line>();

/// Bytes of a huge page, and of the smallest block of pages.
const HUGE: usize = 2 << 20;

/// A number of lines.
pub(crate) struct Block(Memory);

enum Memory {
    Heap(Vec<Line>),
    /// `bytes` bytes from `start` on.
    Pages {
        map: MmapMut,
        start: usize,
        bytes: usize,
    },
}

impl Block {
    /// No lines.
    pub(crate) const EMPTY: Block = Block(Memory::Heap(Vec::new()));

    /// `lines` zeroed lines; `None` when the system has no such memory.
    pub(crate) fn new(lines: usize) -> Option<Self> {
        let bytes = lines.checked_mul(LINE)?;
        if bytes < HUGE {
            let mut heap = Vec::new();
            heap.try_reserve_exact(lines).ok()?;
            heap.resize(lines, Line::zeroed());
            return Some(Block(Memory::Heap(heap)));
        }
        // A page more, so that a huge one starts inside: addresses, not memory.
        let map = MmapMut::map_anon(bytes.checked_add(HUGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE);
        // Whole pages alone: the rest of the last one would never be used. A system without huge pages says so, and does
        // without.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, bytes / HUGE * HUGE);
        Some(Block(Memory::Pages { map, start, bytes }))
    }

    pub(crate) fn lines(&self) -> &[Line] {
        match &self.0 {
            Memory::Heap(lines) => lines,
            Memory::Pages { map, start, bytes } => cast_slice(&map[*start..*start + *bytes]),
        }
    }

    pub(crate) fn lines_mut(&mut self) -> &mut [Line] {
        match &mut self.0 {
            Memory::Heap(lines) => lines,
            Memory::Pages { map, start, bytes } => cast_slice_mut(&mut map[*start..*start + *bytes]),
        }
    }

    /// How many lines.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Memory::Heap(lines) => lines.len(),
            Memory::Pages { bytes, .. } => bytes / LINE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_there_zeroed_and_writable() {
        for bytes in [0, LINE, HUGE - LINE, HUGE, HUGE + LINE, 3 * HUGE - LINE] {
            let mut block = Block::new(bytes / LINE).unwrap();
            assert_eq!((block.len(), block.lines().len()), (bytes / LINE, bytes / LINE));
            assert!(block.lines().iter().all(|line| line.0 == [0; LINE]));
            block.lines_mut().fill(Line([7; LINE]));
            assert!(block.lines().iter().all(|line| line.0 == [7; LINE]));
        }
        assert!(Block::new(usize::MAX / 2).is_none() && Block::new(isize::MAX as usize / LINE).is_none());
    }
}
