//! The ranges of streams and their users, so that no two users draw the same numbers from one seed.
//!
//! - `0000_0000..=7FFF_FFFF`: parameters and random layers, `kiln_nn::Init`. Streams are counted in the order in which
//!   parameters and layers are made; dropout's step counts its calls.
//! - `C000_0000..=CFFF_FFFF`: tensors that a user draws, `kiln_nn::Rng`. Stream and step together count the draws.
//! - `D000_0000..=D0FF_FFFF`: `kiln_models`. Stream 0 is tokens drawn from a language model, where the element counts the draws;
//!   stream 1 tokens that `kiln_data` makes up, where the step is the part; stream 2 the noise of samples that are measured.
//! - `DA00_0000..=DAFF_FFFF`: orders, splits and synthetic samples of `kiln_data`. A stream for each use; the step is the
//!   epoch of an order, and the part or the class of synthetic samples.
//! - `DB00_0000..=DBFF_FFFF`: transforms of `kiln_data`. The stream is the stage; the step is the epoch.

use std::ops::RangeInclusive;

/// The streams of parameters and random layers.
pub const INIT: RangeInclusive<u32> = 0..=0x7fff_ffff;
/// The streams of tensors that a user draws.
pub const RNG: RangeInclusive<u32> = 0xc000_0000..=0xcfff_ffff;
/// The streams of tokens drawn from a language model.
pub const SAMPLING: RangeInclusive<u32> = 0xd000_0000..=0xd0ff_ffff;
/// The streams of orders, splits and synthetic samples.
pub const DATA: RangeInclusive<u32> = 0xda00_0000..=0xdaff_ffff;
/// The streams of transforms.
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
