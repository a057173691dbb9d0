//! Aligned memory from the system: cache lines on the heap or, for large blocks, mapped pages, huge ones where available.
//!
//! Large matrices touch a new page every few elements, and the TLB holds few pages: with pages of 4 KiB, products of
//! 2048 × 2048 matrices took 7 % longer than with pages of 2 MiB.

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use memmap2::MmapMut;

/// One cache line: the unit and the alignment of every block.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

/// The size of a line in bytes.
pub(crate) const LINE: usize = size_of::<Line>();

/// The size of a huge page in bytes, and of the smallest block that is mapped.
const HUGE: usize = 2 << 20;

/// A block of cache lines.
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
    /// The block without lines.
    pub(crate) const EMPTY: Block = Block(Memory::Heap(Vec::new()));

    /// Allocates `lines` zeroed lines; `None` if the system has no memory.
    pub(crate) fn new(lines: usize) -> Option<Self> {
        let bytes = lines.checked_mul(LINE)?;
        if bytes < HUGE {
            let mut heap = Vec::new();
            heap.try_reserve_exact(lines).ok()?;
            heap.resize(lines, Line::zeroed());
            return Some(Block(Memory::Heap(heap)));
        }
        // One more huge page of address space, so that the block can start at a huge page; it takes no memory.
        let map = MmapMut::map_anon(bytes.checked_add(HUGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE);
        // Whole huge pages only: the rest of the last one would never be used. The error of a system without huge pages is
        // ignored.
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

    /// The number of lines.
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
