//! Rows of a table, joined in bags.

use crate::ops::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Indices, Result, Tensor};
use kiln_core::host;
use std::fmt;

const OP: &str = "embedding_bag";

/// How [`Tensor::embedding_bag`] joins the vectors of a bag.
///
/// See the example of [`BagOptions`].
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

/// The options of [`Tensor::embedding_bag`]; the defaults are PyTorch's.
///
/// ```
/// use kiln_nn::layers::BagMode;
/// use kiln_nn::{Indices, Tensor, ops::index::BagOptions};
/// # let cpu = kiln_cpu::Cpu::new();
/// let table = Tensor::from_slice(&cpu, &[1f32, 10.0, 100.0], &[3, 1])?;
/// let ids = Indices::from_slice(&cpu, &[0, 1, 2, 2], &[2, 2])?;
/// let weights = Tensor::from_slice(&cpu, &[2f32, 3.0, 0.5, 4.0], &[2, 2])?;
/// let options = BagOptions { mode: BagMode::Sum, padding_idx: Some(1), weights: Some(&weights) };
/// // 2·1, and 0.5·100 + 4·100
/// assert_eq!(table.embedding_bag(&ids, None, &options)?.to_vec::<f32>()?, [2.0, 450.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct BagOptions<'a, B: Backend> {
    /// How the vectors are joined.
    pub mode: BagMode,
    /// Tokens of this id count in no bag, and their vector receives no gradient.
    pub padding_idx: Option<usize>,
    /// The factor of each token's vector, in sums alone: the shape of the ids, the table's dtype
    /// (`per_sample_weights`).
    pub weights: Option<&'a Tensor<B>>,
}

impl<B: Backend> Default for BagOptions<'_, B> {
    fn default() -> Self {
        BagOptions {
            mode: BagMode::Mean,
            padding_idx: None,
            weights: None,
        }
    }
}

impl<B: Backend> fmt::Debug for BagOptions<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BagOptions")
            .field("mode", &self.mode)
            .field("padding_idx", &self.padding_idx)
            .field("weights", &self.weights.map(|w| w.shape()))
            .finish()
    }
}

/// The rows of the tokens, and a mask of the tokens that count, if some do not.
struct Tokens<B: Backend> {
    rows: Tensor<B>,
    counted: Option<Indices<B>>,
}

impl<B: Backend> Tokens<B> {
    fn new(table: &Tensor<B>, ids: &Indices<B>, options: &BagOptions<'_, B>) -> Result<Self> {
        let mut rows = table.embedding(ids, options.padding_idx)?;
        let counted = match options.padding_idx {
            Some(padding) => Some(ids.ne(padding as i32)?),
            None => None,
        };
        if let Some(weights) = options.weights {
            if options.mode != BagMode::Sum {
                return Err(Error::invalid(OP, "weights", "given", "none but for sums"));
            }
            if weights.shape() != ids.shape() {
                let (lhs, rhs) = (*ids.shape(), *weights.shape());
                return Err(Error::ShapeMismatch { op: OP, lhs, rhs });
            }
            same_dtype(OP, table, weights)?;
            let wide = acc_dtype(rows.dtype());
            rows = rows.to_dtype(wide)?.mul(&weights.to_dtype(wide)?.unsqueeze(-1)?)?;
        }
        Ok(Tokens { rows, counted })
    }

