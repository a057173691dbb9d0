//! Layers: modules with a forward function.
//!
//! Every layer is made from an [`Init`](crate::Init): `Linear::new(&mut init, 64, 10)?` with the defaults, or
//! `Linear::builder(64, 10).bias(false).build(&mut init)?` with options. Images are channels-last, `[N, H, W, C]`.

mod activation;
mod attention;
mod batch_norm;
mod checkpointed;
mod conv;
mod conv_transpose;
#[doc(hidden)]
pub mod copies;
mod drop_path;
mod dropout;
mod embedding;
mod embedding_bag;
mod hooked;
mod lambda;
mod linear;
mod lora;
mod noise;
mod norm;
mod pool;
mod prelu;
mod recurrent;
mod residual_stream;
mod sequential;
mod transformer;
mod upsample;
mod weight_norm;

pub use crate::ops::index::BagMode;
pub use activation::*;
pub use attention::{MultiheadAttention, MultiheadAttentionBuilder};
pub(crate) use batch_norm::cumulative;
pub use batch_norm::{BatchNorm, BatchNormBuilder};
pub use checkpointed::Checkpointed;
pub use conv::*;
pub use conv_transpose::*;
pub use drop_path::{DropPath, Dropout1d, Dropout2d, Dropout3d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use embedding_bag::EmbeddingBag;
pub use hooked::Hooked;
pub use lambda::Lambda;
pub use linear::{Linear, LinearBuilder};
pub use lora::{Lora, LoraMatrix};
pub use noise::Noise;
pub use norm::*;
pub use pool::*;
pub use prelu::PRelu;
pub use recurrent::*;
pub use residual_stream::ResidualStream;
pub use sequential::Sequential;
pub(crate) use sequential::instance;
pub use transformer::{
    DecoderCache, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerEncoderLayerBuilder, TransformerMasks,
};
pub use upsample::{PixelShuffle, PixelUnshuffle, Upsample};
pub use weight_norm::{SpectralNorm, WeightNorm, Weighted};

use crate::autograd::recompute;
use crate::module::Runnable;
use crate::{Backend, Module, Result, Shape, Tensor, trace};

/// A module that maps one tensor to another.
///
/// A layer defines [`call`](Layer::call) and is used through [`forward`](Layer::forward), which runs `call` as PyTorch's
/// `__call__` runs `forward`.
///
/// ```
/// use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Tensor, layers::Linear};
/// /// Adds the output of a layer to its input.
/// #[derive(Module)]
/// struct Residual<B: Backend> {
///     inner: Linear<B>,
/// }
///
/// impl<B: Backend> Layer<B> for Residual<B> {
///     fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
///         x.add(&self.inner.forward(x)?)
///     }
/// }
///
/// # let cpu = kiln_cpu::Cpu::new();
/// let layer = Residual { inner: Linear::new(&mut Init::new(&cpu, 0), 8, 8)? };
/// assert_eq!(layer.forward(&Tensor::zeros(&cpu, &[2, 8], DType::F32)?)?.shape().dims(), [2, 8]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub trait Layer<B: Backend>: Module<B> {
    /// The layer's function, from input to output. An implementation runs inner layers by their `forward`.
    ///
    /// See the example of [`Layer`].
    ///
    /// # Errors
    /// An input that the layer does not accept, memory.
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>>;

    /// Floating-point operations of one forward pass, a multiply-add counted as two; 0 where they are negligible
    /// beside those of products. Layers made of layers leave it at 0: a summary adds up those of the inner layers.
    ///
    /// ```
    /// # use kiln_nn::{Init, Layer, Shape, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (layer, x, y) = (Linear::new(init, 64, 10)?, Shape::new(&[32, 64])?, Shape::new(&[32, 10])?);
    /// assert_eq!(Layer::flops(&layer, &x, &y), 2 * 32 * 64 * 10);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        let _ = (input, output);
        0
    }

    /// Runs the layer. An error of an inner layer names that layer's field (``in `conv1` (Conv2d): …``), and
    /// [`mod@trace`] and a profile in progress report every inner layer.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let net = Sequential::new().push_named("conv1", Conv2d::new(init, 3, 8, 3)?)?;
    /// let e = net.forward(&Tensor::zeros(&cpu, &[1, 8, 8, 1], DType::F32)?).unwrap_err();
    /// assert!(e.to_string().starts_with("in `conv1` (Conv2d)"));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Layer::call`].
    fn forward(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let body = || match recompute::is_on() {
            false => self.call(x),
            true => recompute::layer(self, x, &|| self.call(x)),
        };
        trace::run(self, None, x, |x, y| self.flops(x, y), body)
    }

    /// The outputs of all samples of `x`, `batch_size` at a time, without recording: [`predict`](crate::predict()).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Linear::new(init, 64, 10)?;
    /// let samples = Tensor::zeros(&cpu, &[1000, 64], DType::F32)?;
    /// assert_eq!(layer.predict(&samples, 128)?.shape().dims(), [1000, 10]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`predict`](crate::predict()).
    fn predict(&self, x: &Tensor<B>, batch_size: usize) -> Result<Tensor<B>> {
        crate::predict(self, x, batch_size, |x| self.forward(x))
    }
}

