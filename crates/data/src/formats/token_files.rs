//! Texts as files of tokens, of which windows are read when they are asked for: for texts larger than the memory.

use super::input::open_regular;
use super::text_pieces::TextPieces;
use super::tokens::{TokenizerChoice, Tokens};
use crate::{DataError, Place, Result};
use kiln_files::write_atomic;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The names of the files of a folder of tokens.
const INDEX: &str = "tokens.json";
const TOKENIZER: &str = "tokenizer.json";
const PARTS: [&str; 2] = ["train.bin", "test.bin"];

/// The token between two texts, of tokenizers that have it.
const BETWEEN: &str = "<|endoftext|>";

/// The bytes of each text that a tokenizer is learned from.
const LEARNED: usize = 1 << 28;

/// The contents of a folder of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenIndex {
    /// Bytes of a token: 2 or 4, little-endian.
    pub bytes_per_token: usize,
    /// The number of different tokens.
    pub vocabulary: usize,
    /// Tells the tokenizer, which is beside it, from others.
    pub tokenizer: String,
    /// The tokens to train on.
    pub train: TokenPart,
    /// The tokens that are held back: those of the last tenth of the characters.
    pub test: TokenPart,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenPart {
    /// Its number of tokens.
    pub tokens: u64,
    /// Its number of characters.
    pub characters: u64,
}

/// Each step of [`write_tokens`], with the characters that it has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizeStep {
    /// The characters are counted.
    Counting(u64),
    /// The tokenizer is learned from so many of them.
    Learning(u64),
    /// They are written as tokens, of so many in all.
    Writing(u64, u64),
}

/// Writes texts as tokens into a folder: `train.bin`, and `test.bin` with the last tenth of the characters; `tokenizer.json`; and
/// `tokens.json`, which describes them and is written last. The texts follow each other, with `<|endoftext|>` between where the tokenizer
/// has it, so that windows are full whatever the lengths of the texts. Of a text that is read there are a few MiB in memory.
///
/// A tokenizer is learned from at most the first 256 MiB of each text, and never from the part that is held back.
///
/// # Errors
/// Files that cannot be read or are not UTF-8, no text, characters as tokens, a tokenizer that texts cannot be given to in parts.
pub fn write_tokens(
    texts: &[PathBuf],
    choice: &TokenizerChoice,
    folder: &Path,
    tell: &mut dyn FnMut(TokenizeStep) -> Result<()>,
) -> Result<TokenIndex> {
    let mut characters = 0;
    each_piece(texts, &mut |_, piece| {
        characters += piece.chars().count() as u64;
        tell(TokenizeStep::Counting(characters))?;
        Ok(true)
    })?;
    if characters == 0 {
        return Err(DataError::Empty {
            path: texts.first().cloned().unwrap_or_default(),
            expected: "text",
        });
    }
    let to_train_on = characters - characters / 10;
    let tokens = match choice {
        TokenizerChoice::File(_) | TokenizerChoice::Characters => Tokens::learned(choice, std::iter::empty::<&str>())?,
        _ => Tokens::learned(choice, sample(texts, to_train_on, tell)?)?,
    };
    let Some(tokenizer) = tokens.tokenizer() else {
        return Err(DataError::invalid("tokens", "tokenizer", choice, "a tokenizer"));
    };
    if !tokenizer.is_divisible()? {
        let expected = "one that encodes a text line by line, which this one does not";
        return Err(DataError::invalid("tokens", "tokenizer", choice, expected));
    }
    std::fs::create_dir_all(folder).map_err(DataError::io(folder, "make"))?;
    // While there is no index, the folder is none of tokens.
    match std::fs::remove_file(folder.join(INDEX)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(DataError::io(&folder.join(INDEX), "remove")(error));
        }
        _ => {}
    }
    let bytes_per_token = if tokens.len() <= 1 << 16 { 2 } else { 4 };
    let create = |part: usize| Writer::create(folder.join(PARTS[part]), bytes_per_token);
    let mut parts = [create(0)?, create(1)?];
    let between = tokenizer.tokenizer().id(BETWEEN);
    let (mut done, mut number) = (0, 0);
    each_piece(texts, &mut |text, piece| {
        if let Some(id) = between.filter(|_| text != number) {
            parts[usize::from(done >= to_train_on)].push(id)?;
        }
        number = text;
        let count = piece.chars().count() as u64;
        let left = to_train_on.saturating_sub(done).min(count) as usize;
        let cut = piece.char_indices().nth(left).map_or(piece.len(), |(at, _)| at);
        for (writer, piece) in parts.iter_mut().zip([&piece[..cut], &piece[cut..]]) {
            for id in tokens.encode(piece)? {
                writer.push(id as u32)?;
            }
            writer.part.characters += piece.chars().count() as u64;
        }
        done += count;
        tell(TokenizeStep::Writing(done, characters))?;
        Ok(true)
    })?;
    let [train, test] = parts;
    let (train, test) = (train.end()?, test.end()?);
    write_atomic(folder.join(TOKENIZER), tokenizer.json().as_bytes()).map_err(failed(folder))?;
    let index = TokenIndex {
        bytes_per_token,
        vocabulary: tokens.len(),
        tokenizer: tokenizer.digest(),
        train,
        test,
    };
    let json = serde_json::to_vec_pretty(&index).map_err(std::io::Error::from);
    let json = json.map_err(DataError::io(folder, "write"))?;
    write_atomic(folder.join(INDEX), &json).map_err(failed(folder))?;
    Ok(index)
}

fn failed(folder: &Path) -> impl FnOnce(kiln_files::FileError) -> DataError {
    let path = folder.to_path_buf();
    move |error| DataError::io(&path, "write")(std::io::Error::other(error))
}

