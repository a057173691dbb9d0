//! Dropout of whole channels and of whole samples.

use super::{Dropout, Layer};
use crate::{Backend, Init, Module, Result, Tensor};

/// `x` where a mask of zeros and scaled ones, of which there is one for each entry of the `kept` axes, lets it through.
fn masked<B: Backend>(dropout: &Dropout<B>, x: &Tensor<B>, kept: impl Fn(usize) -> bool) -> Result<Tensor<B>> {
    if !dropout.is_active() {
        return Ok(x.clone());
    }
    let dims: Vec<usize> = (0..x.rank()).map(|i| if kept(i) { x.shape()[i] } else { 1 }).collect();
    x.mul(&dropout.call(&Tensor::ones(x.backend(), &dims, x.dtype())?)?)
}

macro_rules! channels {
    ($($name:ident, $torch:literal, $shape:literal;)*) => {$(
        #[doc = concat!("Zeroes whole channels of each sample with probability `p` in training and divides the others by 1 − `p` (`torch.nn.", $torch, "`, channels-last `", $shape, "`; Tompson et al. 2015). Draws as [`Dropout`].")]
        ///
        /// ```
        /// # use kiln_cpu::Cpu;
        #[doc = concat!("use kiln_nn::{DType, Init, Layer, Tensor, layers::", stringify!($name), "};")]
        /// # fn main() -> kiln_nn::Result<()> {
        /// let cpu = Cpu::new();
        #[doc = concat!("let layer = ", stringify!($name), "::new(&mut Init::new(&cpu, 0), 0.5)?;")]
        /// let x = Tensor::ones(&cpu, &[2, 4, 4, 4, 8], DType::F32)?;
        /// assert_eq!(layer.forward(&x)?.shape(), x.shape());
        /// # Ok(())
        /// # }
        /// ```
        #[derive(Clone, Debug, Module)]
        pub struct $name<B: Backend> {
            dropout: Dropout<B>,
        }

        impl<B: Backend> $name<B> {
            /// Dropout with probability `p`. Takes a random stream of `init`.
            ///
            #[doc = concat!("See the example of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// A probability outside `0..=1`, memory.
            pub fn new(init: &mut Init<B>, p: f64) -> Result<Self> {
                let dropout = Dropout::new(init, p)?;
                Ok($name { dropout })
            }
        }

        impl<B: Backend> Layer<B> for $name<B> {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                masked(&self.dropout, x, |axis| axis == 0 || axis + 1 == x.rank())
            }
        }
    )*};
}

channels! {
    Dropout1d, "Dropout1d", "[N, L, C]";
    Dropout2d, "Dropout2d", "[N, H, W, C]";
    Dropout3d, "Dropout3d", "[N, D, H, W, C]";
}

/// Zeroes whole samples with probability `p` in training and divides the others by 1 − `p`: put before the sum of a residual
/// block, it leaves the block out (stochastic depth; Huang et al. 2016; `timm.layers.DropPath`). Draws as [`Dropout`].
///
/// ```
/// # use kiln_cpu::Cpu;
/// use kiln_nn::{DType, Init, Layer, Tensor, layers::DropPath};
/// # fn main() -> kiln_nn::Result<()> {
/// let cpu = Cpu::new();
/// let layer = DropPath::new(&mut Init::new(&cpu, 0), 0.1)?;
/// let x = Tensor::ones(&cpu, &[16, 8], DType::F32)?;
/// let y = (&x + layer.forward(&x)?)?;
/// assert_eq!(y.shape(), x.shape());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct DropPath<B: Backend> {
    dropout: Dropout<B>,
}

#[compiled_once]
impl<B: Backend> DropPath<B> {
    /// Samples are dropped with probability `p`. Takes a random stream of `init`.
    ///
    /// See the example of [`DropPath`].
    ///
    /// # Errors
    /// A probability outside `0..=1`, memory.
    pub fn new(init: &mut Init<B>, p: f64) -> Result<Self> {
        let dropout = Dropout::new(init, p)?;
        Ok(DropPath { dropout })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for DropPath<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        masked(&self.dropout, x, |axis| axis == 0)
    }
}
