//! A closure as a layer.

use super::Layer;
use crate::module::Runnable;
use crate::{Backend, Result, Tensor, Walk, WalkMut, Walkable};
use std::sync::Arc;

/// A layer without parameters that runs a closure (Keras's `Lambda`): a function of tensors among the layers of a
/// [`Sequential`](super::Sequential), or a look at what passes by.
///
/// ```
/// use kiln_nn::layers::{Lambda, Linear};
/// use kiln_nn::{DType, Init, Layer, Sequential, Tensor};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// static SEEN: AtomicUsize = AtomicUsize::new(0);
/// let net = Sequential::new()
///     .push(Linear::new(&mut Init::new(&cpu, 0), 4, 8)?)
///     .push(Lambda::new(|x| {
///         SEEN.fetch_add(x.size(), Ordering::Relaxed);
///         Ok(x.clone())
///     }))
///     .push(Lambda::new(|x| x.reshape((-1, 2, 4))));
/// assert_eq!(net.forward(&Tensor::zeros(&cpu, &[3, 4], DType::F32)?)?.shape().dims(), [3, 2, 4]);
/// assert_eq!(SEEN.load(Ordering::Relaxed), 24);
/// # Ok(())
/// # }
/// ```
pub struct Lambda<B: Backend> {
    f: Arc<Function<B>>,
}

type Function<B> = dyn Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync;

#[compiled_once]
impl<B: Backend> Lambda<B> {
    /// The layer that returns `f` of its input.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::Lambda};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let double = Lambda::new(|x| x.mul_scalar(2.0));
    /// assert_eq!(double.forward(&Tensor::ones(&cpu, &[2], DType::F32)?)?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn new(f: impl Fn(&Tensor<B>) -> Result<Tensor<B>> + Send + Sync + 'static) -> Self {
        Lambda { f: Arc::new(f) }
    }
}

impl<B: Backend> Clone for Lambda<B> {
    fn clone(&self) -> Self {
        Lambda { f: self.f.clone() }
    }
}

impl<B: Backend> Walkable<B> for Lambda<B> {
    fn kind(&self) -> &'static str {
        "Lambda"
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(self.duplicate())
    }
    fn walk<'a>(&'a self, _: &mut Walk<'_, 'a, B>) {}
    fn walk_mut<'a>(&'a mut self, _: &mut WalkMut<'_, 'a, B>) {}
}

#[compiled_once]
impl<B: Backend> Layer<B> for Lambda<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        (self.f)(x)
    }
}
