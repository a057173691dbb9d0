//! A tokenizer: its parts one after the other.

use crate::added::{self, AddedToken, Part};
use crate::bpe::{Bpe, BpeOptions, Piece};
use crate::bytes::char_of;
use crate::decode::Decoder;
use crate::encoding::Encoding;
use crate::normalize::{Normalized, Normalizer};
use crate::post::{self, PostProcessor};
use crate::split::PreTokenizer;
use crate::train::{TrainOptions, learn};
use crate::vocabulary::Vocabulary;
use crate::wordpiece::WordPiece;
use crate::{Result, TokenizerError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The part of a tokenizer that divides words.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Bpe(Bpe),
    WordPiece(WordPiece),
}

impl Model {
    fn vocabulary(&self) -> &Vocabulary {
        match self {
            Model::Bpe(bpe) => &bpe.vocabulary,
            Model::WordPiece(pieces) => &pieces.vocabulary,
        }
    }

    fn encode(&self, word: &str) -> Result<Vec<Piece>> {
        match self {
            Model::Bpe(bpe) => bpe.encode(word),
            Model::WordPiece(pieces) => Ok(pieces.encode(word)),
        }
    }
}

/// From text to numbers and back, as Hugging Face's `tokenizers.Tokenizer`: a text is normalized, split into words, and each word
/// divided into tokens of the vocabulary.
///
/// Truncation and padding that a file asks for are not carried out: a batch is cut and padded where it is made.
///
/// ```
/// use kiln_tokenizer::{Tokenizer, TrainOptions};
/// let text = "the cat sat on the mat, the rat sat on the cat";
/// let tokenizer = Tokenizer::train_bpe([text], &TrainOptions { vocabulary: 280, ..TrainOptions::default() })?;
/// let ids = tokenizer.encode("the mat")?.ids;
/// assert_eq!(tokenizer.decode(&ids, true)?, "the mat");
/// # Ok::<(), kiln_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    pub(crate) normalizer: Option<Normalizer>,
    pub(crate) pre_tokenizer: Option<PreTokenizer>,
    pub(crate) model: Model,
    pub(crate) post_processor: Option<PostProcessor>,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) added: Vec<AddedToken>,
}

impl Tokenizer {
    /// A tokenizer of its parts.
    ///
    /// # Errors
    /// An added token that another token has the id of, or that is looked for in text that is normalized.
    pub(crate) fn assembled(
        normalizer: Option<Normalizer>,
        pre_tokenizer: Option<PreTokenizer>,
        model: Model,
        post_processor: Option<PostProcessor>,
        decoder: Option<Decoder>,
        added: Vec<AddedToken>,
    ) -> Result<Self> {
        for token in &added {
            if let Some(other) = model
                .vocabulary()
                .token(token.id)
                .filter(|other| *other != token.content)
            {
                let problem = format!("`{}` has the id {} of `{other}`", token.content, token.id);
                return Err(TokenizerError::invalid("added token", problem));
            }
            if token.normalized && !token.special && normalizer.is_some() {
                return Err(TokenizerError::Unsupported {
                    part: "added token",
                    kind: format!("{} (normalized)", token.content),
                    supported: "added tokens that are not normalized",
                });
            }
        }
        Ok(Tokenizer {
            normalizer,
            pre_tokenizer,
            model,
            post_processor,
            decoder,
            added,
        })
    }

