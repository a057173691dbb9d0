//! The tokens that a text is cut into: its characters, or those of a tokenizer.

use super::vocabulary::Vocabulary;
use crate::{DataError, Result};
use kiln_tokenizer::{DecodeStream, Tokenizer, TokenizerError, TrainOptions};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The tokens that a text is to be cut into, as a command line says it: `characters`, `bpe:1024`, `wordpiece:8000` or the path of a
/// `tokenizer.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// The characters of the text.
    #[default]
    Characters,
    /// A byte-level tokenizer as GPT-2's, learned from the text, of so many tokens, with `<|endoftext|>` as the first.
    Bpe(usize),
    /// A tokenizer as BERT's, learned from the text, of so many tokens, for small letters without accents.
    WordPiece(usize),
    /// A `tokenizer.json`.
    File(PathBuf),
}

impl TokenizerChoice {
    /// The least number of tokens of a byte-level tokenizer: the bytes and the special token.
    const LEAST_BPE: usize = 257;
    /// The largest number of tokens that are learned.
    const MOST: usize = 1 << 20;
}

impl FromStr for TokenizerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |count: &str, least: usize| {
            let range = least..=TokenizerChoice::MOST;
            let count = count.parse().ok().filter(|count| range.contains(count));
            count.ok_or_else(|| format!("expected a number of tokens from {least} to {}", TokenizerChoice::MOST))
        };
        match text.split_once(':') {
            Some(("bpe", count)) => Ok(TokenizerChoice::Bpe(number(count, TokenizerChoice::LEAST_BPE)?)),
            Some(("wordpiece", count)) => Ok(TokenizerChoice::WordPiece(number(count, 10)?)),
            None if matches!(text, "bpe" | "wordpiece") => {
                Err(format!("expected the number of tokens too, such as {text}:4000"))
            }
            None if text == "characters" => Ok(TokenizerChoice::Characters),
            _ if text.is_empty() => Err("expected characters, bpe:N, wordpiece:N or a tokenizer.json".to_string()),
            _ => Ok(TokenizerChoice::File(PathBuf::from(text))),
        }
    }
}

impl std::fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TokenizerChoice::Characters => f.write_str("characters"),
            TokenizerChoice::Bpe(count) => write!(f, "bpe:{count}"),
            TokenizerChoice::WordPiece(count) => write!(f, "wordpiece:{count}"),
            TokenizerChoice::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl serde::Serialize for TokenizerChoice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for TokenizerChoice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The special tokens of a tokenizer with which masked language models are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// `[MASK]`, which stands for a hidden token.
    pub mask: i32,
    /// `[CLS]`, before a text.
    pub cls: i32,
    /// `[SEP]`, behind a text.
    pub sep: i32,
    /// `[PAD]`, behind the end of a short text in a batch.
    pub pad: i32,
}

/// The tokens that a text is cut into.
#[derive(Clone, Debug)]
pub enum Tokens {
    /// Characters.
    Characters(Vocabulary),
    /// Those of a tokenizer.
    Tokenizer(Arc<TextTokenizer>),
}

/// A tokenizer, with what datasets and trained networks have to know of it.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    json: String,
    special: Option<SpecialTokens>,
    /// For each token, true if it begins a word.
    begins: Vec<bool>,
}

