//! Decoders: how tokens become a text again.

use crate::bytes::byte_of;
use crate::{Result, Tokenizer};
use serde::{Deserialize, Serialize};

/// How tokens become a text again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Decoder {
    /// Characters that stand for bytes become those; what is no UTF-8 becomes U+FFFD.
    ByteLevel {
        /// As of the pre-tokenizer.
        #[serde(default = "crate::split::yes")]
        add_prefix_space: bool,
        /// As of the post-processor.
        #[serde(default = "crate::split::yes")]
        trim_offsets: bool,
        /// As of the pre-tokenizer.
        #[serde(default = "crate::split::yes")]
        use_regex: bool,
    },
    /// Tokens that go on with a word are joined to it, and others begin behind a blank.
    WordPiece {
        /// The beginning of tokens that go on: `##`.
        prefix: String,
        /// Leave out blanks before full stops and commas, and in English contractions.
        cleanup: bool,
    },
    /// The end of a word becomes a blank.
    #[serde(rename = "BPEDecoder")]
    Bpe {
        /// The end of the last token of a word: `</w>`.
        suffix: String,
    },
}

/// The types that are supported, for messages.
pub(crate) const SUPPORTED: &str = "ByteLevel, WordPiece, BPEDecoder";

impl Decoder {
    /// That of byte-level tokenizers.
    pub fn byte_level() -> Self {
        Decoder::ByteLevel {
            add_prefix_space: true,
            trim_offsets: true,
            use_regex: true,
        }
    }

    /// The text of tokens.
    pub(crate) fn decode(&self, tokens: &[&str]) -> String {
        match self {
            Decoder::ByteLevel { .. } => {
                let bytes: Vec<u8> = tokens.iter().flat_map(|token| bytes_of(token)).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Decoder::WordPiece { prefix, cleanup } => {
                let mut text = String::new();
                for (i, token) in tokens.iter().enumerate() {
                    let piece = match (i > 0, token.strip_prefix(prefix.as_str())) {
                        (true, Some(rest)) => rest.to_string(),
                        (true, None) => format!(" {token}"),
                        (false, _) => token.to_string(),
                    };
                    text.push_str(&if *cleanup { cleaned(&piece) } else { piece });
                }
                text
            }
            Decoder::Bpe { suffix } => {
                let last = tokens.len().saturating_sub(1);
                let piece =
                    |(i, token): (usize, &&str)| token.replace(suffix.as_str(), if i == last { "" } else { " " });
                tokens.iter().enumerate().map(piece).collect()
            }
        }
    }
}

/// English text without the blanks that splitting it has put in.
fn cleaned(piece: &str) -> String {
    let pairs = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    pairs
        .iter()
        .fold(piece.to_string(), |text, (from, to)| text.replace(from, to))
}

/// The text of tokens that come one after the other: each adds the text that it completes, which is none in the middle of a
/// character.
///
/// ```
/// use kiln_tokenizer::{Tokenizer, TrainOptions};
/// let tokenizer = Tokenizer::train_bpe([""], &TrainOptions { vocabulary: 256, ..TrainOptions::default() })?;
/// let mut text = tokenizer.decode_stream(true);
/// let ids = tokenizer.encode("né")?.ids;
/// let pieces = ids.into_iter().map(|id| text.push(id)).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(pieces, ["n", "", "é"]);
/// # Ok::<(), kiln_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    /// The last token that has told its text, on which that of the next may depend.
    before: Option<u32>,
    /// Bytes that complete no character yet, of byte-level tokenizers.
    bytes: Vec<u8>,
}

impl<'a> DecodeStream<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        DecodeStream {
            tokenizer,
            skip_special,
            before: None,
            bytes: Vec::new(),
        }
    }

    /// Adds a token; returns the text that it completes.
    ///
    /// # Errors
    /// An id beyond the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let Some(token) = self.tokenizer.shown(id, self.skip_special)? else {
            return Ok(String::new());
        };
        if let Some(Decoder::ByteLevel { .. }) = self.tokenizer.decoder {
            self.bytes.extend(bytes_of(token));
            return Ok(complete(&mut self.bytes));
        }
        let before: Vec<u32> = self.before.replace(id).into_iter().collect();
        let told = self.tokenizer.decode(&before, self.skip_special)?;
        let now = self
            .tokenizer
            .decode(&[&before[..], &[id]].concat(), self.skip_special)?;
        Ok(now.strip_prefix(told.as_str()).unwrap_or_default().to_string())
    }

    /// The text of what is left at the end: bytes that complete no character, as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The bytes that a token of a byte-level tokenizer stands for: one that was added is no row of bytes, but its text.
fn bytes_of(token: &str) -> Vec<u8> {
    let row: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    row.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Takes the characters that bytes complete; U+FFFD stands for what can become none.
fn complete(bytes: &mut Vec<u8>) -> String {
    // Without an end, what is at the end may be the beginning of a character.
    let open = bytes
        .utf8_chunks()
        .last()
        .map_or(0, |last| match std::str::from_utf8(last.invalid()) {
            Err(e) if e.error_len().is_none() => last.invalid().len(),
            _ => 0,
        });
    let rest = bytes.split_off(bytes.len() - open);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}
