//! An encoder-decoder over tokens, with greedy and beam decoding.

use crate::tied::TiedHead;
use kiln_core::{Backend, Error, Result};
use kiln_nn::init::Initializer;
use kiln_nn::layers::{
    DecoderCache, Dropout, Embedding, Linear, Transformer, TransformerEncoderLayer, TransformerMasks,
};
use kiln_nn::{AttentionOptions, DType, Indices, Init, Layer, Module, Tensor, no_grad, trace};

/// Tokens that are none of a text's: the last two of the vocabulary, of the beginning and of the end of what is written.
pub(crate) const ENDS: usize = 2;

/// The sizes of a [`Seq2Seq`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seq2SeqConfig {
    /// Number of tokens, of sources and targets.
    pub vocabulary: usize,
    /// Number of blocks of the encoder, and of the decoder.
    pub layers: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Elements of the vector of a position; even, and a multiple of the heads.
    pub width: usize,
    /// Hidden elements of a perceptron.
    pub feedforward: usize,
    /// The probability of all dropouts.
    pub dropout: f64,
    /// True if the logits are made by the table of the embedding.
    pub tied: bool,
}

impl Seq2SeqConfig {
    /// Two blocks of four heads each, 128 wide, over 68 tokens, such as 65 characters with those of padding, beginning and end.
    pub const MINI: Seq2SeqConfig = Seq2SeqConfig {
        vocabulary: 68,
        layers: 2,
        heads: 4,
        width: 128,
        feedforward: 512,
        dropout: 0.1,
        tied: true,
    };

    /// The sizes of the recipe: three blocks of four heads each, 128 wide, over 65 characters with those of beginning and end.
    pub const SMALL: Seq2SeqConfig = Seq2SeqConfig {
        vocabulary: 65 + ENDS,
        layers: 3,
        ..Seq2SeqConfig::MINI
    };

    /// The paper's base model for the translation of English to German: six blocks of eight heads each, 512 wide, about 37000 tokens.
    pub const BASE: Seq2SeqConfig = Seq2SeqConfig {
        vocabulary: 37_000,
        layers: 6,
        heads: 8,
        width: 512,
        feedforward: 2048,
        dropout: 0.1,
        tied: true,
    };

    /// The number of values in all parameters, which follows from the sizes.
    pub const fn parameters(&self) -> usize {
        let (w, f) = (self.width, self.feedforward);
        let (attention, norm) = (4 * w * w + 4 * w, 2 * w);
        let perceptron = 2 * w * f + w + f;
        let (encoder, decoder) = (attention + perceptron + 2 * norm, 2 * attention + perceptron + 3 * norm);
        let tables = if self.tied { 1 } else { 2 };
        tables * self.vocabulary * w + self.layers * (encoder + decoder) + 2 * norm
    }
}

/// The transformer of Vaswani et al., "Attention Is All You Need", 2017: one embedding of sources and targets, multiplied by √width,
/// sinusoidal positions, an encoder and a decoder of post-norm blocks with a norm behind them, as `torch.nn.Transformer` has it, and
/// logits by the same table. Sources `[N, S]` and targets `[N, T]` to logits `[N, T, vocabulary]`.
///
/// ```
/// use kiln_models::{Seq2Seq, Seq2SeqConfig};
/// use kiln_nn::{Indices, Init, Module};
/// # let cpu = kiln_cpu::Cpu::new();
/// let config = Seq2SeqConfig { vocabulary: 12, layers: 1, width: 16, feedforward: 32, ..Seq2SeqConfig::MINI };
/// let mut net = Seq2Seq::new(Init::new(&cpu, 0), config)?;
/// let source = Indices::from_slice(&cpu, &[1i32, 2, 3, 0], &[1, 4])?; // 0 is padding
/// let target = Indices::from_slice(&cpu, &[10i32, 3, 2], &[1, 3])?; // 10 begins
/// let mask = source.ne(0)?.reshape(&[1, 1, 1, 4])?;
/// assert_eq!(net.forward(&source, &mask, &target)?.shape().dims(), [1, 3, 12]);
/// net.eval();
/// assert!(net.write(&[1, 2, 3], [10, 11], 4, 8)?.len() <= 8); // four beams, 11 ends
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Seq2Seq<B: Backend> {
    embedding: Embedding<B>,
    dropout: Dropout<B>,
    transformer: Transformer<B>,
    generator: Option<Linear<B>>,
    width: usize,
}

