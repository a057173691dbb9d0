//! The result of the training closure for a batch.

use kiln_core::Backend;
use kiln_nn::Tensor;

/// The loss to minimise and, for metrics, the scores that it was computed from.
#[derive(Debug, Clone)]
pub struct Output<B: Backend> {
    /// The mean loss of the batch, a tensor of one element.
    pub loss: Tensor<B>,
    /// The score of each class, `[N, classes]`; without it the metrics are NaN.
    pub scores: Option<Tensor<B>>,
}

impl<B: Backend> Output<B> {
    /// Creates an output without scores.
    pub fn new(loss: Tensor<B>) -> Self {
        Output { loss, scores: None }
    }

    /// Adds the scores (logits or probabilities) that metrics are computed from.
    pub fn with_scores(mut self, scores: Tensor<B>) -> Self {
        self.scores = Some(scores);
        self
    }
}

impl<B: Backend> From<Tensor<B>> for Output<B> {
    fn from(loss: Tensor<B>) -> Self {
        Output::new(loss)
    }
}