    /// Learns a byte-level tokenizer as GPT-2 has it: every text has tokens, and decodes to itself.
    ///
    /// # Errors
    /// A vocabulary below the 256 bytes and the special tokens.
    pub fn train_bpe<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, options: &TrainOptions) -> Result<Self> {
        let least = 256 + options.special_tokens.len();
        if options.vocabulary < least {
            let problem = format!(
                "of {} tokens is below the {least} of bytes and special tokens",
                options.vocabulary
            );
            return Err(TokenizerError::invalid("vocabulary", problem));
        }
        let pre = PreTokenizer::byte_level();
        let alphabet: Vec<char> = (0..=255).map(char_of).collect();
        let words = counted(texts, &options.special_tokens, None, &pre);
        let (vocabulary, merges) = learn(&words, options, &alphabet, "");
        let added = special(&vocabulary, options);
        let model = Model::Bpe(Bpe::new(vocabulary, merges, BpeOptions::default())?);
        let post = PostProcessor::ByteLevel {
            add_prefix_space: true,
            trim_offsets: false,
            use_regex: true,
        };
        Self::assembled(None, Some(pre), model, Some(post), Some(Decoder::byte_level()), added)
    }

    /// Learns a WordPiece tokenizer as BERT has it, for small letters without accents. The special tokens `[PAD]`, `[UNK]`, `[CLS]`,
    /// `[SEP]` and `[MASK]` have the first ids, unless `options` names others, of which `[UNK]`, `[CLS]` and `[SEP]` must be.
    ///
    /// # Errors
    /// Special tokens without one of those three.
    pub fn train_wordpiece<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, options: &TrainOptions) -> Result<Self> {
        let mut options = options.clone();
        if options.special_tokens.is_empty() {
            options.special_tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
                .map(String::from)
                .to_vec();
        }
        let (normalizer, pre) = (Normalizer::bert_uncased(), PreTokenizer::Bert);
        let words = counted(texts, &options.special_tokens, Some(&normalizer), &pre);
        let (vocabulary, _) = learn(&words, &options, &[], "##");
        let added = special(&vocabulary, &options);
        let named = |token: &str| match vocabulary.id(token) {
            Some(id) => Ok((token.to_string(), id)),
            None => Err(TokenizerError::UnknownToken {
                token: token.to_string(),
            }),
        };
        let post = PostProcessor::Bert {
            sep: named("[SEP]")?,
            cls: named("[CLS]")?,
        };
        let decoder = Decoder::WordPiece {
            prefix: "##".into(),
            cleanup: true,
        };
        let model = Model::WordPiece(WordPiece::new(vocabulary, "[UNK]".into(), "##".into(), 100)?);
        Self::assembled(Some(normalizer), Some(pre), model, Some(post), Some(decoder), added)
    }

    /// One more than the largest id.
    pub fn vocabulary(&self) -> usize {
        let added = self.added.iter().map(|token| token.id as usize + 1).max();
        self.model.vocabulary().len().max(added.unwrap_or(0))
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        let added = self.added.iter().find(|added| added.content == token);
        added
            .map(|added| added.id)
            .or_else(|| self.model.vocabulary().id(token))
    }

    /// The token of an id.
    pub fn token(&self, id: u32) -> Option<&str> {
        let added = self.added.iter().find(|added| added.id == id);
        added
            .map(|added| added.content.as_str())
            .or_else(|| self.model.vocabulary().token(id))
    }

    /// The tokens of a text, without special tokens around it.
    ///
    /// # Errors
    /// Text that no token stands for; more than 4 GiB of it.
    pub fn encode(&self, text: &str) -> Result<Encoding> {
        if u32::try_from(text.len()).is_err() {
            return Err(TokenizerError::invalid(
                "text",
                "has more than 4 GiB; encode it in parts",
            ));
        }
        let mut encoding = Encoding::default();
        let trims = self.post_processor.as_ref().and_then(PostProcessor::trims);
        for part in added::find(&self.added, text) {
            match part {
                Part::Token(id, place) => {
                    let trimmed = trims.map(|prefixed| trimmed(&text[place.clone()], place.clone(), prefixed));
                    encoding.push(id, trimmed.unwrap_or(place));
                }
                Part::Text(place) => self.encode_part(text, place, &mut encoding)?,
            }
        }
        Ok(encoding)
    }

    /// The tokens of one text, or of two, with the special tokens that the post-processor puts around them.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_with_special(&self, text: &str, second: Option<&str>) -> Result<Encoding> {
        let (a, b) = (self.encode(text)?, second.map(|text| self.encode(text)).transpose()?);
        match &self.post_processor {
            Some(post) => post.apply(a, b),
            None => Ok(post::joined(a, b)),
        }
    }

    /// The tokens of a part of a text without added tokens.
    fn encode_part(&self, text: &str, part: Range<usize>, encoding: &mut Encoding) -> Result<()> {
        let mut normalized = Normalized::new(&text[part.clone()]);
        if let Some(normalizer) = &self.normalizer {
            normalizer.apply(&mut normalized);
        }
        let pre = self.pre_tokenizer.as_ref();
        if pre.is_some_and(PreTokenizer::adds_prefix_space) && !normalized.text.starts_with(' ') {
            normalized.prefix_blank();
        }
        let whole = || {
            std::iter::once(0..normalized.text.len())
                .filter(|r| !r.is_empty())
                .collect()
        };
        let words = pre.map_or_else(whole, |pre| pre.split(&normalized.text));
        let byte_level = pre.is_some_and(PreTokenizer::is_byte_level);
        let trims = self.post_processor.as_ref().and_then(PostProcessor::trims);
        let mut written = String::new();
        for word in words {
            let pieces = match byte_level {
                true => {
                    written.clear();
                    written.extend(normalized.text[word.clone()].bytes().map(char_of));
                    self.model.encode(&written)?
                }
                false => self.model.encode(&normalized.text[word.clone()])?,
            };
            let (mut at, mut read) = (word.start, 0);
            for piece in pieces {
                let length = match byte_level {
                    // The bytes that the characters of the piece stand for.
                    true => {
                        let characters = written[read..read + piece.length].chars().count();
                        read += piece.length;
                        characters
                    }
                    false => piece.length,
                };
                // A token may be a part of a character, whose place it then has.
                let place = floor(&normalized.text, at)..ceil(&normalized.text, at + length);
                at += length;
                let origin = normalized.origin(place);
                let mut place = part.start + origin.start..part.start + origin.end;
                if let Some(prefixed) = trims {
                    place = trimmed(self.token(piece.id).unwrap_or_default(), place, prefixed);
                }
                encoding.push(piece.id, place);
            }
        }
        Ok(())
    }

    /// The text of tokens, special ones included or not.
    ///
    /// # Errors
    /// An id beyond the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let mut tokens = Vec::with_capacity(ids.len());
        for &id in ids {
            tokens.extend(self.shown(id, skip_special)?);
        }
        Ok(match &self.decoder {
            Some(decoder) => decoder.decode(&tokens),
            None => tokens.join(" "),
        })
    }

    /// The token of an id; none for a special one that is to be skipped.
    pub(crate) fn shown(&self, id: u32, skip_special: bool) -> Result<Option<&str>> {
        let skipped = |added: &AddedToken| added.id == id && added.special;
        if skip_special && self.added.iter().any(skipped) {
            return Ok(None);
        }
        let unknown = || TokenizerError::UnknownId {
            id,
            size: self.vocabulary(),
        };
        self.token(id).map(Some).ok_or_else(unknown)
    }
}