impl<B: Backend> Seq2Seq<B> {
    /// The net with initial weights of `init`'s seed: embeddings N(0, 1/√width), all other matrices Xavier-uniform.
    ///
    /// # Errors
    /// A size of 0, a width that is odd or no multiple of the heads, a probability outside `0..=1`, memory.
    pub fn new(mut init: Init<B>, config: Seq2SeqConfig) -> Result<Self> {
        let Seq2SeqConfig {
            vocabulary,
            layers,
            heads,
            width,
            ..
        } = config;
        if width % 2 == 1 {
            return Err(Error::invalid("transformer", "width", width, "an even number"));
        }
        let init = &mut init;
        let mut embedding = Embedding::new(init, vocabulary, width)?;
        let std = (width as f64).powf(-0.5);
        embedding
            .weight
            .assign(&init.tensor(&[vocabulary, width], &Initializer::Normal { mean: 0.0, std })?)?;
        let block = TransformerEncoderLayer::builder(width, heads)
            .feedforward(config.feedforward)
            .dropout(config.dropout);
        Ok(Seq2Seq {
            embedding,
            dropout: Dropout::new(init, config.dropout)?,
            transformer: Transformer::new(init, &block, layers, layers)?,
            generator: (!config.tied)
                .then(|| Linear::builder(width, vocabulary).bias(false).build(init))
                .transpose()?,
            width,
        })
    }

    /// The backend of its parameters.
    pub fn backend(&self) -> &B {
        self.embedding.weight.backend()
    }

    /// The vectors of ids `[N, T]` behind `past` others, `[N, T, width]`.
    fn embed(&self, ids: &Indices<B>, past: usize) -> Result<Tensor<B>> {
        let &[_, length] = ids.shape().dims() else {
            return Err(Error::invalid("transformer", "ids", ids.shape(), "ids [N, T]"));
        };
        let positions = sinusoids(self.backend(), past, length, self.width)?;
        let x = self.embedding.forward(ids)?.mul_scalar((self.width as f64).sqrt())?;
        self.dropout.forward(&x.add(&positions.to_dtype(x.dtype())?)?)
    }

    fn logits(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match &self.generator {
            Some(generator) => generator.forward(x),
            None => TiedHead::new(&self.embedding.weight, None).forward(x),
        }
    }

    /// The logits of the token behind each one of `target` `[N, T]`, for the tokens of `source` `[N, S]` that `mask` `[N, 1, 1, S]` lets
    /// pass: `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32, not `[N, T]` or outside of the vocabulary; a mask of another shape.
    pub fn forward(&self, source: &Indices<B>, mask: &Indices<B>, target: &Indices<B>) -> Result<Tensor<B>> {
        trace::scope(self, source, || {
            let masks = TransformerMasks {
                source: AttentionOptions::masked(mask),
                memory: AttentionOptions::masked(mask),
                ..TransformerMasks::causal()
            };
            let (source, target) = (self.embed(source, 0)?, self.embed(target, 0)?);
            self.logits(&self.transformer.forward_masked(&source, &target, &masks)?)
        })
    }

    /// Decodes the tokens of `source` by beam search, from `begin` until `end` or up to `longest` tokens, and returns those tokens: the best
    /// of `beams` texts that are followed side by side, by the sum of the logarithms of their probabilities over their length to the
    /// power of 0.6 (Wu et al., "Google's Neural Machine Translation System", 2016). One beam is greedy. The model must be in evaluation
    /// mode.
    ///
    /// # Errors
    /// No tokens, no beams, tokens outside of the vocabulary.
    pub fn write(&self, source: &[i32], [begin, end]: [i32; 2], beams: usize, longest: usize) -> Result<Vec<i32>> {
        if source.is_empty() || beams == 0 {
            let (name, found) = if beams == 0 { ("beams", "0") } else { ("source", "none") };
            return Err(Error::invalid("transformer", name, found, "at least one"));
        }
        no_grad(|| {
            let all = AttentionOptions::default();
            let ids = Indices::from_slice(self.backend(), source, &[1, source.len()])?;
            let memory = self.transformer.encoder.forward(&self.embed(&ids, 0)?)?;
            let mut cache = self.transformer.decoder.cache(&memory)?;
            let (mut live, mut ended) = (vec![Beam::default()], Vec::<(f64, Vec<i32>)>::new());
            while !live.is_empty() && live[0].tokens.len() < longest {
                let last: Vec<i32> = live.iter().map(|b| b.tokens.last().copied().unwrap_or(begin)).collect();
                let ids = Indices::from_slice(self.backend(), &last, &[last.len(), 1])?;
                let x = self.embed(&ids, cache.len())?;
                let y = self.transformer.decoder.next(&x, &mut cache, &all)?;
                let scores = self.logits(&y)?.log_softmax(-1)?.to_f64()?;
                let (next, rows) = further(&live, &scores, end, beams, &mut ended);
                live = next;
                cache = self.chosen(&cache, &rows)?;
                if ended.len() >= beams {
                    break;
                }
            }
            ended.extend(live.into_iter().map(|beam| (beam.value(), beam.tokens)));
            let best = ended.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
            Ok(best.map(|(_, tokens)| tokens).unwrap_or_default())
        })
    }

