//! A ReLU whose negative slope is learned.

use super::Layer;
use crate::{Backend, Error, Init, Module, Param, Result, Tensor};

/// x for x > 0, else `weight`·x: the slope is learned, one for all channels or one for each channel of `[…, C]` (He et
/// al. 2015; `torch.nn.PReLU`).
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::{Init, Layer, Tensor, layers::PRelu};
/// # fn main() -> kiln_nn::Result<()> {
/// let cpu = Cpu::new();
/// let layer = PRelu::new(&mut Init::new(&cpu, 0), 1)?;
/// let x = Tensor::from_slice(&cpu, &[-2.0f32, 3.0], &[2])?;
/// assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [-0.5, 3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct PRelu<B: Backend> {
    /// The slopes `[1]` or `[C]`.
    pub weight: Param<B>,
}

#[compiled_once]
impl<B: Backend> PRelu<B> {
    /// A layer with `parameters` slopes, all 0.25 at first: 1, or as many as the last dimension has channels.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::PRelu};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = PRelu::new(init, 64)?; // a slope for each of 64 channels
    /// assert_eq!(layer.weight.to_vec::<f32>()?, [0.25; 64]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// `parameters` of 0; [`Error::OutOfMemory`].
    pub fn new(init: &mut Init<B>, parameters: usize) -> Result<Self> {
        if parameters == 0 {
            return Err(Error::invalid("prelu", "parameters", 0, "1, or the number of channels"));
        }
        Ok(PRelu {
            weight: init.constant(&[parameters], 0.25)?,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for PRelu<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.prelu(&self.weight)
    }
}
