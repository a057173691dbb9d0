//! Residual streams of pre-norm transformers.

use super::{Dropout, Layer, LayerNorm};
use crate::autograd::recompute;
use crate::ops::DropoutDraw;
use crate::{Backend, Result, Tensor, trace};

/// A residual stream that has not yet added what its last branch gave: the norm that reads the stream next does so in the same pass, also
/// where it belongs to the next block ([`Tensor::residual_norm`]).
///
/// ```
/// # use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Tensor};
/// # use kiln_nn::layers::{Dropout, LayerNorm, Linear, ResidualStream};
/// #[derive(Module)]
/// struct Block<B: Backend> {
///     norm: LayerNorm<B>,
///     dense: Linear<B>,
///     dropout: Dropout<B>,
/// }
///
/// impl<B: Backend> Block<B> {
///     fn add_to(&self, stream: ResidualStream<B>) -> Result<ResidualStream<B>> {
///         let (stream, x) = stream.norm(&self.norm)?;
///         stream.add(&self.dense.forward(&x)?, Some(&self.dropout))
///     }
/// }
///
/// impl<B: Backend> Layer<B> for Block<B> {
///     fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
///         self.add_to(ResidualStream::new(x))?.sum()
///     }
/// }
/// # fn main() -> Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// # let mut block = || -> Result<_> {
/// #     Ok(Block { norm: LayerNorm::new(init, &[8])?, dense: Linear::new(init, 8, 8)?, dropout: Dropout::new(init, 0.0)? })
/// # };
/// # let x = Tensor::ones(&cpu, &[2, 8], DType::F32)?;
///
/// let blocks = [block()?, block()?];
/// let mut stream = ResidualStream::new(&x);
/// for block in &blocks {
///     stream = stream.through(block, |stream| block.add_to(stream))?;
/// }
/// let one_by_one = blocks[1].forward(&blocks[0].forward(&x)?)?;
/// assert_eq!(stream.sum()?.to_vec::<f32>()?, one_by_one.to_vec::<f32>()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ResidualStream<B: Backend> {
    x: Tensor<B>,
    branch: Option<(Tensor<B>, Option<DropoutDraw<B>>)>,
}

#[compiled_once]
impl<B: Backend> ResidualStream<B> {
    /// The stream `x`.
    ///
    /// See the example of [`ResidualStream`].
    pub fn new(x: &Tensor<B>) -> Self {
        ResidualStream {
            x: x.clone(),
            branch: None,
        }
    }

    /// The stream with what a branch adds to it, of the same shape, with dropout if there is a layer of it.
    ///
    /// See the example of [`ResidualStream`].
    ///
    /// # Errors
    /// As [`Tensor::residual_add`], for the branch before.
    pub fn add(self, y: &Tensor<B>, dropout: Option<&Dropout<B>>) -> Result<Self> {
        let drawn = dropout.map(Dropout::draw).transpose()?.flatten();
        Ok(ResidualStream {
            x: self.sum()?,
            branch: Some((y.clone(), drawn)),
        })
    }

    /// The stream, and its norm as products read it ([`LayerNorm::forward_half`]).
    ///
    /// See the example of [`ResidualStream`].
    ///
    /// # Errors
    /// As [`Tensor::residual_norm`].
    pub fn norm(self, norm: &LayerNorm<B>) -> Result<(Self, Tensor<B>)> {
        let branch = self.branch.as_ref().map(|(y, drawn)| (y, drawn.as_ref()));
        let (sum, normed) = norm.norm_of_sum(&self.x, branch)?;
        Ok((ResidualStream::new(&sum), normed))
    }

    /// The sum of the stream and its last branch.
    ///
    /// See the example of [`ResidualStream`].
    ///
    /// # Errors
    /// As [`Tensor::residual_add`].
    pub fn sum(self) -> Result<Tensor<B>> {
        match self.branch {
            None => Ok(self.x),
            Some((y, drawn)) => self.x.residual_add(&y, drawn.as_ref()),
        }
    }
}

impl<B: Backend> ResidualStream<B> {
    /// The stream behind a block, whose additions `run` makes: named in errors, traces and profiles as by [`Layer::forward`]. A block that
    /// is computed again in the backward pass ([`checkpoint_layers`](crate::autograd::checkpoint_layers)) runs by its forward pass
    /// alone.
    ///
    /// See the example of [`ResidualStream`].
    ///
    /// # Errors
    /// Those of `run` and of the forward pass.
    pub fn through<M: Layer<B>>(self, block: &M, run: impl FnOnce(Self) -> Result<Self>) -> Result<Self> {
        if recompute::selects(&[block.module_id()]) {
            return Ok(ResidualStream::new(&block.forward(&self.sum()?)?));
        }
        let x = self.x.clone();
        let mut behind = None;
        trace::scope(block, &x, || {
            let stream = run(self)?;
            let last = stream.branch.as_ref().map_or(&stream.x, |(y, _)| y).clone();
            behind = Some(stream);
            Ok(last)
        })?;
        Ok(behind.unwrap_or_else(|| ResidualStream::new(&x)))
    }
}