impl TextTokenizer {
    /// A tokenizer for texts.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] for memory.
    pub fn new(tokenizer: Tokenizer) -> Result<Self> {
        let id = |token: &str| tokenizer.id(token).map(|id| id as i32);
        let special = match (id("[MASK]"), id("[CLS]"), id("[SEP]"), id("[PAD]")) {
            (Some(mask), Some(cls), Some(sep), Some(pad)) => Some(SpecialTokens { mask, cls, sep, pad }),
            _ => None,
        };
        let tokens = || (0..tokenizer.vocabulary() as u32).map(|id| tokenizer.token(id).unwrap_or_default());
        let goes_on = |token: &str| token.starts_with("##");
        let pieces = tokens().any(goes_on);
        let begins = |token: &str| match pieces {
            true => !goes_on(token),
            // Byte-level tokens have the blank before a word as a letter of their own.
            false => !token.starts_with(|c: char| c.is_alphanumeric() && c != 'Ġ'),
        };
        Ok(TextTokenizer {
            begins: tokens().map(begins).collect(),
            json: tokenizer.to_json()?,
            special,
            tokenizer,
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The text of its `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The special tokens of BERT; `None` if one of them is missing.
    pub fn special(&self) -> Option<SpecialTokens> {
        self.special
    }

    /// True if a token begins a word.
    pub fn begins(&self, id: i32) -> bool {
        usize::try_from(id)
            .ok()
            .and_then(|id| self.begins.get(id))
            .copied()
            .unwrap_or(true)
    }

    /// A number that tells this tokenizer from others: FNV-1a of its file, in hexadecimal.
    pub fn digest(&self) -> String {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.json.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// True if a text may be encoded line by line. One that puts a blank before each text, or joins across lines, gets texts as a whole.
    pub(super) fn is_divisible(&self) -> Result<bool> {
        let ids = |text: &str| -> Result<Vec<u32>> { Ok(self.tokenizer.encode(text)?.ids) };
        Ok(ids("one.\ntwo")? == [ids("one.\n")?, ids("two")?].concat())
    }

    /// Encodes a text in pieces, so that little more than the ids is in memory: what comes before a line break does not depend on what
    /// comes behind it.
    fn encode(&self, text: &str, each: &mut dyn FnMut(u32, usize)) -> Result<()> {
        const PIECE: usize = 1 << 20;
        let divisible = text.len() > PIECE && self.is_divisible()?;
        let mut start = 0;
        while start < text.len() {
            let end = match divisible && text.len() - start > PIECE {
                true => start + line_end(&text[start..], PIECE),
                false => text.len(),
            };
            let encoding = self.tokenizer.encode(&text[start..end])?;
            for (&id, place) in encoding.ids.iter().zip(&encoding.offsets) {
                each(id, start + place.end);
            }
            start = end;
        }
        Ok(())
    }
}

/// The first place from a byte on that is behind a single line break between two visible characters, or the end.
pub(super) fn line_end(text: &str, from: usize) -> usize {
    let visible = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace() && !c.is_control());
    let breaks = |at: &usize| {
        let (before, behind) = (&text[..*at], &text[*at + 1..]);
        // A line break of two bytes becomes one of one byte.
        let before = before.strip_suffix('\r').unwrap_or(before);
        visible(before.chars().next_back()) && visible(behind.chars().next())
    };
    let bytes = text.as_bytes();
    let mut places = (from..bytes.len()).filter(|&at| bytes[at] == b'\n');
    places.find(breaks).map_or(text.len(), |at| at + 1)
}

impl Tokens {
    /// The tokens of a choice, learned from `text` where they are to be learned.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] for a file that is no tokenizer, and for one that cannot be learned.
    pub fn of(choice: &TokenizerChoice, text: &str) -> Result<Self> {
        match choice {
            TokenizerChoice::Characters => Ok(Tokens::Characters(Vocabulary::of(text))),
            _ => Tokens::learned(choice, [text]),
        }
    }

    /// The tokens of a tokenizer, learned from texts where it is to be learned; the texts need not be in memory at once.
    ///
    /// # Errors
    /// As [`Tokens::of`]; characters.
    pub(crate) fn learned<T: AsRef<str>>(choice: &TokenizerChoice, texts: impl IntoIterator<Item = T>) -> Result<Self> {
        let options = |vocabulary: usize, special: &[&str]| TrainOptions {
            vocabulary,
            special_tokens: special.iter().map(|token| token.to_string()).collect(),
            // That of Hugging Face's `BertWordPieceTokenizer`; a byte-level tokenizer has all bytes.
            limit_alphabet: Some(1000),
            ..TrainOptions::default()
        };
        Ok(match choice {
            TokenizerChoice::Characters => {
                let expected = "a tokenizer: bpe:N, wordpiece:N or a tokenizer.json";
                return Err(DataError::invalid("tokens", "tokenizer", choice, expected));
            }
            TokenizerChoice::Bpe(count) => {
                Tokenizer::train_bpe(texts, &options(*count, &["<|endoftext|>"]))?.try_into()?
            }
            TokenizerChoice::WordPiece(count) => {
                Tokenizer::train_wordpiece(texts, &options(*count, &[]))?.try_into()?
            }
            TokenizerChoice::File(path) => Tokens::open(path)?,
        })
    }

    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`].
    pub fn open(path: &Path) -> Result<Self> {
        Tokenizer::open(path)?.try_into()
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Tokens::Characters(vocabulary) => vocabulary.len(),
            Tokens::Tokenizer(of) => of.tokenizer.vocabulary(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word for a token: `character` or `token`.
    pub fn noun(&self) -> &'static str {
        match self {
            Tokens::Characters(_) => "character",
            Tokens::Tokenizer(_) => "token",
        }
    }

    /// The tokenizer; `None` for characters.
    pub fn tokenizer(&self) -> Option<&TextTokenizer> {
        match self {
            Tokens::Characters(_) => None,
            Tokens::Tokenizer(of) => Some(of),
        }
    }

    /// The special tokens of BERT, for texts of at most `most` tokens.
    pub(crate) fn special_of(&self, most: usize) -> Result<SpecialTokens> {
        let special = self.tokenizer().and_then(|of| of.special()).ok_or_else(|| {
            DataError::invalid(
                "texts",
                "tokenizer",
                format!("one of {}s", self.noun()),
                "one with the tokens [CLS], [SEP], [PAD] and [MASK], such as wordpiece:4000",
            )
        })?;
        match most < 3 {
            true => Err(DataError::invalid("texts", "T", most, "at least 3")),
            false => Ok(special),
        }
    }

    /// The tokens of a text, without special tokens around it.
    ///
    /// # Errors
    /// [`DataError::UnknownCharacter`], [`DataError::Tokenizer`] for text without a token.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        match self {
            Tokens::Characters(vocabulary) => vocabulary.encode(text).map_err(|character| {
                let known = vocabulary.len();
                DataError::UnknownCharacter { character, known }
            }),
            Tokens::Tokenizer(of) => Ok(of.tokenizer.encode(text)?.ids.iter().map(|&id| id as i32).collect()),
        }
    }

    /// The tokens of a text with the byte of the text at which each ends, given to `each` one after the other.
    pub(crate) fn encode_each(&self, text: &str, each: &mut dyn FnMut(u32, usize)) -> Result<(), NotEncoded> {
        match self {
            Tokens::Characters(vocabulary) => {
                for (at, c) in text.char_indices() {
                    let id = vocabulary.id(c).ok_or(NotEncoded::At(at, c))?;
                    each(id as u32, at + c.len_utf8());
                }
                Ok(())
            }
            Tokens::Tokenizer(of) => of.encode(text, each).map_err(NotEncoded::Error),
        }
    }

    /// The text of tokens that come one after the other.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream(match self {
            Tokens::Characters(vocabulary) => Stream::Characters(vocabulary),
            Tokens::Tokenizer(of) => Stream::Tokenizer(of.tokenizer.decode_stream(true)),
        })
    }
}

