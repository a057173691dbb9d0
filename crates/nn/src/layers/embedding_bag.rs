//! Sums and means of the vectors of tokens.

use super::Embedding;
use crate::ops::acc_dtype;
use crate::{Backend, Error, Indices, Init, Module, Param, Result, Tensor, trace};
use kiln_core::host;

/// How an [`EmbeddingBag`] joins the vectors of a bag.
///
/// See the example of [`EmbeddingBag`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean, PyTorch's default.
    #[default]
    Mean,
    /// The largest of each element.
    Max,
}

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
        })
    }

    /// Sets how the vectors of a bag are joined; [`BagMode::Mean`] by default.
    ///
    /// See the example of [`EmbeddingBag`].
    pub fn mode(mut self, mode: BagMode) -> Self {
        self.mode = mode;
        self
    }

    /// The bags of i32 ids `[N, L]`, a row each: `[N, dim]`.
    ///
    /// See the example of [`EmbeddingBag`].
    ///
    /// # Errors
    /// Ids of another rank, not i32 or outside of the table.
    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        let &[bags, length] = ids.shape().dims() else {
            return Err(Error::Rank {
                op: "embedding_bag",
                expected: "2",
                rank: ids.shape().rank(),
            });
        };
        trace::scope(self, ids, || {
            let rows = self.weight.embedding(ids, None)?;
            match self.mode {
                _ if length == 0 => Tensor::zeros(rows.backend(), &[bags, self.weight.shape()[1]], rows.dtype()),
                BagMode::Sum => rows.sum(&[1], false),
                BagMode::Mean => rows.mean(&[1], false),
                BagMode::Max => rows.top_k(1, 1, true)?.0.squeeze(1),
            }
        })
    }

    /// Bags of different lengths: the first `lengths[0]` of the i32 ids `[M]`, then the next `lengths[1]`, …:
    /// `[lengths.len(), dim]`. (PyTorch is given where each bag starts, its `offsets`.)
    ///
    /// See the example of [`EmbeddingBag`].
    ///
    /// # Errors
    /// Lengths that do not add up to the number of ids; those of [`EmbeddingBag::forward`].
    pub fn forward_lengths(&self, ids: &Indices<B>, lengths: &[usize]) -> Result<Tensor<B>> {
        const OP: &str = "embedding_bag";
        let total = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if ids.shape().rank() != 1 || total != Some(ids.size()) || i32::try_from(lengths.len()).is_err() {
            let expected = format!("as many as the ids, which are {}, of one dimension", ids.shape());
            let found = format!("{} lengths, {} ids in all", lengths.len(), total.unwrap_or(usize::MAX));
            return Err(Error::invalid(OP, "lengths", found, expected));
        }
        trace::scope(self, ids, || {
            let rows = self.weight.embedding(ids, None)?;
            let (backend, dim) = (rows.backend(), self.weight.shape()[1]);
            let zeros = Tensor::zeros(backend, &[lengths.len(), dim], rows.dtype())?;
            if self.mode == BagMode::Max {
                let mut from = 0;
                let mut bags = Vec::new();
                for &length in lengths {
                    bags.push(match length {
                        0 => zeros.narrow(0, 0, 1)?,
                        _ => rows.narrow(0, from, length)?.top_k(1, 0, true)?.0,
                    });
                    from += length;
                }
                return match bags.is_empty() {
                    true => Ok(zeros),
                    false => Tensor::concat(&bags.iter().collect::<Vec<_>>(), 0),
                };
            }
            let mut bag_of = host::room(ids.size())?;
            for (bag, &length) in lengths.iter().enumerate() {
                bag_of.extend(std::iter::repeat_n(bag as i32, length));
            }
            let bag_of = Indices::from_slice(backend, &bag_of, &[bag_of.len()])?;
            // Halves are added up in f32 and rounded once.
            let wide = acc_dtype(rows.dtype());
            let mut joined = zeros.to_dtype(wide)?.index_add(0, &bag_of, &rows.to_dtype(wide)?)?;
            if self.mode == BagMode::Mean {
                let counts = host::collect(lengths.iter().map(|&n| n.max(1) as f64))?;
                joined = joined.div(&Tensor::from_f64(backend, &counts, &[counts.len(), 1], wide)?)?;
            }
            joined.to_dtype(rows.dtype())
        })
    }
}
