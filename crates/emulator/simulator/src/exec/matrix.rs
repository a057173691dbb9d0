//! Matrices in shared memory that a product of a warpgroup reads, by their descriptors (PTX ISA, "Asynchronous warpgroup level
//! matrix shared memory layout").
//!
//! A matrix consists of chunks of 16 bytes. Eight lines of chunks, one after the other, are an atom; a descriptor says how far
//! it is to the next atom across the lines and along them. Lines run along k, or along the other side where the matrix is
//! transposed.

/// Bits 4 to 6 of an address, into which a swizzle mixes the bits 7 to 9, by the descriptor's mode.
const SWIZZLES: [u64; 4] = [0, 0x70, 0x30, 0x10];
/// Bytes of a line of an atom, by the descriptor's mode.
const LINES: [u64; 4] = [16, 128, 64, 32];

/// The layout of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    start: u64,
    /// Bytes of a line of an atom.
    line: u64,
    /// Bytes from an atom to that of the next eight lines.
    across: u64,
    /// Bytes from an atom to the next along the lines.
    along: u64,
    swizzle: u64,
}

impl Layout {
    /// The layout that a descriptor gives; a message if it is not implemented.
    pub(super) fn of(descriptor: u64, transposed: bool) -> Result<Layout, &'static str> {
        let bytes = |at: u32| (descriptor >> at & 0x3fff) << 4;
        let mode = (descriptor >> 62) as usize;
        if descriptor >> 49 & 7 != 0 {
            return Err("a base offset in the descriptor of a matrix, which is not implemented");
        }
        let (leading, stride) = (bytes(16), bytes(32));
        // Without a swizzle the two change places where the matrix is transposed.
        let (along, across) = if transposed && mode == 0 {
            (stride, leading)
        } else {
            (leading, stride)
        };
        Ok(Layout {
            start: bytes(0),
            line: LINES[mode],
            across,
            along,
            swizzle: SWIZZLES[mode],
        })
    }

    /// The offset in shared memory of a chunk of a line.
    #[inline(always)]
    pub(super) fn chunk(&self, line: usize, chunk: usize) -> u64 {
        let (line, at) = (line as u64, chunk as u64 * 16);
        let (atom, within) = (at / self.line, at % self.line);
        let place = self.start + line % 8 * self.line + line / 8 * self.across + atom * self.along + within;
        place ^ (place >> 3 & self.swizzle)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    fn descriptor(start: u64, leading: u64, stride: u64, mode: u64) -> u64 {
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62
    }

    #[test]
    fn a_swizzle_of_128_bytes_repeats_after_eight_lines() {
        let layout = Layout::of(descriptor(2048, 16, 1024, 1), false).unwrap();
        for line in 0..64 {
            for chunk in 0..8 {
                let wanted = 2048 + line * 128 + (chunk ^ (line % 8)) * 16;
                assert_eq!(layout.chunk(line, chunk), wanted as u64);
            }
        }
        // Further along k, inside of the atom.
        let layout = Layout::of(descriptor(2048 + 64, 16, 1024, 1), false).unwrap();
        assert_eq!(layout.chunk(3, 1), 2048 + 3 * 128 + (5 ^ 3) * 16);
    }

    #[test]
    fn strides_change_places_without_a_swizzle() {
        let layout = |transposed| Layout::of(descriptor(0, 512, 4096, 0), transposed).unwrap();
        assert_eq!(layout(false).chunk(9, 1), 16 + 4096 + 512);
        assert_eq!(layout(true).chunk(9, 2), 16 + 512 + 2 * 4096);
        let swizzled = Layout::of(descriptor(0, 512, 4096, 2), true).unwrap();
        assert_eq!(swizzled.chunk(10, 5), (2 * 64 + 4096 + 512 + 16) ^ 0x10);
    }

    #[test]
    fn a_base_offset_is_refused() {
        assert!(Layout::of(1 << 49, false).is_err());
    }
}