/// The reason why a text has no tokens: a character at a byte, or an error of the tokenizer.
pub(crate) enum NotEncoded {
    At(usize, char),
    Error(DataError),
}

impl TryFrom<Tokenizer> for Tokens {
    type Error = DataError;

    fn try_from(tokenizer: Tokenizer) -> Result<Self> {
        Ok(Tokens::Tokenizer(Arc::new(TextTokenizer::new(tokenizer)?)))
    }
}

/// The text of tokens that come one after the other: each adds the text that it completes, which is none in the middle of a character.
#[derive(Debug)]
pub struct TokenStream<'a>(Stream<'a>);

#[derive(Debug)]
enum Stream<'a> {
    Characters(&'a Vocabulary),
    Tokenizer(DecodeStream<'a>),
}

impl TokenStream<'_> {
    /// Adds a token; returns the text that it completes.
    ///
    /// # Errors
    /// [`DataError::Tokenizer`] for an id beyond the vocabulary of a tokenizer.
    pub fn push(&mut self, id: i32) -> Result<String> {
        match &mut self.0 {
            Stream::Characters(vocabulary) => {
                let character = usize::try_from(id).ok().and_then(|id| vocabulary.character(id));
                Ok(character.unwrap_or(char::REPLACEMENT_CHARACTER).to_string())
            }
            Stream::Tokenizer(stream) => Ok(stream.push(id as u32)?),
        }
    }

    /// The text of what is left at the end: bytes that complete no character, as U+FFFD.
    pub fn finish(self) -> String {
        match self.0 {
            Stream::Characters(_) => String::new(),
            Stream::Tokenizer(stream) => stream.finish(),
        }
    }
}

