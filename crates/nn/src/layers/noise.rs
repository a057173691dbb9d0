//! Random numbers inside of a model.

use crate::{Backend, Counter, DType, Init, Module, Result, Stream, Tensor};

/// A source of standard normal numbers inside of a model: the latent vectors of a GAN, the sample of a variational autoencoder.
///
/// The random numbers are a pure function of the seed, the layer's stream, the number of draws before, and the element.
/// That number is a counter on the device which is saved with the model (`step`), so a captured step draws new numbers each time
/// that it is replayed, and a resumed run draws the same numbers as one that was not interrupted.
///
/// ```
/// use kiln_nn::{DType, Init, layers::Noise};
/// # let cpu = kiln_cpu::Cpu::new();
/// let noise = Noise::new(&mut Init::new(&cpu, 0))?;
/// let (first, second) = (noise.randn(&[4, 64], DType::F32)?, noise.randn(&[4, 64], DType::F32)?);
/// assert_ne!(first.to_vec::<f32>()?, second.to_vec::<f32>()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Noise<B: Backend> {
    stream: Stream,
    step: Counter<B>,
}

#[compiled_once]
impl<B: Backend> Noise<B> {
    /// Creates a source. Takes a random stream of `init`.
    ///
    /// See the example of [`Noise`].
    ///
    /// # Errors
    /// Memory.
    pub fn new(init: &mut Init<B>) -> Result<Self> {
        Ok(Noise {
            stream: init.next_stream(),
            step: Counter::new(init.backend())?,
        })
    }

    /// Draws a tensor of standard normal numbers.
    ///
    /// See the example of [`Noise`].
    ///
    /// # Errors
    /// A shape that overflows, an integer dtype, memory.
    pub fn randn(&self, shape: &[usize], dtype: DType) -> Result<Tensor<B>> {
        let step = self.step.tick()?;
        Tensor::randn_at(step.backend(), shape, dtype, self.stream, &step)
    }
}
