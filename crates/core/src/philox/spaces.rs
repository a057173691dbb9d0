//! The owners of the streams of a seed, so that no two ever draw the same numbers from one seed.
//!
//! | streams | whose | counted by |
//! |---|---|---|
//! | `0000_0000..=7FFF_FFFF` | parameters and random layers: `kiln_nn::Init` | the order in which they are made; dropout's step counts its calls |
//! | `C000_0000..=CFFF_FFFF` | tensors that a user draws: `kiln_nn::Rng` | stream and step together count the draws |
//! | `D000_0000..=D0FF_FFFF` | tokens drawn from a language model: `kiln_models::Sampler` | one stream; the element counts the draws |
//! | `DA00_0000..=DAFF_FFFF` | orders, splits and synthetic samples of `kiln_data` | one stream for each use; the step is the epoch |
//! | `DB00_0000..=DBFF_FFFF` | transforms of `kiln_data`: augmentation | the stage; the step is the epoch |

use std::ops::RangeInclusive;

/// Parameters and random layers.
pub const INIT: RangeInclusive<u32> = 0..=0x7fff_ffff;
/// Tensors that a user draws.
pub const RNG: RangeInclusive<u32> = 0xc000_0000..=0xcfff_ffff;
/// Tokens drawn from a language model.
pub const SAMPLING: RangeInclusive<u32> = 0xd000_0000..=0xd0ff_ffff;
/// Orders, splits and synthetic samples.
pub const DATA: RangeInclusive<u32> = 0xda00_0000..=0xdaff_ffff;
/// Transforms.
pub const TRANSFORMS: RangeInclusive<u32> = 0xdb00_0000..=0xdbff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stream_belongs_to_two() {
        let all = [INIT, RNG, SAMPLING, DATA, TRANSFORMS];
        assert!(all.windows(2).all(|w| w[0].end() < w[1].start()));
    }
}