impl From<TokenizerError> for DataError {
    fn from(error: TokenizerError) -> Self {
        DataError::Tokenizer(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written() {
        for (text, choice) in [
            ("characters", TokenizerChoice::Characters),
            ("bpe:1024", TokenizerChoice::Bpe(1024)),
            ("wordpiece:80", TokenizerChoice::WordPiece(80)),
            ("a/tokenizer.json", TokenizerChoice::File("a/tokenizer.json".into())),
        ] {
            assert_eq!(text.parse(), Ok(choice.clone()));
            assert_eq!(choice.to_string(), text);
        }
        for wrong in [
            "",
            "bpe",
            "wordpiece",
            "bpe:",
            "bpe:256",
            "bpe:x",
            "wordpiece:-1",
            "bpe:99999999",
        ] {
            assert!(wrong.parse::<TokenizerChoice>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_text_in_pieces_has_the_tokens_of_the_whole() {
        let lines: String = (0..60_000)
            .map(|i| format!("Line {i}, and more.\n{}", if i % 7 == 0 { "\n  " } else { "" }))
            .collect();
        assert!(lines.len() > 1 << 20);
        for choice in [TokenizerChoice::Bpe(300), TokenizerChoice::WordPiece(60)] {
            let tokens = Tokens::of(&choice, &lines[..5000]).unwrap();
            let (mut ids, mut ends) = (Vec::new(), Vec::new());
            let mut each = |id: u32, end: usize| {
                ids.push(id as i32);
                ends.push(end);
            };
            assert!(tokens.encode_each(&lines, &mut each).is_ok());
            assert!(ids == tokens.encode(&lines).unwrap(), "{choice}");
            assert!(
                ends.is_sorted() && ends.last().is_some_and(|&end| lines.len() - end < 2),
                "{choice}"
            );
        }
    }

    #[test]
    fn a_tokenizer_knows_its_special_tokens_and_where_words_begin() {
        let Tokens::Tokenizer(of) = Tokens::of(&TokenizerChoice::WordPiece(40), "low lower lowest newest").unwrap()
        else {
            panic!("a tokenizer")
        };
        let special = SpecialTokens {
            mask: 4,
            cls: 2,
            sep: 3,
            pad: 0,
        };
        assert_eq!(of.special(), Some(special));
        let ids = of.tokenizer().encode("lowq lower").unwrap().ids;
        assert!(of.begins(ids[0] as i32));
        let goes_on = of.tokenizer().id("##e").unwrap();
        assert!(!of.begins(goes_on as i32));
        let again = Tokens::try_from(Tokenizer::from_json(of.json()).unwrap()).unwrap();
        assert_eq!(again.tokenizer().unwrap().digest(), of.digest());
        let bytes = Tokens::of(&TokenizerChoice::Bpe(300), "low lower lowest newest").unwrap();
        let bytes = bytes.tokenizer().unwrap();
        assert_eq!(bytes.special(), None);
        assert_ne!(bytes.digest(), of.digest());
        assert!(bytes.begins(bytes.tokenizer().id("Ġ").unwrap() as i32));
        assert!(!bytes.begins(bytes.tokenizer().id("w").unwrap() as i32));
    }
}