/// The beginning of the character at a byte.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The first end of a character from a byte on.
fn ceil(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len())
}

/// The place of a token without the blanks at its ends, of which the first one of a text may have been put there.
fn trimmed(token: &str, place: Range<usize>, prefixed: bool) -> Range<usize> {
    let blank = char_of(b' ');
    let is_blank = |c: &char| *c == blank || c.is_whitespace();
    let mut leading = token.chars().take_while(is_blank).count();
    let trailing = token.chars().rev().take_while(is_blank).count();
    if place.start == 0 && prefixed {
        leading = leading.saturating_sub(1);
    }
    let start = (place.start + leading).min(place.end);
    match place.end >= trailing {
        true => start..(place.end - trailing).max(start),
        false => start..place.end,
    }
}

/// The words of texts and how often they occur.
fn counted<T: AsRef<str>>(
    texts: impl IntoIterator<Item = T>,
    special_tokens: &[String],
    normalizer: Option<&Normalizer>,
    pre: &PreTokenizer,
) -> BTreeMap<String, u64> {
    let special: Vec<AddedToken> = special_tokens
        .iter()
        .map(|token| AddedToken::special(0, token))
        .collect();
    let mut words: BTreeMap<String, u64> = BTreeMap::new();
    let mut written = String::new();
    for text in texts {
        let text = text.as_ref();
        for part in added::find(&special, text) {
            let Part::Text(part) = part else { continue };
            let mut normalized = Normalized::new(&text[part]);
            if let Some(normalizer) = normalizer {
                normalizer.apply(&mut normalized);
            }
            for word in pre.split(&normalized.text) {
                let word = &normalized.text[word];
                written.clear();
                match pre.is_byte_level() {
                    true => written.extend(word.bytes().map(char_of)),
                    false => written.push_str(word),
                }
                match words.get_mut(&written) {
                    Some(count) => *count += 1,
                    None => {
                        words.insert(written.clone(), 1);
                    }
                }
            }
        }
    }
    words
}

/// The special tokens with their ids.
fn special(vocabulary: &Vocabulary, options: &TrainOptions) -> Vec<AddedToken> {
    let ids = options
        .special_tokens
        .iter()
        .filter_map(|token| Some((vocabulary.id(token)?, token)));
    ids.map(|(id, token)| AddedToken::special(id, token)).collect()
}
