//! The embedding layer: a vector for each token.

use crate::{Backend, Error, Indices, Init, Module, Param, Result, Tensor, trace};
use kiln_core::host;

/// A vector for each of `count` tokens (`torch.nn.Embedding`): i32 ids `[…]` to `[…, dim]`. `weight` is `[count, dim]`.
///
/// ```
/// use kiln_nn::{Indices, Init, Layer, layers::Embedding};
/// # let cpu = kiln_cpu::Cpu::new();
/// let embedding = Embedding::new(&mut Init::new(&cpu, 0), 1000, 64)?;
/// let ids = Indices::from_slice(&cpu, &[3i32, 14, 15, 9, 2, 6], &[2, 3])?;
/// assert_eq!(embedding.forward(&ids)?.shape().dims(), [2, 3, 64]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Embedding<B: Backend> {
    /// The table `[count, dim]`.
    pub weight: Param<B>,
    padding_id: Option<usize>,
}

#[compiled_once]
impl<B: Backend> Embedding<B> {
    /// A table of `count` vectors of `dim` elements.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Embedding};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let embedding = Embedding::new(init, 1000, 64)?;
    /// assert_eq!(embedding.weight.shape().dims(), [1000, 64]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A `count` or `dim` of 0, memory.
    pub fn new(init: &mut Init<B>, count: usize, dim: usize) -> Result<Self> {
        for (name, value) in [("count", count), ("dim", dim)] {
            if value == 0 {
                return Err(Error::invalid("embedding", name, 0, "at least 1"));
            }
        }
        Ok(Embedding {
            weight: init.table(count, dim)?,
            padding_id: None,
        })
    }

    /// The layer of a table.
    pub(super) fn of(weight: Param<B>, padding_id: Option<usize>) -> Self {
        Embedding { weight, padding_id }
    }

    /// Sets the vector of one token to zero; it receives no gradient and stays zero (`padding_idx` in PyTorch).
    ///
    /// ```
    /// # use kiln_nn::{Indices, Init, Layer, layers::Embedding};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let embedding = Embedding::new(init, 10, 2)?.padding_id(0)?;
    /// let ids = Indices::from_slice(&cpu, &[0i32], &[1])?;
    /// assert_eq!(embedding.forward(&ids)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An id outside of the table, memory.
    pub fn padding_id(mut self, id: usize) -> Result<Self> {
        let (count, backend) = (self.weight.shape()[0], self.weight.backend().clone());
        if id >= count {
            return Err(Error::invalid(
                "embedding",
                "padding_id",
                id,
                format!("an id below {count}"),
            ));
        }
        let padding = host::collect((0..count).map(|row| u8::from(row == id)))?;
        let padding = Indices::from_slice(&backend, &padding, &[count, 1])?;
        let values = self.weight.detach().masked_fill(&padding, 0.0)?;
        self.weight.assign(&values)?;
        self.padding_id = Some(id);
        Ok(self)
    }

    /// The vectors of the i32 `ids` `[…]`: `[…, dim]`.
    ///
    /// See the example of [`Embedding`].
    ///
    /// # Errors
    /// Ids that are not i32 or outside of the table.
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || self.weight.embedding(ids, self.padding_id))
    }
}
