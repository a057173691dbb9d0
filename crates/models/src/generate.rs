//! Texts that a language model writes.

use crate::language::TextCache;
use crate::{LanguageModel, Sampler};
use kiln_core::{Backend, Error, Result};
use kiln_nn::{DType, Indices, no_grad};

/// The tokens with which a language model goes on with a text, one after the other and without end. The model must be in evaluation
/// mode.
///
/// A token costs one position of the model, because keys and values of those before are kept. When the text has filled the model's
/// context, the model reads its last half context again and goes on from there.
///
/// ```
/// use kiln_models::{Gpt, GptConfig, Generator, Sampler};
/// use kiln_nn::{Init, Module};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = GptConfig { vocabulary: 11, context: 8, layers: 2, heads: 2, width: 8 };
/// let mut gpt = Gpt::new(Init::new(&cpu, 0), config)?;
/// gpt.eval();
/// let sampler = Sampler::new(0).top_p(0.9)?;
/// let tokens = Generator::new(&gpt, sampler, &[1, 2, 3])?.take(20).collect::<kiln_nn::Result<Vec<i32>>>()?;
/// assert_eq!(tokens.len(), 20);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Generator<'a, B: Backend> {
    model: &'a dyn LanguageModel<B>,
    sampler: Sampler,
    cache: TextCache<B>,
    /// The whole text.
    text: Vec<i32>,
    /// The tokens at its end that the model has not read.
    unread: usize,
    /// The number of tokens that are drawn from.
    vocabulary: usize,
}

impl<'a, B: Backend> Generator<'a, B> {
    /// Goes on with the tokens of `prompt`, of which the model reads those at the end that fit its context.
    ///
    /// # Errors
    /// No tokens.
    pub fn new(model: &'a dyn LanguageModel<B>, sampler: Sampler, prompt: &[i32]) -> Result<Self> {
        if prompt.is_empty() {
            return Err(Error::invalid("generator", "prompt", "none", "at least one token"));
        }
        Ok(Generator {
            model,
            sampler,
            cache: model.cache(),
            text: prompt.to_vec(),
            unread: prompt.len().min(model.context()),
            vocabulary: usize::MAX,
        })
    }

    /// Draws only tokens below `tokens`: a model may have more than the text that it was trained on.
    pub fn vocabulary(mut self, tokens: usize) -> Self {
        self.vocabulary = tokens;
        self
    }

    /// The logits of the next token.
    fn logits(&mut self) -> Result<Vec<f32>> {
        let context = self.model.context();
        if self.cache.len() + self.unread > context {
            self.cache = self.model.cache();
            self.unread = (context / 2).max(1);
        }
        let unread = &self.text[self.text.len() - self.unread..];
        no_grad(|| {
            let ids = Indices::from_slice(self.model.backend(), unread, &[1, unread.len()])?;
            let logits = self.model.next(&ids, &mut self.cache)?;
            logits.to_dtype(DType::F32)?.to_vec::<f32>()
        })
    }
}

impl<B: Backend> std::fmt::Debug for Generator<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator")
            .field("sampler", &self.sampler)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Iterator for Generator<'_, B> {
    type Item = Result<i32>;

    fn next(&mut self) -> Option<Result<i32>> {
        let mut next = || {
            let mut logits = self.logits()?;
            self.unread = 0;
            logits.truncate(self.vocabulary);
            let token = self.sampler.draw(&logits, &self.text)? as i32;
            self.text.push(token);
            self.unread = 1;
            Ok(token)
        };
        Some(next())
    }
}
