//! Low-rank additions to a layer's weight.

use super::Dropout;
use crate::init::Initializer;
use crate::{Backend, Init, Layer, Module, Param, Result, Tensor, Walk, WalkMut, no_grad};
use kiln_core::ops::Activation;

/// A matrix of a [`Lora`].
#[derive(Clone, Debug, Module)]
pub struct LoraMatrix<B: Backend> {
    /// The matrix.
    pub weight: Param<B>,
}

/// A low-rank addition to the weight `[out, in]` of a layer, which itself is frozen: `scaling·B·A` of two thin matrices, of which B starts at 0
/// (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021; the `LoraLayer` of Hugging Face's peft). Models get them
/// from [`LoraOptions`](crate::lora::LoraOptions).
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::{Linear, Lora}};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut layer = Linear::new(init, 8, 4)?;
/// let x = Tensor::ones(&cpu, &[1, 8], DType::F32)?;
/// let before = layer.forward(&x)?.to_vec::<f32>()?;
/// layer.lora = Some(Box::new(Lora::new(init, [4, 8], 2, 4.0, 0.0)?));
/// assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, before);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lora<B: Backend> {
    /// A, `[r, in]`.
    pub a: LoraMatrix<B>,
    /// B, `[out, r]`.
    pub b: LoraMatrix<B>,
    /// The dropout of what A is given; none where its probability is 0.
    pub dropout: Option<Dropout<B>>,
    /// The factor `alpha / r`.
    pub scaling: f64,
    /// True while the weight has the addition in it.
    pub merged: bool,
}

impl<B: Backend> Lora<B> {
    /// An addition of rank `r` to a weight `[out, in]`, which is 0: A is drawn as the weight of a linear layer, B is 0, as in peft.
    ///
    /// See the example of [`Lora`].
    ///
    /// # Errors
    /// A probability outside `0..=1`, memory.
    pub fn new(init: &mut Init<B>, [out, inputs]: [usize; 2], r: usize, scaling: f64, dropout: f64) -> Result<Self> {
        let a = Param::new(init.tensor(&[r, inputs], &Initializer::TORCH)?);
        Ok(Lora {
            a: LoraMatrix { weight: a },
            b: LoraMatrix {
                weight: init.constant(&[out, r], 0.0)?,
            },
            dropout: (dropout != 0.0).then(|| Dropout::new(init, dropout)).transpose()?,
            scaling,
            merged: false,
        })
    }

    /// Shows its entries as those of the layer that has it.
    pub(super) fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.field("lora_A", &self.a);
        walk.field("lora_B", &self.b);
        walk.field("lora_dropout", &self.dropout);
    }

    pub(super) fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        walk.field("lora_A", &mut self.a);
        walk.field("lora_B", &mut self.b);
        walk.field("lora_dropout", &mut self.dropout);
    }

    /// The addition to the layer's result for `x` `[…, in]`: `scaling·B·A·dropout(x)`, `[…, out]`.
    pub(super) fn added(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.added_to(x, 0, self.b.weight.shape()[0])
    }

    /// The addition to the results `first..first + count` of the layer.
    pub(super) fn added_to(&self, x: &Tensor<B>, first: usize, count: usize) -> Result<Tensor<B>> {
        let x = match &self.dropout {
            Some(dropout) => dropout.forward(x)?,
            None => x.clone(),
        };
        let low = x.linear(&self.a.weight, None, Activation::None)?;
        let b = self.b.weight.narrow(0, first, count)?;
        low.mul_scalar(self.scaling)?.linear(&b, None, Activation::None)
    }

    /// Adds `scaling·B·A` to the weight, or takes it away.
    pub(crate) fn merge_into(&mut self, weight: &mut Param<B>, merged: bool) -> Result<()> {
        if self.merged == merged {
            return Ok(());
        }
        let factor = if merged { self.scaling } else { -self.scaling };
        let sum = no_grad(|| {
            let added = self.b.weight.matmul(&self.a.weight)?.mul_scalar(factor)?;
            weight.detach().add(&added.to_dtype(weight.dtype())?)
        })?;
        weight.assign(&sum)?;
        self.merged = merged;
        Ok(())
    }
}