    /// The rows with `value` in those that do not count.
    fn filled(&self, value: f64) -> Result<Tensor<B>> {
        match &self.counted {
            Some(counted) => self.rows.masked_fill(&counted.logical_not()?.unsqueeze(-1)?, value),
            None => Ok(self.rows.clone()),
        }
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// One vector for each bag of tokens: the joined rows of this table `[count, dim]` (`torch.nn.functional.embedding_bag`). The i32
    /// `ids` are `[N, L]`, a bag in each row; or `[M]` with the bags' lengths, of which there are `N` (PyTorch is given where each bag
    /// starts, its `offsets`). The result is `[N, dim]`; a bag in which no token counts gives zeros.
    ///
    /// See the example of [`BagOptions`].
    ///
    /// # Errors
    /// Ids of another rank, not i32 or outside of the table; lengths that do not add up to the number of ids; weights of another shape or
    /// dtype, or of a mean or a maximum; a `padding_idx` outside of the table.
    pub fn embedding_bag(
        &self,
        ids: &Indices<B>,
        lengths: Option<&[usize]>,
        options: &BagOptions<'_, B>,
    ) -> Result<Tensor<B>> {
        if let Some(lengths) = lengths {
            return self.bags_of_lengths(ids, lengths, options);
        }
        let &[_, length] = ids.shape().dims() else {
            return Err(Error::Rank {
                op: OP,
                expected: "2",
                rank: ids.shape().rank(),
            });
        };
        let tokens = Tokens::new(self, ids, options)?;
        if length == 0 {
            return tokens.rows.sum(&[1], false)?.to_dtype(self.dtype());
        }
        let (dtype, wide) = (self.dtype(), acc_dtype(self.dtype()));
        match (options.mode, &tokens.counted) {
            (BagMode::Sum, _) => tokens.filled(0.0)?.sum(&[1], false)?.to_dtype(dtype),
            (BagMode::Mean, None) => tokens.rows.mean(&[1], false),
            (BagMode::Mean, Some(counted)) => {
                let count = counted.to_float(wide)?.sum(&[1], true)?.clamp_min(1.0)?;
                let sum = tokens.filled(0.0)?.to_dtype(wide)?.sum(&[1], false)?;
                sum.div(&count)?.to_dtype(dtype)
            }
            (BagMode::Max, counted) => {
                let largest = tokens.filled(f64::NEG_INFINITY)?.top_k(1, 1, true)?.0.squeeze(1)?;
                match counted {
                    Some(counted) => largest.masked_fill(&counted.any(&[1], true)?.logical_not()?, 0.0),
                    None => Ok(largest),
                }
            }
        }
    }

    fn bags_of_lengths(&self, ids: &Indices<B>, lengths: &[usize], options: &BagOptions<'_, B>) -> Result<Tensor<B>> {
        let total = lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if ids.shape().rank() != 1 || total != Some(ids.size()) || i32::try_from(lengths.len()).is_err() {
            let expected = format!("as many as the ids, which are {}, of one dimension", ids.shape());
            let found = format!("{} lengths, {} ids in all", lengths.len(), total.unwrap_or(usize::MAX));
            return Err(Error::invalid(OP, "lengths", found, expected));
        }
        let tokens = Tokens::new(self, ids, options)?;
        let (backend, dtype, dim) = (self.backend(), self.dtype(), self.shape()[1]);
        let zeros = Tensor::zeros(backend, &[lengths.len(), dim], dtype)?;
        // Without a token the sum stands for all: zeros, of which the table is a part.
        if options.mode == BagMode::Max && ids.size() > 0 {
            let rows = tokens.filled(f64::NEG_INFINITY)?;
            let mut from = 0;
            let mut bags = Vec::new();
            for &length in lengths {
                let mut bag = match length {
                    0 => zeros.narrow(0, 0, 1)?,
                    _ => rows.narrow(0, from, length)?.top_k(1, 0, true)?.0,
                };
                if let (Some(counted), true) = (&tokens.counted, length > 0) {
                    let none = counted.narrow(0, from, length)?.any(&[0], true)?.logical_not()?;
                    bag = bag.masked_fill(&none.unsqueeze(-1)?, 0.0)?;
                }
                bags.push(bag);
                from += length;
            }
            return Tensor::concat(&bags.iter().collect::<Vec<_>>(), 0);
        }
        let mut bag_of = host::room(ids.size())?;
        for (bag, &length) in lengths.iter().enumerate() {
            bag_of.extend(std::iter::repeat_n(bag as i32, length));
        }
        let bag_of = Indices::from_slice(backend, &bag_of, &[bag_of.len()])?;
        // Halves are added up in f32 and rounded once.
        let wide = acc_dtype(dtype);
        let joined = zeros.to_dtype(wide)?;
        let mut joined = joined.index_add(0, &bag_of, &tokens.filled(0.0)?.to_dtype(wide)?)?;
        if options.mode == BagMode::Mean {
            let counts = match &tokens.counted {
                Some(counted) => {
                    let none = Tensor::zeros(backend, &[lengths.len()], wide)?;
                    none.index_add(0, &bag_of, &counted.to_float(wide)?)?.clamp_min(1.0)?
                }
                None => {
                    let counts = host::collect(lengths.iter().map(|&n| n.max(1) as f64))?;
                    Tensor::from_f64(backend, &counts, &[counts.len()], wide)?
                }
            };
            joined = joined.div(&counts.unsqueeze(-1)?)?;
        }
        joined.to_dtype(dtype)
    }
}
