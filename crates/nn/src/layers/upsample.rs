//! Images of another size as layers.

use super::{Layer, unit_module};
use crate::ops::Interpolation;
use crate::{Backend, Result, Tensor};

/// The size of an [`Upsample`]'s output.
#[derive(Clone, Debug, PartialEq)]
enum Target {
    Size(Vec<usize>),
    Factor(f64),
}

/// Images of another size (`torch.nn.Upsample`, channels-last), as [`Tensor::interpolate`].
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::{DType, Layer, Tensor, layers::Upsample, ops::Interpolation};
/// # fn main() -> kiln_nn::Result<()> {
/// let layer = Upsample::by(2.0, Interpolation::Nearest);
/// let x = Tensor::zeros(&Cpu::new(), &[1, 8, 8, 3], DType::F32)?;
/// assert_eq!(layer.forward(&x)?.shape().dims(), [1, 16, 16, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Upsample {
    target: Target,
    mode: Interpolation,
}

impl Upsample {
    /// Images `factor` times as large along each axis.
    ///
    /// ```
    /// # use kiln_nn::{Layer, Tensor, layers::Upsample, ops::Interpolation};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[1, 2, 1])?;
    /// let y = Upsample::by(2.0, Interpolation::Nearest).forward(&x)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn by(factor: f64, mode: Interpolation) -> Self {
        let target = Target::Factor(factor);
        Upsample { target, mode }
    }

    /// Images of this size.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::Upsample, ops::Interpolation};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
    /// let y = Upsample::to(&[5, 12], Interpolation::Nearest).forward(&x)?;
    /// assert_eq!(y.shape().dims(), [1, 5, 12, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn to(size: &[usize], mode: Interpolation) -> Self {
        let target = Target::Size(size.to_vec());
        Upsample { target, mode }
    }
}

unit_module!([] Upsample, "Upsample");

#[compiled_once]
impl<B: Backend> Layer<B> for Upsample {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match &self.target {
            Target::Size(size) => x.interpolate(size, self.mode),
            Target::Factor(factor) => x.interpolate_by(&vec![*factor; x.rank().saturating_sub(2)], self.mode),
        }
    }
}

/// Blocks of channels as blocks of pixels (`torch.nn.PixelShuffle`), as [`Tensor::pixel_shuffle`].
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::{DType, Layer, Tensor, layers::PixelShuffle};
/// # fn main() -> kiln_nn::Result<()> {
/// let x = Tensor::zeros(&Cpu::new(), &[1, 4, 4, 12], DType::F32)?;
/// assert_eq!(PixelShuffle(2).forward(&x)?.shape().dims(), [1, 8, 8, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PixelShuffle(pub usize);

unit_module!([] PixelShuffle, "PixelShuffle");

#[compiled_once]
impl<B: Backend> Layer<B> for PixelShuffle {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.pixel_shuffle(self.0)
    }
}

/// Blocks of pixels as blocks of channels (`torch.nn.PixelUnshuffle`), as [`Tensor::pixel_unshuffle`].
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::{DType, Layer, Tensor, layers::PixelUnshuffle};
/// # fn main() -> kiln_nn::Result<()> {
/// let x = Tensor::zeros(&Cpu::new(), &[1, 8, 8, 3], DType::F32)?;
/// assert_eq!(PixelUnshuffle(2).forward(&x)?.shape().dims(), [1, 4, 4, 12]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PixelUnshuffle(pub usize);

unit_module!([] PixelUnshuffle, "PixelUnshuffle");

#[compiled_once]
impl<B: Backend> Layer<B> for PixelUnshuffle {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.pixel_unshuffle(self.0)
    }
}
