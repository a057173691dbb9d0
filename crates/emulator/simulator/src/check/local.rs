//! The bytes of local memory that the threads of a block have written: arrays, and the parameters of calls.

use crate::machine::lanes;

/// A flag for each byte of each lane of one warp.
#[derive(Debug, Default)]
struct Written {
    stride: usize,
    /// The bytes of a lane follow those of the lane before; 1 for a byte that was written.
    flags: Vec<u8>,
}

impl Written {
    /// Makes room for `bytes` of each lane, and keeps what is known.
    fn reserve(&mut self, bytes: usize) {
        if bytes <= self.stride {
            return;
        }
        let stride = bytes.next_power_of_two();
        let mut flags = vec![0; 32 * stride];
        if self.stride > 0 {
            for (new, old) in flags.chunks_mut(stride).zip(self.flags.chunks(self.stride)) {
                new[..old.len()].copy_from_slice(old);
            }
        }
        *self = Written { stride, flags };
    }

    fn lane(&mut self, lane: usize) -> &mut [u8] {
        &mut self.flags[lane * self.stride..][..self.stride]
    }
}

/// The local memory of a block's threads, by warp.
#[derive(Debug, Default)]
pub(super) struct Local {
    warps: Vec<Written>,
}

impl Local {
    /// Begins a block.
    pub(super) fn begin(&mut self, warps: usize) {
        self.warps.resize_with(self.warps.len().max(warps), Written::default);
        for warp in &mut self.warps {
            warp.flags.fill(0);
        }
    }

    /// Lanes of a warp enter a function whose local memory is `len` bytes from `start` on.
    pub(super) fn enter(&mut self, warp: u32, mask: u32, start: usize, len: usize) {
        let written = &mut self.warps[warp as usize];
        written.reserve(start + len);
        for lane in lanes(mask) {
            written.lane(lane)[start..start + len].fill(0);
        }
    }

    /// A call passes bytes between the local memories of two functions: bytes that were not written stay so.
    pub(super) fn copy(&mut self, warp: u32, mask: u32, from: usize, to: usize, len: usize) {
        let written = &mut self.warps[warp as usize];
        written.reserve(from.max(to) + len);
        for lane in lanes(mask) {
            written.lane(lane).copy_within(from..from + len, to);
        }
    }

    /// A lane writes.
    pub(super) fn write(&mut self, warp: u32, lane: usize, start: usize, len: usize) {
        let written = &mut self.warps[warp as usize];
        written.reserve(start + len);
        written.lane(lane)[start..start + len].fill(1);
    }

    /// True if a lane reads bytes of which it has written none. A part suffices, because copies of a structure read its
    /// padding too.
    pub(super) fn unwritten(&mut self, warp: u32, lane: usize, start: usize, len: usize) -> bool {
        let written = &mut self.warps[warp as usize];
        written.reserve(start + len);
        written.lane(lane)[start..start + len].iter().all(|flag| *flag == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::Local;

    #[test]
    fn each_lane_has_its_own_and_calls_begin_anew() {
        let mut local = Local::default();
        local.begin(2);
        local.write(1, 3, 8, 4);
        assert!(!local.unwritten(1, 3, 8, 16), "a part is written");
        assert!(local.unwritten(1, 3, 12, 4) && local.unwritten(1, 2, 8, 4) && local.unwritten(0, 3, 8, 4));
        // Room for more keeps what is known.
        assert!(local.unwritten(1, 3, 1000, 8));
        assert!(!local.unwritten(1, 3, 8, 4));
        local.enter(1, 1 << 3 | 1 << 4, 16, 64);
        local.copy(1, 1 << 3 | 1 << 4, 8, 16, 4);
        assert!(!local.unwritten(1, 3, 16, 4) && local.unwritten(1, 4, 16, 4));
        local.enter(1, 1 << 3, 16, 64);
        assert!(local.unwritten(1, 3, 16, 4));
        local.begin(1);
        assert!(local.unwritten(1, 3, 8, 4));
    }
}