    /// Writes the likeliest tokens for `source` `[N, S]`, of which `mask` `[N, 1, 1, S]` lets some pass, until all texts have ended or up to
    /// `longest` tokens: the tokens `[N, longest]`, of which those behind the end have no meaning, and the number of tokens before the
    /// end `[N]`. Begins and ends with the tokens of [`ends`](Seq2Seq::ends). The model must be in evaluation mode.
    ///
    /// # Errors
    /// As [`forward`](Seq2Seq::forward); a `longest` of 0.
    pub fn greedy(&self, source: &Indices<B>, mask: &Indices<B>, longest: usize) -> Result<(Indices<B>, Indices<B>)> {
        /// Tokens between two looks at how many texts go on, each of which waits for the device.
        const LOOK: usize = 8;
        if longest == 0 {
            return Err(Error::invalid("transformer", "longest", longest, "at least 1"));
        }
        no_grad(|| {
            let rows = source.shape().first().copied().unwrap_or(0);
            let (options, [begin, end]) = (AttentionOptions::masked(mask), self.ends());
            let memory = self
                .transformer
                .encoder
                .forward_masked(&self.embed(source, 0)?, &options)?;
            let mut cache = self.transformer.decoder.cache(&memory)?;
            let full = |shape: &[usize], value: i32| Indices::full(self.backend(), shape, value);
            let (mut last, mut written) = (full(&[rows, 1], begin)?, Vec::new());
            let (mut going_on, mut counts) = (full(&[rows, 1], 1)?, full(&[rows, 1], 0)?);
            while written.len() < longest {
                let x = self.embed(&last, cache.len())?;
                let y = self.transformer.decoder.next(&x, &mut cache, &options)?;
                last = self.logits(&y)?.argmax(-1, false)?;
                going_on = going_on.mul(&last.ne(end)?.to_i32()?)?;
                counts = counts.add(&going_on)?;
                written.push(last.clone());
                if written.len() % LOOK == 0 && !going_on.to_vec::<i32>()?.contains(&1) {
                    break;
                }
            }
            if written.len() < longest {
                written.push(full(&[rows, longest - written.len()], end)?);
            }
            let written = Indices::concat(&written.iter().collect::<Vec<_>>(), 1)?;
            Ok((written, counts.reshape(&[rows])?))
        })
    }

    /// The tokens of the beginning and of the end of what is written: the last two of the vocabulary.
    pub fn ends(&self) -> [i32; 2] {
        let vocabulary = self.embedding.weight.shape().first().copied().unwrap_or(0) as i32;
        [vocabulary - 2, vocabulary - 1]
    }

    fn chosen(&self, cache: &DecoderCache<B>, rows: &[i32]) -> Result<DecoderCache<B>> {
        match rows {
            [] | [0] => Ok(cache.clone()),
            rows => cache.select(&Indices::from_slice(self.backend(), rows, &[rows.len()])?),
        }
    }
}

/// A text that is being written, with the sum of the logarithms of the probabilities of its tokens.
#[derive(Clone, Debug, Default)]
struct Beam {
    tokens: Vec<i32>,
    score: f64,
}

impl Beam {
    /// The score by which texts of different lengths are compared.
    fn value(&self) -> f64 {
        self.score / ((5.0 + self.tokens.len() as f64) / 6.0).powf(0.6)
    }
}

/// The best `beams` texts with one more token, and the rows of those that they go on from. Texts that `end` are put among `ended`.
fn further(
    live: &[Beam],
    scores: &[f64],
    end: i32,
    beams: usize,
    ended: &mut Vec<(f64, Vec<i32>)>,
) -> (Vec<Beam>, Vec<i32>) {
    let vocabulary = scores.len() / live.len();
    let mut all: Vec<(f64, usize, usize)> = Vec::new();
    for (row, (beam, scores)) in live.iter().zip(scores.chunks(vocabulary)).enumerate() {
        all.extend(
            scores
                .iter()
                .enumerate()
                .map(|(token, score)| (beam.score + score, row, token)),
        );
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut next, mut rows) = (Vec::new(), Vec::new());
    for (score, row, token) in all.into_iter().take(2 * beams) {
        if next.len() == beams {
            break;
        }
        let mut tokens = live[row].tokens.clone();
        if token as i32 == end {
            let beam = Beam { tokens, score };
            ended.push((beam.value(), beam.tokens));
            // A greedy text is at its end.
            if beams == 1 {
                break;
            }
            continue;
        }
        tokens.push(token as i32);
        next.push(Beam { tokens, score });
        rows.push(row as i32);
    }
    (next, rows)
}

/// The paper's positions `[length, width]`, sines and cosines side by side, from position `past`. Computed on the device, so that a
/// captured step uploads nothing.
fn sinusoids<B: Backend>(backend: &B, past: usize, length: usize, width: usize) -> Result<Tensor<B>> {
    let counted = |n: usize| Tensor::ones(backend, &[n], DType::F32)?.cumsum(0);
    let exponent = -(10_000f64.ln()) / (width / 2) as f64;
    let rates = counted(width / 2)?.sub_scalar(1.0)?.mul_scalar(exponent)?.exp()?;
    let at = counted(length)?.add_scalar(past as f64 - 1.0)?.unsqueeze(1)?;
    let angles = at.mul(&rates)?;
    Tensor::stack(&[&angles.sin()?, &angles.cos()?], -1)?.reshape(&[length, width])
}
