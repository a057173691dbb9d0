//! How many sectors an access to global memory takes, and how many wavefronts one to shared memory.

use crate::machine::lanes;

/// Bytes of a sector: what a cache line of global memory is read and written by.
pub(super) const SECTOR: u64 = 32;
/// Bytes of a cache line.
pub(super) const LINE: u64 = 128;
/// Banks of shared memory, of four bytes each.
const BANKS: usize = 32;

/// Sectors, lines and wavefronts of one access of a warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Sectors or wavefronts.
    pub(super) parts: u64,
    /// The fewest that the same bytes could take.
    pub(super) minimum: u64,
    /// The different bytes that are asked for.
    pub(super) bytes: u64,
}

/// The sectors of an access to global memory of the lanes of `mask`. The fewest are those of its bytes side by side.
pub(super) fn sectors(mask: u32, addresses: &[u64; 32], size: impl Fn(usize) -> u32) -> Cost {
    let (mut spans, mut count) = ([(0, 0); 32], 0);
    for lane in lanes(mask) {
        spans[count] = (addresses[lane], addresses[lane] + u64::from(size(lane)));
        count += 1;
    }
    let spans = &mut spans[..count];
    if !spans.is_sorted() {
        spans.sort_unstable();
    }
    let (mut cost, mut end, mut next) = (Cost::default(), 0, 0);
    for &mut (from, to) in spans {
        cost.bytes += to.saturating_sub(from.max(end));
        end = end.max(to);
        let (first, last) = ((from / SECTOR).max(next), to.div_ceil(SECTOR));
        cost.parts += last.saturating_sub(first);
        next = next.max(last);
    }
    cost.minimum = cost.bytes.div_ceil(SECTOR);
    cost
}

/// The wavefronts of an access to shared memory: of all lanes at once, of half a warp where each has 8 bytes, of a quarter
/// where each has 16. Different words of one bank are passed on one after the other, and so are lanes that change one word
/// atomically; others that name the same word have it at once. The fewest are one for each part of the warp that takes part.
pub(super) fn wavefronts(mask: u32, addresses: &[u64; 32], size: u32, atomic: bool) -> Cost {
    let words = (size / 4).max(1);
    let together = 32 / words;
    let mut cost = Cost {
        bytes: sectors(mask, addresses, |_| size).bytes,
        ..Cost::default()
    };
    for first in (0..32).step_by(together as usize) {
        let part = mask & (((1u64 << together) - 1) << first) as u32;
        if part == 0 {
            continue;
        }
        let (mut named, mut count) = ([0; BANKS], 0);
        for lane in lanes(part) {
            for word in 0..u64::from(words) {
                named[count] = addresses[lane] / 4 + word;
                count += 1;
            }
        }
        let named = &mut named[..count];
        named.sort_unstable();
        let (mut banks, mut before) = ([0u64; BANKS], None);
        for word in named {
            if atomic || before != Some(*word) {
                banks[*word as usize % BANKS] += 1;
            }
            before = Some(*word);
        }
        cost.parts += banks.into_iter().max().unwrap_or(0);
        cost.minimum += 1;
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::{Cost, sectors, wavefronts};

    fn addresses(of: impl Fn(u64) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| of(lane as u64))
    }

    fn cost(parts: u64, minimum: u64, bytes: u64) -> Cost {
        Cost { parts, minimum, bytes }
    }

    #[test]
    fn bytes_that_lanes_share_are_asked_for_once() {
        // Lanes in pairs at one address: 16 words.
        assert_eq!(sectors(u32::MAX, &addresses(|l| l / 2 * 4), |_| 4), cost(2, 2, 64));
        // Lanes that overlap by half: 33 · 4 bytes, and one sector more than 128 bytes.
        assert_eq!(sectors(u32::MAX, &addresses(|l| l * 4), |_| 8), cost(5, 5, 132));
        // In reverse.
        assert_eq!(sectors(u32::MAX, &addresses(|l| 124 - l * 4), |_| 4), cost(4, 4, 128));
        // Different sizes: 16 bytes of each even lane, 4 of each odd one.
        let size = |l: usize| if l.is_multiple_of(2) { 16 } else { 4 };
        assert_eq!(sectors(u32::MAX, &addresses(|l| l * 16), size), cost(16, 10, 320));
    }

    /// Against the definition, byte by byte, for addresses that a generator draws.
    #[test]
    fn both_agree_with_sets_of_bytes() {
        let mut state = 1u64;
        let mut draw = |n: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..2000 {
            let size = 1 << draw(5);
            let span = 1 + draw(64);
            let mut drawn = [0; 32];
            drawn.fill_with(|| draw(span) * u64::from(size));
            let mask = draw(u64::from(u32::MAX)) as u32 | 1 << draw(32);
            let on = || (0..32usize).filter(|l| mask >> l & 1 != 0);
            let bytes: std::collections::BTreeSet<u64> =
                on().flat_map(|l| drawn[l]..drawn[l] + u64::from(size)).collect();
            let touched: std::collections::BTreeSet<u64> = bytes.iter().map(|b| b / 32).collect();
            let found = sectors(mask, &drawn, |_| size);
            let all = bytes.len() as u64;
            assert_eq!(found, cost(touched.len() as u64, all.div_ceil(32), all));
            assert!(found.parts >= found.minimum);

            let lanes_at_once = if size <= 4 { 32 } else { 128 / size as usize };
            let (mut parts, mut minimum) = (0, 0);
            for part in 0..32 / lanes_at_once {
                let here = on().filter(|l| l / lanes_at_once == part);
                let words: std::collections::BTreeSet<u64> = here
                    .flat_map(|l| (drawn[l]..drawn[l] + u64::from(size)).map(|b| b / 4))
                    .collect();
                let bank = |bank: u64| words.iter().filter(|w| *w % 32 == bank).count() as u64;
                parts += (0..32).map(bank).max().unwrap();
                minimum += u64::from(!words.is_empty());
            }
            let found = wavefronts(mask, &drawn, size, false);
            assert_eq!(found, cost(parts, minimum, all));
            assert!(found.parts >= found.minimum && wavefronts(mask, &drawn, size, true).parts >= found.parts);
        }
    }
}
