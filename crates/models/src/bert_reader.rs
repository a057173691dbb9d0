//! A BERT that answers questions about a text by a span of it.

use crate::bert::{BertConfig, BertModel, initial};
use kiln_core::{Backend, Error, Result};
use kiln_nn::layers::Linear;
use kiln_nn::{CrossEntropyOptions, Indices, Init, Layer, Module, Tensor, trace};
use std::ops::Range;

/// BERT with a head for spans: a dense layer to the logits of the first and of the last token of an answer. The sequences are
/// `[CLS] question [SEP] text [SEP]`, of which the tokens of the text are of the second kind.
///
/// Parameters have the names of `BertForQuestionAnswering` of Hugging Face's transformers.
#[derive(Clone, Debug, Module)]
pub struct BertReader<B: Backend> {
    bert: BertModel<B>,
    qa_outputs: Linear<B>,
}

impl<B: Backend> BertReader<B> {
    /// The net with BERT's initial weights of `init`'s seed.
    ///
    /// # Errors
    /// As [`Bert::new`](crate::Bert::new).
    pub fn new(init: Init<B>, config: BertConfig) -> Result<Self> {
        let init = &mut init.scheme(initial());
        Ok(BertReader {
            bert: BertModel::unpooled(init, config)?,
            qa_outputs: Linear::new(init, config.width, 2)?,
        })
    }

    /// The logits `[N, T, 2]` of the first and of the last token of the answer: ids and kinds of tokens `[N, T]`, and a u8 mask `[N, T]` that
    /// is 0 behind the end of each sequence.
    ///
    /// # Errors
    /// As [`BertModel::forward_masked`].
    pub fn forward(&self, ids: &Indices<B>, types: &Indices<B>, mask: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, ids, || {
            let x = self.bert.forward_masked(ids, Some(types), Some(mask))?;
            self.qa_outputs.forward(&x)
        })
    }

    /// The loss of logits `[N, T, 2]`: the mean of the cross-entropies of the first tokens `[N]` and of the last tokens `[N]` over all
    /// positions. A position of `T`, behind the end, is left out, such as one of an answer that was cut off.
    ///
    /// # Errors
    /// Positions that are not i32, not `[N]`, or outside of `0..=T`.
    pub fn loss(logits: &Tensor<B>, first: &Indices<B>, last: &Indices<B>) -> Result<Tensor<B>> {
        let &[_, length, 2] = logits.shape().dims() else {
            return Err(Error::invalid("bert", "logits", logits.shape(), "logits [N, T, 2]"));
        };
        let options = CrossEntropyOptions {
            ignore_index: length as i64,
            ..Default::default()
        };
        let of = |at: usize, positions: &Indices<B>| {
            let logits = logits.narrow(2, at, 1)?.squeeze(2)?;
            logits.cross_entropy_with(positions, &options)
        };
        of(0, first)?.add(&of(1, last)?)?.mul_scalar(0.5)
    }
}

/// The tokens of the best answer, and its score: the largest sum of the logit of its first and that of its last token, of all spans in `text`
/// of one to `longest` tokens. `None` if the text has no tokens.
///
/// ```
/// let (first, last) = ([0.0, 1.0, 5.0, 0.0], [0.0, 7.0, 1.0, 4.0]);
/// let (tokens, score) = kiln_models::best_span(&first, &last, 1..4, 2).expect("a span");
/// assert_eq!((tokens, score), (2..4, 9.0));
/// ```
pub fn best_span(first: &[f32], last: &[f32], text: Range<usize>, longest: usize) -> Option<(Range<usize>, f32)> {
    let end = text.end.min(first.len()).min(last.len());
    let mut best: Option<(Range<usize>, f32)> = None;
    for (from, &first) in first.iter().enumerate().take(end).skip(text.start) {
        let until = end.min(from.saturating_add(longest));
        for (to, &last) in last.iter().enumerate().take(until).skip(from) {
            let score = first + last;
            if best.as_ref().is_none_or(|(_, highest)| score > *highest) {
                best = Some((from..to + 1, score));
            }
        }
    }
    best
}
