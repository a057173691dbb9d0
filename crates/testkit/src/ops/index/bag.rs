//! Rows of a table joined in bags.

use crate::ops::matmul::magnitudes;
use crate::{Array, Case, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::layers::BagMode;
use kiln_nn::ops::index::BagOptions;
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Bags {
    table: Array,
    ids: Vec<usize>,
    /// The tokens of each bag; bags of one length may be rows.
    lengths: Vec<usize>,
    rows: bool,
    mode: BagMode,
    padding: Option<usize>,
    weights: Option<Array>,
}

impl Bags {
    fn is_padding(&self, token: usize) -> bool {
        self.padding == Some(self.ids[token])
    }
}

impl Case for Bags {
    fn inputs(&self) -> Vec<Array> {
        std::iter::once(self.table.clone())
            .chain(self.weights.clone())
            .collect()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let ids: Vec<i32> = self.ids.iter().map(|&i| i as i32).collect();
        let shape = match self.rows {
            true => vec![self.lengths.len(), self.lengths.first().copied().unwrap_or(0)],
            false => vec![ids.len()],
        };
        let ids = Indices::from_slice(backend, &ids, &shape)?;
        let weights = x.get(1).map(|w| w.reshape(&shape)).transpose()?;
        let options = BagOptions {
            mode: self.mode,
            padding_idx: self.padding,
            weights: weights.as_ref(),
        };
        x[0].embedding_bag(&ids, (!self.rows).then_some(&self.lengths[..]), &options)
    }

    /// The padding's row takes no part, so the gradient for it is 0 without a word.
    fn oracle(&self, x: &[Array]) -> Array {
        let dim = self.table.shape[1];
        let mut from = 0;
        let mut data = Vec::new();
        for &length in &self.lengths {
            let tokens: Vec<usize> = (from..from + length).filter(|&t| !self.is_padding(t)).collect();
            from += length;
            for j in 0..dim {
                let weight = |t: usize| x.get(1).map_or(1.0, |w| w.data[t]);
                let each = tokens.iter().map(|&t| weight(t) * x[0].at(&[self.ids[t], j]));
                data.push(match self.mode {
                    _ if tokens.is_empty() => 0.0,
                    BagMode::Sum => each.sum(),
                    BagMode::Mean => each.sum::<f64>() / tokens.len() as f64,
                    BagMode::Max => each.fold(f64::NEG_INFINITY, f64::max),
                });
            }
        }
        Array::new(&[self.lengths.len(), dim], data)
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.mode {
            BagMode::Max => Rounding::exact(want),
            _ => Rounding::terms(self.ids.len() as f64 + 2.0, self.oracle(&magnitudes(x))),
        }
    }
}

/// Sums, means and maxima of bags by rows and by lengths, with a padding token and with weights.
pub fn bags<B: Backend>(backend: &B) {
    let mode = prop::sample::select(vec![BagMode::Sum, BagMode::Sum, BagMode::Mean, BagMode::Max]);
    let lengths = prop::collection::vec(0usize..4, 1..4);
    let flags = (mode, any::<[bool; 3]>(), 0usize..4, 1usize..3);
    let cases = (lengths, flags).prop_flat_map(|(mut lengths, (mode, [rows, padded, weighted], padding, dim))| {
        if rows {
            lengths = vec![lengths[0]; lengths.len()];
        }
        let count = 4;
        let total: usize = lengths.iter().sum();
        let weights = shapes::values(&[total], -2.0, 2.0);
        let ids = prop::collection::vec(0..count, total);
        (shapes::values(&[count, dim], -2.0, 2.0), ids, weights).prop_map(move |(table, ids, weights)| Bags {
            table,
            ids,
            lengths: lengths.clone(),
            rows,
            mode,
            padding: padded.then_some(padding),
            weights: (weighted && mode == BagMode::Sum).then_some(weights),
        })
    });
    check_with(32, backend, cases);
    let run = || -> Result<()> {
        let table = Tensor::ones(backend, &[3, 2], DType::F32)?.requires_grad();
        let ids = Indices::from_slice(backend, &[0i32, 2, 1, 2], &[2, 2])?;
        let flat = ids.reshape(&[4])?;
        let weights = Tensor::ones(backend, &[2, 2], DType::F32)?;
        let weighted = |mode, weights| BagOptions {
            mode,
            padding_idx: None,
            weights: Some(weights),
        };
        for mode in [BagMode::Mean, BagMode::Max] {
            refused!(
                table.embedding_bag(&ids, None, &weighted(mode, &weights)),
                Error::InvalidArgument {
                    argument: "weights",
                    ..
                }
            );
        }
        let options = weighted(BagMode::Sum, &weights);
        refused!(
            table.embedding_bag(&flat, Some(&[4]), &options),
            Error::ShapeMismatch { .. }
        );
        let wide = weights.to_dtype(DType::BF16)?;
        let options = weighted(BagMode::Sum, &wide);
        refused!(table.embedding_bag(&ids, None, &options), Error::DTypeMismatch { .. });
        let plain = BagOptions::default();
        refused!(table.embedding_bag(&flat, None, &plain), Error::Rank { .. });
        for lengths in [&[3][..], &[2, 3], &[usize::MAX, 2]] {
            refused!(
                table.embedding_bag(&flat, Some(lengths), &plain),
                Error::InvalidArgument {
                    argument: "lengths",
                    ..
                }
            );
        }
        let options = BagOptions {
            padding_idx: Some(3),
            ..BagOptions::default()
        };
        refused!(
            table.embedding_bag(&ids, None, &options),
            Error::InvalidArgument {
                argument: "padding_idx",
                ..
            }
        );
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
