//! Forward passes without gradients, over parts of the samples.

use crate::module::{Module, entries, is_training};
use crate::{Indices, Tensor, no_grad};
use kiln_core::{Backend, Error, Result, Shape};
use std::sync::OnceLock;

const OP: &str = "predict";

/// The input of a model, samples along the first dimension.
///
/// ```
/// # use kiln_nn::{Samples, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
/// assert_eq!(Samples::part(&x, 1, 2)?.to_vec::<f32>()?, [3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(Samples::shape(&x).dims(), [3, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub trait Samples<B: Backend>: Sized + Send + Sync {
    /// The backend.
    ///
    /// See the example of [`Samples`].
    fn backend(&self) -> &B;
    /// The dimensions.
    ///
    /// See the example of [`Samples`].
    fn shape(&self) -> &Shape;
    /// The samples `start..start + length`.
    ///
    /// See the example of [`Samples`].
    ///
    /// # Errors
    /// A range that ends beyond the last sample, memory.
    fn part(&self, start: usize, length: usize) -> Result<Self>;
    /// The samples as a tensor; `None` if they are of another kind, such as ids.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Samples};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 4)?;
    /// assert!(ids.as_tensor().is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn as_tensor(&self) -> Option<&Tensor<B>> {
        None
    }
}

impl<B: Backend> Samples<B> for Tensor<B> {
    fn backend(&self) -> &B {
        self.backend()
    }
    fn shape(&self) -> &Shape {
        self.shape()
    }
    fn part(&self, start: usize, length: usize) -> Result<Self> {
        self.narrow(0, start, length)
    }
    fn as_tensor(&self) -> Option<&Tensor<B>> {
        Some(self)
    }
}

impl<B: Backend> Samples<B> for Indices<B> {
    fn backend(&self) -> &B {
        self.backend()
    }
    fn shape(&self) -> &Shape {
        self.shape()
    }
    fn part(&self, start: usize, length: usize) -> Result<Self> {
        self.narrow(0, start, length)
    }
}

/// The outputs of `forward` for all samples of `x`, `batch_size` at a time, without recording (`keras.Model.predict`): `[N, …]`
/// to `[N, …]`.
///
/// On the CPU the parts are shared out among threads, each of which takes its part from the first layer to the last: what a
/// layer writes is still in the thread's cache when the next one reads it. Small networks are fastest with parts whose
/// activations take a few hundred KiB each. Results depend on `batch_size` by rounding, never on the number of threads.
///
/// ```
/// # use kiln_nn::{Indices, Init, layers::Embedding, predict};
/// # let cpu = kiln_cpu::Cpu::new();
/// let embedding = Embedding::new(&mut Init::new(&cpu, 0), 100, 8)?;
/// let ids = Indices::arange(&cpu, 0, 100)?;
/// let vectors = predict(&embedding, &ids, 16, |part| embedding.forward(part))?;
/// assert_eq!(vectors.shape().dims(), [100, 8]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// A `model` with a layer in training mode ([`Module::eval`] comes first), a `batch_size` of 0, an `x` without dimensions, an
/// output that has another number of samples than its input; as `forward`.
pub fn predict<B: Backend, X: Samples<B>>(
    model: &(impl Module<B> + ?Sized),
    x: &X,
    batch_size: usize,
    forward: impl Fn(&X) -> Result<Tensor<B>> + Sync,
) -> Result<Tensor<B>> {
    if is_training(&entries(model)) {
        return Err(Error::invalid(
            OP,
            "model",
            "in training mode",
            "a call of `eval` before",
        ));
    }
    by_parts(x, batch_size, &forward)
}

/// [`predict`] without the model's type.
fn by_parts<B: Backend, X: Samples<B>>(
    x: &X,
    batch_size: usize,
    forward: &(dyn Fn(&X) -> Result<Tensor<B>> + Sync),
) -> Result<Tensor<B>> {
    if batch_size == 0 {
        return Err(Error::invalid(OP, "batch_size", batch_size, "at least 1"));
    }
    let Some(&samples) = x.shape().first() else {
        return Err(Error::invalid(OP, "x", x.shape(), "samples along a first dimension"));
    };
    let one = |x: &X| {
        let y = no_grad(|| forward(x))?;
        match y.shape().first() == x.shape().first() {
            true => Ok(y),
            false => Err(Error::ShapeMismatch {
                op: OP,
                lhs: *x.shape(),
                rhs: *y.shape(),
            }),
        }
    };
    if samples <= batch_size {
        return one(x);
    }
    let parts: Vec<OnceLock<Tensor<B>>> = (0..samples.div_ceil(batch_size)).map(|_| OnceLock::new()).collect();
    x.backend().each(parts.len(), &|i| {
        let start = i * batch_size;
        let y = one(&x.part(start, batch_size.min(samples - start))?)?;
        parts[i].get_or_init(|| y);
        Ok(())
    })?;
    let parts: Vec<&Tensor<B>> = parts.iter().filter_map(OnceLock::get).collect();
    no_grad(|| Tensor::concat(&parts, 0))
}
