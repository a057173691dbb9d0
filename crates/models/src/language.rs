//! The interface of language models.

use kiln_core::{Backend, Error, Result};
use kiln_nn::{Indices, Module, Tensor, no_grad, trace};

/// A network from token ids to the logits of the next token at every position.
pub trait LanguageModel<B: Backend>: Module<B> {
    /// Ids `[N, T]` to logits `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32 or not `[N, T]`; more tokens than the [context](LanguageModel::context).
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>>;

    /// The mean cross-entropy of the logits of ids `[N, T]` with the tokens that follow each of them, `next [N, T]`.
    ///
    /// # Errors
    /// As [`forward`](LanguageModel::forward); tokens that are not in the vocabulary.
    fn loss(&self, ids: &Indices<B>, next: &Indices<B>) -> Result<Tensor<B>> {
        let logits = self.forward(ids)?;
        trace::part(self.backend(), "loss", || logits.cross_entropy(next))
    }

    /// The largest number of tokens of a sequence.
    fn context(&self) -> usize;

    /// The backend of its parameters.
    fn backend(&self) -> &B;

    /// The logits `[vocabulary]` of the token after `tokens`, from the last of them that fit the context. The model must be in
    /// evaluation mode.
    ///
    /// # Errors
    /// No tokens, or one that is not in the vocabulary.
    fn next_logits(&self, tokens: &[i32]) -> Result<Vec<f32>> {
        let seen = &tokens[tokens.len().saturating_sub(self.context())..];
        if seen.is_empty() {
            return Err(Error::invalid(self.kind(), "tokens", "none", "at least one"));
        }
        no_grad(|| {
            let ids = Indices::from_slice(self.backend(), seen, &[1, seen.len()])?;
            self.forward(&ids)?.narrow(1, seen.len() - 1, 1)?.to_vec::<f32>()
        })
    }
}
