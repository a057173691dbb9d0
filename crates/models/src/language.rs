//! The interface of language models.

use kiln_core::{Backend, Error, Result};
use kiln_nn::{DType, Indices, KeyValueCache, Module, Tensor, no_grad, trace};

/// The memory that a language model has of the tokens it has read: keys and values of every layer (the `past_key_values` of
/// Hugging Face's transformers).
#[derive(Clone, Debug)]
pub struct TextCache<B: Backend> {
    layers: Vec<KeyValueCache<B>>,
}

impl<B: Backend> TextCache<B> {
    /// The cache of a net of so many layers that has read nothing.
    pub fn new(layers: usize) -> Self {
        TextCache {
            layers: vec![KeyValueCache::new(); layers],
        }
    }

    /// The number of tokens of each sequence that were read.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, KeyValueCache::len)
    }

    /// True if nothing was read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens but the first `len`: [`KeyValueCache::truncate`].
    pub fn truncate(&mut self, len: usize) {
        self.layers.iter_mut().for_each(|layer| layer.truncate(len));
    }

    /// Runs `next`, which reads tokens; if it fails, forgets those that layers have read.
    pub(crate) fn read<T>(&mut self, next: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.len();
        let read = next(self);
        if read.is_err() {
            self.truncate(before);
        }
        read
    }

    /// The caches of the layers, in their order.
    ///
    /// # Errors
    /// Another number of layers.
    pub(crate) fn layers(&mut self, op: &'static str, count: usize) -> Result<&mut [KeyValueCache<B>]> {
        if self.layers.len() != count {
            let found = format!("of {} layers", self.layers.len());
            return Err(Error::invalid(op, "cache", found, format!("one of {count}")));
        }
        Ok(&mut self.layers)
    }
}

/// The place of ids `[N, T]` behind `past` tokens of a context: their first position and their number.
///
/// # Errors
/// Ids of another rank; more tokens than the context has.
pub(crate) fn positions<B: Backend>(
    op: &'static str,
    ids: &Indices<B>,
    past: usize,
    context: usize,
) -> Result<(usize, usize)> {
    match *ids.shape().dims() {
        [_, length] if past + length <= context => Ok((past, length)),
        _ => {
            let expected = match past {
                0 => format!("ids [N, T] with T at most {context}"),
                past => format!(
                    "ids [N, T] with T at most {}, behind {past} of {context}",
                    context - past
                ),
            };
            Err(Error::invalid(op, "ids", ids.shape(), expected))
        }
    }
}

/// A network from token ids to the logits of the next token at every position.
pub trait LanguageModel<B: Backend>: Module<B> {
    /// Ids `[N, T]` to logits `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32 or not `[N, T]`; more tokens than the [context](LanguageModel::context).
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>>;

    /// The logits `[N, vocabulary]` of the tokens behind ids `[N, T]`, which come after those that `cache` has read; it has then read
    /// these too. The model must be in evaluation mode.
    ///
    /// # Errors
    /// No ids; ids that are not i32 or not `[N, T]`; more tokens, with those of the cache, than the
    /// [context](LanguageModel::context); a cache of another model. The cache is then as it was.
    fn next(&self, ids: &Indices<B>, cache: &mut TextCache<B>) -> Result<Tensor<B>>;

    /// A cache of this model that has read nothing.
    fn cache(&self) -> TextCache<B>;

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
            let logits = self.next(&ids, &mut self.cache())?;
            logits.to_dtype(DType::F32)?.to_vec::<f32>()
        })
    }
}

/// The vectors of the last position: `[N, T, width]` to `[N, 1, width]`.
///
/// # Errors
/// No positions.
pub(crate) fn last<B: Backend>(op: &'static str, x: &Tensor<B>) -> Result<Tensor<B>> {
    match x.shape()[1] {
        0 => Err(Error::invalid(op, "ids", x.shape(), "at least one token")),
        length => x.narrow(1, length - 1, 1),
    }
}
