//! Where random numbers come from: a generator for those that a user draws, and the streams of layers and parameters.

use kiln_core::philox::{Key, spaces};

/// Streams of [`spaces::RNG`], counted in bits.
const STREAMS: u32 = 28;

/// A generator of random tensors (`torch.Generator`): each draw takes the next numbers of its seed.
///
/// ```
/// # use kiln_nn::{DType, Result, Rng, Tensor};
/// # fn main() -> Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut rng = Rng::new(42);
/// let noise = Tensor::randn(&cpu, &[16, 64], DType::F32, &mut rng)?;
/// let mut saved = Rng::at(rng.seed(), rng.position());
/// assert_ne!(noise.to_vec::<f32>()?, Tensor::randn(&cpu, &[16, 64], DType::F32, &mut rng)?.to_vec::<f32>()?);
/// assert_eq!(saved.next_key(), Rng::at(42, 1).next_key());
/// # Ok(())
/// # }
/// ```
///
/// A number is a pure function of the seed, how many draws were made before, and the element: the same on every device and for
/// any number of threads. Generators of one seed draw the same; none draws what [`Init`](crate::Init), random layers or the data
/// loader do with that seed ([`spaces`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    seed: u64,
    position: u64,
}

impl Rng {
    /// The generator of `seed`, before its first draw.
    pub const fn new(seed: u64) -> Self {
        Rng::at(seed, 0)
    }

    /// The generator of `seed` after `position` draws: how a saved one goes on.
    pub const fn at(seed: u64, position: u64) -> Self {
        Rng { seed, position }
    }

    /// The seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How many draws were made.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Takes the numbers of the next draw: what it fills its tensor from. After 2⁶⁰ draws they begin again.
    pub fn next_key(&mut self) -> Key {
        let at = self.position;
        self.position = at.wrapping_add(1);
        let stream = (at >> 32) as u32 & ((1 << STREAMS) - 1);
        Key::new(self.seed, spaces::RNG.start() + stream, at as u32)
    }
}

/// The random numbers of one parameter or one random layer, handed out by [`Init::next_stream`](crate::Init::next_stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
    number: u32,
}

impl Stream {
    /// Stream `number` of those of `seed` that belong to parameters and layers.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let number = number & spaces::INIT.end();
        Stream { seed, number }
    }

    /// Its numbers at a step.
    pub(crate) fn key(self, step: u32) -> Key {
        Key::new(self.seed, self.number, step)
    }
}