/// Reads texts one after the other, piece by piece, until `each` returns false; it is told the number of the text.
fn each_piece(texts: &[PathBuf], each: &mut dyn FnMut(usize, &str) -> Result<bool>) -> Result<()> {
    for (number, path) in texts.iter().enumerate() {
        let mut pieces = TextPieces::open(path)?;
        while let Some(piece) = pieces.next()? {
            if !each(number, &piece)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The pieces that a tokenizer is learned from.
fn sample(texts: &[PathBuf], characters: u64, tell: &mut dyn FnMut(TokenizeStep) -> Result<()>) -> Result<Vec<String>> {
    let (mut sample, mut done, mut of_text) = (Vec::new(), 0, (0, 0));
    each_piece(texts, &mut |text, piece| {
        if of_text.0 != text {
            of_text = (text, 0);
        }
        let left = (characters - done).min(piece.chars().count() as u64);
        if of_text.1 < LEARNED {
            let cut = piece
                .char_indices()
                .nth(left as usize)
                .map_or(piece.len(), |(at, _)| at);
            sample.push(piece[..cut].to_string());
            of_text.1 += cut;
        }
        done += left;
        tell(TokenizeStep::Learning(done))?;
        Ok(done < characters)
    })?;
    Ok(sample)
}

/// A file of tokens that is written.
struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: usize,
    part: TokenPart,
}

impl Writer {
    fn create(path: PathBuf, bytes: usize) -> Result<Self> {
        let file = File::create(&path).map_err(DataError::io(&path, "write"))?;
        Ok(Writer {
            file: BufWriter::with_capacity(1 << 20, file),
            path,
            bytes,
            part: TokenPart::default(),
        })
    }

    fn push(&mut self, id: u32) -> Result<()> {
        let written = self.file.write_all(&id.to_le_bytes()[..self.bytes]);
        written.map_err(DataError::io(&self.path, "write"))?;
        self.part.tokens += 1;
        Ok(())
    }

    fn end(self) -> Result<TokenPart> {
        let file = self.file.into_inner().map_err(|error| error.into_error());
        file.and_then(|file| file.sync_all())
            .map_err(DataError::io(&self.path, "write"))?;
        Ok(self.part)
    }
}

/// True if a folder is one of tokens.
pub(crate) fn is_token_folder(path: &Path) -> bool {
    path.join(INDEX).is_file()
}

/// Reads the index of a folder of tokens, and its tokenizer.
///
/// # Errors
/// An index that is none, a tokenizer that is not the one that the tokens are of.
pub(crate) fn open_tokens(folder: &Path) -> Result<(TokenIndex, Tokens)> {
    let path = folder.join(INDEX);
    let bytes = super::input::Input::open(&path, 1 << 20)?.rest("an index of tokens")?;
    let index: TokenIndex = serde_json::from_slice(&bytes).map_err(|error| DataError::Decode {
        path: path.clone(),
        place: Place::Line {
            line: error.line() as u64,
            column: None,
        },
        format: "index of tokens",
        reason: error.to_string(),
    })?;
    let wrong = |what, found: String, expected: &str| DataError::Value {
        path: path.clone(),
        place: Place::File,
        what,
        found,
        expected: expected.into(),
    };
    if !matches!(index.bytes_per_token, 2 | 4) {
        return Err(wrong("bytes_per_token", index.bytes_per_token.to_string(), "2 or 4"));
    }
    let tokens = Tokens::open(&folder.join(TOKENIZER))?;
    let digest = tokens.tokenizer().map(|of| of.digest()).unwrap_or_default();
    match digest == index.tokenizer && tokens.len() == index.vocabulary {
        true => Ok((index, tokens)),
        false => Err(wrong(
            "tokenizer",
            digest,
            &format!("{}, that of the tokens; write them anew", index.tokenizer),
        )),
    }
}

/// A file of tokens that is read in parts.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    file: File,
    bytes: usize,
    vocabulary: usize,
}

impl TokenFile {
    /// The tokens of a part, 0 to train on and 1 held back, of a folder.
    ///
    /// # Errors
    /// A file of another size than the index says.
    pub(super) fn open(folder: &Path, index: &TokenIndex, part: usize) -> Result<Self> {
        let path = folder.join(PARTS[part]);
        let (file, size) = open_regular(&path)?;
        let count = [index.train, index.test][part].tokens;
        let expected = count.saturating_mul(index.bytes_per_token as u64);
        match size == expected {
            true => Ok(TokenFile {
                path,
                file,
                bytes: index.bytes_per_token,
                vocabulary: index.vocabulary,
            }),
            false => Err(DataError::Value {
                path,
                place: Place::File,
                what: "size",
                found: format!("{size} bytes"),
                expected: format!("{expected}, those of {count} tokens; write them anew").into(),
            }),
        }
    }

    /// Reads tokens from a place on.
    ///
    /// # Errors
    /// The system's, and a token that the tokenizer does not have.
    pub(super) fn read(&self, at: usize, ids: &mut [i32]) -> Result<()> {
        let mut bytes = vec![0; ids.len() * self.bytes];
        let offset = at as u64 * self.bytes as u64;
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(DataError::io(&self.path, "read"))?;
        for (number, (id, bytes)) in ids.iter_mut().zip(bytes.chunks_exact(self.bytes)).enumerate() {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            let token = u32::from_le_bytes(word);
            if token as usize >= self.vocabulary {
                return Err(DataError::Value {
                    path: self.path.clone(),
                    place: Place::Byte(offset + (number * self.bytes) as u64),
                    what: "token",
                    found: token.to_string(),
                    expected: format!("one of {}", self.vocabulary).into(),
                });
            }
            *id = token as i32;
        }
        Ok(())
    }
}
