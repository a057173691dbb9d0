//! Perplexity of a language model.

use super::Metric;
use super::wide::wide;
use crate::Output;
use kiln_core::{Backend, DType, Result};
use kiln_nn::{CrossEntropyOptions, Reduction, Tensor};

/// The perplexity of tokens with these losses, `exp(mean)`; NaN without tokens. The losses are negative natural logarithms of
/// the probabilities that a model gave to the tokens.
///
/// ```
/// // Each token was one of eight.
/// assert!((kiln_train::perplexity(&[8f64.ln(); 5]) - 8.0).abs() < 1e-12);
/// ```
pub fn perplexity(losses: &[f64]) -> f64 {
    (losses.iter().sum::<f64>() / losses.len() as f64).exp()
}

/// The perplexity of a language model: e to the mean cross-entropy of all tokens of all batches, however many tokens each batch
/// has.
///
/// It reads `scores` `[…, classes]`, the logits of each token, and `labels` `[…]`, the true tokens, of which those that equal
/// the ignore index do not count. Losses are summed on the device, in f64 where the backend has it, else in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Perplexity {
    ignored: i32,
}

impl Default for Perplexity {
    fn default() -> Self {
        Perplexity { ignored: -100 }
    }
}

impl Perplexity {
    /// Creates the metric, named `perplexity`, that leaves out tokens labelled −100.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out tokens with this label instead.
    pub fn ignore_index(mut self, label: i32) -> Self {
        self.ignored = label;
        self
    }
}

impl<B: Backend> Metric<B> for Perplexity {
    fn name(&self) -> String {
        "perplexity".to_string()
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let (scores, labels) = (output.floats("scores")?, output.integers("labels")?);
        let options = CrossEntropyOptions {
            ignore_index: self.ignored.into(),
            reduction: Reduction::None,
            ..Default::default()
        };
        let scores = match scores.dtype() {
            DType::F16 | DType::BF16 => scores.to_dtype(DType::F32)?,
            _ => scores.clone(),
        };
        let losses = wide(&scores.cross_entropy_with(labels, &options)?)?;
        let tokens = labels.ne(self.ignored)?.to_float(losses.dtype())?;
        let sum = |x: Tensor<B>| x.sum(&[], false)?.reshape(&[1usize]);
        Tensor::concat(&[&sum(losses)?, &sum(tokens)?], 0)
    }

    fn value(&mut self, sum: &[f64], _: u64) -> f64 {
        match sum {
            [loss, tokens] => (loss / tokens).exp(),
            _ => f64::NAN,
        }
    }
}
