//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the distributions drawn with it.
//!
//! A draw is a pure function of (seed, stream, step, element): element `i` takes word `i % 4` of block `i / 4`.
//! [`spaces`] lists the ranges of streams and their users.
//! Everything here uses integer arithmetic and individually rounded f32 operations only (no fused multiply-add, no
//! library functions), so a GPU kernel that follows the same steps gives the same bits.

mod normal;
pub mod spaces;

pub use normal::{normal_pair, truncated_normal};

use crate::{Result, host};

const MUL: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The ten-round Philox bijection of a counter under a key.
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key[0] = key[0].wrapping_add(WEYL[0]);
            key[1] = key[1].wrapping_add(WEYL[1]);
        }
        let a = u64::from(MUL[0]) * u64::from(counter[0]);
        let b = u64::from(MUL[1]) * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// The keys of a seed's ten rounds, for a kernel that takes them as they are.
pub fn rounds(seed: u64) -> [[u32; 2]; 10] {
    let first = [seed as u32, (seed >> 32) as u32];
    std::array::from_fn(|round| [0, 1].map(|i| first[i].wrapping_add(WEYL[i].wrapping_mul(round as u32))))
}

/// The key of a sequence of draws. The upper half of the counter is (step, stream), the lower half numbers the blocks of
/// four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The run's seed.
    pub seed: u64,
    /// The number of the sequence within the run.
    pub stream: u32,
    /// The step within the sequence.
    pub step: u32,
}

impl Key {
    /// Creates the key of a sequence.
    pub const fn new(seed: u64, stream: u32, step: u32) -> Self {
        Key { seed, stream, step }
    }

    /// The four words of block `index`: elements `4·index .. 4·index + 4`.
    #[inline(always)]
    pub fn block(&self, index: u64) -> [u32; 4] {
        philox4x32(
            [index as u32, (index >> 32) as u32, self.step, self.stream],
            [self.seed as u32, (self.seed >> 32) as u32],
        )
    }

    /// The word of one element.
    #[inline]
    pub fn word(&self, element: u64) -> u32 {
        self.block(element / 4)[(element % 4) as usize]
    }

    /// The 16 bits of one element that dropout draws: element `i` takes half `i % 2`, the lower of which comes first, of word `i / 2 % 4` of
    /// block `i / 8`.
    #[inline]
    pub fn half(&self, element: u64) -> u32 {
        halves(self.block(element / 8))[(element % 8) as usize]
    }

    /// A uniform integer in `0..bound` from the first two words of block `element` (Lemire's multiply-shift on 64 bits, with a
    /// bias below 2⁻³² for any `u32` bound).
    #[inline]
    pub fn below(&self, element: u64, bound: u32) -> u32 {
        let w = self.block(element);
        let wide = (u64::from(w[0]) << 32) | u64::from(w[1]);
        ((u128::from(wide) * u128::from(bound)) >> 64) as u32
    }

    /// A permutation of `0..n`: [`Key::shuffle`] of the identity.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn permutation(&self, n: usize) -> Result<Vec<usize>> {
        let mut order = host::collect(0..n)?;
        self.shuffle(&mut order);
        Ok(order)
    }

    /// Shuffles in place by Fisher–Yates.
    pub fn shuffle<T>(&self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            let w = self.block(i as u64);
            let wide = (u64::from(w[0]) << 32) | u64::from(w[1]);
            let j = ((u128::from(wide) * (i as u128 + 1)) >> 64) as usize;
            values.swap(i, j);
        }
    }
}

/// The words of a block as numbers of 16 bits, the lower half of each word first.
#[inline(always)]
pub fn halves(block: [u32; 4]) -> [u32; 8] {
    std::array::from_fn(|i| block[i / 2] >> (i % 2 * 16) & 0xffff)
}

/// How many of the 2¹⁶ numbers of 16 bits drop an element with probability `p`, which are those below: dropout has probabilities of
/// multiples of 2⁻¹⁶.
#[inline]
pub fn drop_below(p: f64) -> u32 {
    (p * 65_536.0 + 0.5) as u32
}

/// Converts a word to a uniform number in `[0, 1)` of 24 bits.
#[inline]
pub fn uniform(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors of the authors' Random123 library (kat_vectors, philox 4x32 10).
    #[test]
    fn known_answers() {
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                pi,
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    /// Each round's key is the one before and a Weyl constant.
    #[test]
    fn keys_of_rounds_follow_each_other() {
        let keys = rounds(0x0123_4567_89ab_cdef);
        assert_eq!(keys[0], [0x89ab_cdef, 0x0123_4567]);
        for pair in keys.windows(2) {
            assert_eq!(pair[1], [0, 1].map(|i| pair[0][i].wrapping_add(WEYL[i])));
        }
    }

    /// Eight elements share a block, each with 16 bits of its own.
    #[test]
    fn halves_are_those_of_words() {
        let key = Key::new(7, 1, 2);
        for i in 0..40u64 {
            let word = key.block(i / 8)[(i % 8 / 2) as usize];
            assert_eq!(key.half(i), if i % 2 == 0 { word & 0xffff } else { word >> 16 });
        }
        assert_eq!(
            [0.0, 0.1, 0.5, 1.0, 7e-6, 8e-6].map(drop_below),
            [0, 6554, 32_768, 65_536, 0, 1]
        );
    }

    #[test]
    fn permutations_are_permutations() {
        for n in [0, 1, 2, 31, 1000] {
            let mut p = Key::new(7, 1, 2).permutation(n).unwrap();
            p.sort_unstable();
            assert!(p.into_iter().eq(0..n));
        }
        assert_ne!(Key::new(7, 1, 2).permutation(50), Key::new(7, 1, 3).permutation(50));
    }
}
