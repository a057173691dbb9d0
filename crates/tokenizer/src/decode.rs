//! Decoders: how tokens become a text again.

use crate::bytes::byte_of;
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

/// The bytes that a token of a byte-level tokenizer stands for: one that was added is no row of bytes, but its text.
pub(crate) fn bytes_of(token: &str) -> Vec<u8> {
    let row: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    row.unwrap_or_else(|| token.as_bytes().to_vec())
}