impl<B: Backend, L: Layer<B> + ?Sized> Layer<B> for Box<L> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        (**self).call(x)
    }
    fn flops(&self, input: &Shape, output: &Shape) -> u64 {
        (**self).flops(input, output)
    }
}

impl<B: Backend, L: Layer<B> + Clone + 'static> Runnable<B> for L {
    fn run(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.call(x)
    }
    fn duplicate(&self) -> Box<dyn Runnable<B>> {
        Box::new(self.clone())
    }
}

/// One number for all dimensions, or one per dimension: the argument of builders for kernel sizes, strides and the like. Only
/// one to three dimensions compile.
///
/// ```
/// # use kiln_nn::layers::Extents;
/// assert_eq!(Extents::<2>::extents(3), [3, 3]);
/// assert_eq!(Extents::<2>::extents([3, 5]), [3, 5]);
/// ```
pub trait Extents<const R: usize> {
    /// One number per dimension.
    ///
    /// See the example of [`Extents`].
    fn extents(self) -> [usize; R];
}

impl<const R: usize> Extents<R> for usize {
    fn extents(self) -> [usize; R] {
        const { assert!(R >= 1 && R <= 3, "images have one to three spatial dimensions") };
        [self; R]
    }
}

impl<const R: usize> Extents<R> for [usize; R] {
    fn extents(self) -> [usize; R] {
        const { assert!(R >= 1 && R <= 3, "images have one to three spatial dimensions") };
        self
    }
}

/// Implements [`Walkable`](crate::Walkable), and by it [`Module`], for a layer without parameters.
macro_rules! unit_module {
    ([$($generic:tt)*] $layer:ty, $kind:expr) => {
        impl<B: $crate::Backend, $($generic)*> $crate::Walkable<B> for $layer {
            fn kind(&self) -> &'static str {
                $kind
            }
            fn copied(&self) -> Option<Box<dyn $crate::module::Runnable<B>>> {
                Some($crate::module::Runnable::duplicate(self))
            }
            fn walk<'a>(&'a self, _: &mut $crate::Walk<'_, 'a, B>) {}
            fn walk_mut<'a>(&'a mut self, _: &mut $crate::WalkMut<'_, 'a, B>) {}
        }
    };
}
use unit_module;

/// Refuses an eps that is negative or not finite.
fn check_eps(op: &'static str, eps: f64) -> Result<()> {
    if eps >= 0.0 && eps.is_finite() {
        return Ok(());
    }
    Err(crate::Error::invalid(op, "eps", eps, "a finite number, 0 or more"))
}
