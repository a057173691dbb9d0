//! Sums and means of the vectors of tokens.

use super::Embedding;
use crate::ops::index::{BagMode, BagOptions};
use crate::{Backend, Indices, Init, Module, Param, Result, Tensor, trace};

/// One vector for each bag of tokens (`torch.nn.EmbeddingBag`): the sum, mean or maximum of the tokens' vectors in a table
/// `[count, dim]`. A bag without tokens gives zeros.
///
/// ```
/// use kiln_nn::layers::{BagMode, EmbeddingBag};
/// use kiln_nn::{Indices, Init, Tensor};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut bags = EmbeddingBag::new(&mut Init::new(&cpu, 0), 3, 2)?.mode(BagMode::Sum);
/// bags.weight.assign(&Tensor::from_slice(&cpu, &[1f32, 2.0, 10.0, 20.0, 100.0, 200.0], &[3, 2])?)?;
/// let ids = Indices::from_slice(&cpu, &[0, 1, 2, 2], &[2, 2])?;
/// assert_eq!(bags.forward(&ids)?.to_vec::<f32>()?, [11.0, 22.0, 200.0, 400.0]);
/// // Bags of one, no and three tokens.
/// let ids = ids.reshape(&[4])?;
/// assert_eq!(bags.forward_lengths(&ids, &[1, 0, 3])?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 0.0, 210.0, 420.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct EmbeddingBag<B: Backend> {
    /// The table `[count, dim]`.
    pub weight: Param<B>,
    #[module(skip)]
    mode: BagMode,
    padding_id: Option<usize>,
}

#[compiled_once]
impl<B: Backend> EmbeddingBag<B> {
    /// A table of `count` vectors of `dim` elements, and means.
    ///
    /// See the example of [`EmbeddingBag`].
    ///
    /// # Errors
    /// A `count` or `dim` of 0, memory.
    pub fn new(init: &mut Init<B>, count: usize, dim: usize) -> Result<Self> {
        Ok(EmbeddingBag {
            weight: Embedding::new(init, count, dim)?.weight,
            mode: BagMode::Mean,
            padding_id: None,
        })
    }

    /// Sets how the vectors of a bag are joined; [`BagMode::Mean`] by default.
    ///
    /// See the example of [`EmbeddingBag`].
    pub fn mode(mut self, mode: BagMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the vector of one token to zero; it receives no gradient, and the token counts in no bag (`padding_idx` in PyTorch).
    ///
    /// ```
    /// use kiln_nn::layers::EmbeddingBag;
    /// # use kiln_nn::{Indices, Init};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let bags = EmbeddingBag::new(&mut Init::new(&cpu, 0), 3, 2)?.padding_id(0)?;
    /// let padded = bags.forward(&Indices::from_slice(&cpu, &[2, 0, 0], &[1, 3])?)?;
    /// let alone = bags.forward(&Indices::from_slice(&cpu, &[2], &[1, 1])?)?;
    /// assert_eq!(padded.to_vec::<f32>()?, alone.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An id outside of the table, memory.
    pub fn padding_id(mut self, id: usize) -> Result<Self> {
        self.weight = Embedding::of(self.weight, None).padding_id(id)?.weight;
        self.padding_id = Some(id);
        Ok(self)
    }

    fn options(&self) -> BagOptions<'static, B> {
        BagOptions {
            mode: self.mode,
            padding_idx: self.padding_id,
            weights: None,
        }
    }

    /// The bags of i32 ids `[N, L]`, a row each: `[N, dim]`.
    ///
    /// See the example of [`EmbeddingBag`].
    ///
    /// # Errors
    /// Ids of another rank, not i32 or outside of the table.
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || self.weight.embedding_bag(ids, None, &self.options()))
    }

    /// Bags of different lengths: the first `lengths[0]` of the i32 ids `[M]`, then the next `lengths[1]`, …:
    /// `[lengths.len(), dim]`. (PyTorch is given where each bag starts, its `offsets`.)
    ///
    /// See the example of [`EmbeddingBag`].
    ///
    /// # Errors
    /// Lengths that do not add up to the number of ids; those of [`EmbeddingBag::forward`].
    pub fn forward_lengths(&self, ids: &Indices<B>, lengths: &[usize]) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            self.weight.embedding_bag(ids, Some(lengths), &self.options())
        })
    }

    /// Sums in which the vector of each token is multiplied by one of `weights`, which has the shape of the ids
    /// (`per_sample_weights` in PyTorch): as [`EmbeddingBag::forward_lengths`] where there are lengths, else as
    /// [`EmbeddingBag::forward`].
    ///
    /// ```
    /// use kiln_nn::layers::{BagMode, EmbeddingBag};
    /// # use kiln_nn::{Indices, Init, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let bags = EmbeddingBag::new(&mut Init::new(&cpu, 0), 3, 2)?.mode(BagMode::Sum);
    /// let ids = Indices::from_slice(&cpu, &[2, 2, 1], &[3])?;
    /// let weights = Tensor::from_slice(&cpu, &[3f32, -3.0, 1.0], &[3])?;
    /// let y = bags.forward_weighted(&ids, Some(&[2, 1]), &weights)?;
    /// assert_eq!(y.to_vec::<f32>()?[..2], [0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A mode other than sums, weights of another shape or dtype, and as [`EmbeddingBag::forward_lengths`].
    pub fn forward_weighted(
        &self,
        ids: &Indices<B>,
        lengths: Option<&[usize]>,
        weights: &Tensor<B>,
    ) -> Result<Tensor<B>> {
        let options = BagOptions {
            weights: Some(weights),
            ..self.options()
        };
        trace::scope(self, ids, || self.weight.embedding_bag(ids, lengths, &options))
    }
}
