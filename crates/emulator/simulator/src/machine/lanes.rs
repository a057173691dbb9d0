//! The lanes of a mask.

/// The lanes of a mask, from the lowest.
#[derive(Clone, Copy)]
pub(crate) struct Lanes(u32);

impl Iterator for Lanes {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

/// The indices of the lanes in a mask.
#[inline(always)]
pub(crate) fn lanes(mask: u32) -> Lanes {
    Lanes(mask)
}
