//! Decoding of tokens that come one after the other.

use crate::decode::{Decoder, bytes_of};
use crate::{Result, Tokenizer};

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

impl Tokenizer {
    /// The text of tokens that come one after the other.
    ///
    /// See the example of [`DecodeStream`].
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<'_> {
        DecodeStream {
            tokenizer: self,
            skip_special,
            before: None,
            bytes: Vec::new(),
        }
    }
}

impl DecodeStream<'_> {
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
