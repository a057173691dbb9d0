//! Random numbers: a generator for tensors that a user draws, and the streams of layers and parameters.

use kiln_core::philox::{Key, spaces};

/// The number of streams of [`spaces::RNG`], as a power of two.
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
/// A number is a pure function of the seed, the number of draws before, and the element: the same on every device and for any
/// number of threads. Generators of one seed draw the same numbers, which are independent of those that [`Init`](crate::Init),
/// random layers and the data loader draw with that seed ([`spaces`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    seed: u64,
    position: u64,
}

impl Rng {
    /// The generator of `seed`, before its first draw.
    ///
    /// See the example of [`Rng`].
    pub const fn new(seed: u64) -> Self {
        Rng::at(seed, 0)
    }

    /// The generator of `seed` after `position` draws, to continue a saved one.
    ///
    /// See the example of [`Rng`].
    pub const fn at(seed: u64, position: u64) -> Self {
        Rng { seed, position }
    }

    /// The seed.
    ///
    /// See the example of [`Rng::position`].
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of draws so far.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut rng = Rng::new(42);
    /// Tensor::rand(&cpu, &[3], DType::F32, &mut rng)?;
    /// assert_eq!((rng.seed(), rng.position()), (42, 1));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Takes the key of the next draw, which gives the numbers of one tensor. After 2⁶⁰ draws the keys repeat.
    ///
    /// ```
    /// # use kiln_nn::Rng;
    /// let mut rng = Rng::new(42);
    /// assert_ne!(rng.next_key(), rng.next_key());
    /// ```
    pub fn next_key(&mut self) -> Key {
        let at = self.position;
        self.position = at.wrapping_add(1);
        let stream = (at >> 32) as u32 & ((1 << STREAMS) - 1);
        Key::new(self.seed, spaces::RNG.start() + stream, at as u32)
    }
}

/// The random numbers of one parameter or one random layer, handed out by [`Init::next_stream`](crate::Init::next_stream).
///
/// ```
/// # use kiln_nn::{Counter, DType, Init, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let (stream, step) = (init.next_stream(), Counter::new(&cpu)?);
/// let x = Tensor::ones(&cpu, &[8], DType::F32)?;
/// let (first, second) = (x.dropout_at(0.5, stream, &step.tick()?)?, x.dropout_at(0.5, stream, &step.tick()?)?);
/// assert_ne!(first.to_vec::<f32>()?, second.to_vec::<f32>()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
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

    /// The key of the stream's numbers at a step.
    pub(crate) fn key(self, step: u32) -> Key {
        Key::new(self.seed, self.number, step)
    }
}
