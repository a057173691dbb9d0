//! The result of the user's closure for a batch.

use kiln_core::Backend;
use kiln_nn::Tensor;

/// The loss to descend and, for metrics, the scores it came from.
#[derive(Debug, Clone)]
pub struct Output<B: Backend> {
    /// The mean loss of the batch: one element.
    pub loss: Tensor<B>,
    /// A score per class, `[N, classes]`; metrics that need scores are NaN without them.
    pub scores: Option<Tensor<B>>,
}

impl<B: Backend> Output<B> {
    /// A loss alone.
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
