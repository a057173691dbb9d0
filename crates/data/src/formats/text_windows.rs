//! Windows of a text's tokens as samples.

use super::ids::Ids;
use super::token_files::{TokenFile, TokenIndex};
use super::tokens::Tokens;
use crate::dataset::check_index;
use crate::{DataError, Dataset, Place, Result, Sample};
use kiln_core::Shape;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Consecutive windows of a text. A sample's input has shape `[context + 1]` and holds the numbers of the tokens: the
/// first `context` are a model's input and the last `context` its targets. Neighbouring windows share one token, so
/// every token but the first is a target once; tokens that do not fill a window are dropped. The label is 0.
///
/// Where the tokens are those of a tokenizer with BERT's special tokens, the sample's targets are `[mask, cls, sep, begins…]`: the ids of
/// the special tokens, and for each of the `context + 1` tokens 1 if it begins a word and else 0.
#[derive(Debug, Clone)]
pub struct TextWindows {
    path: PathBuf,
    tokens: Arc<Tokens>,
    ids: Source,
    range: Range<usize>,
    context: usize,
    shape: Shape,
    characters: usize,
    characters_per_token: f64,
}

/// The place of the ids of tokens.
#[derive(Debug, Clone)]
enum Source {
    Memory(Arc<Ids>),
    File(Arc<TokenFile>),
}

impl Source {
    fn read(&self, at: usize, ids: &mut [i32]) -> Result<()> {
        match self {
            Source::Memory(all) => {
                ids.iter_mut().enumerate().for_each(|(i, id)| *id = all.get(at + i));
                Ok(())
            }
            Source::File(file) => file.read(at, ids),
        }
    }
}

impl TextWindows {
    /// The windows of a part, 0 to train on and 1 held back, of a folder of tokens: they are read from its file one by one.
    ///
    /// # Errors
    /// A file of another size than the index says, one without a whole window, a context of 0.
    pub(crate) fn of_folder(
        folder: &Path,
        (index, tokens): (&TokenIndex, &Arc<Tokens>),
        part: usize,
        context: usize,
    ) -> Result<Self> {
        let count = [index.train, index.test][part];
        if context == 0 || count.tokens <= context as u64 {
            return Err(DataError::Value {
                path: folder.to_path_buf(),
                place: Place::File,
                what: "length",
                found: format!(
                    "{} tokens {}",
                    count.tokens,
                    ["to train on", "that are held back"][part]
                ),
                expected: format!("at least {}, those of a window", context.saturating_add(1)).into(),
            });
        }
        let length = usize::try_from(count.tokens).map_err(|_| DataError::OutOfMemory {
            what: "the numbers of tokens",
            bytes: count.tokens,
        })?;
        Ok(TextWindows {
            path: folder.to_path_buf(),
            tokens: tokens.clone(),
            ids: Source::File(Arc::new(TokenFile::open(folder, index, part)?)),
            range: 0..length,
            context,
            shape: Shape::new(&[context.saturating_add(1)])?,
            characters: usize::try_from(count.characters).unwrap_or(usize::MAX),
            characters_per_token: count.characters as f64 / count.tokens as f64,
        })
    }

    /// The windows of a part of the ids, which are those of `text` where tokens are no characters.
    pub(super) fn new(
        path: &Path,
        tokens: &Arc<Tokens>,
        ids: &Arc<Ids>,
        range: Range<usize>,
        context: usize,
        text: &str,
    ) -> Result<Self> {
        let (characters, characters_per_token) = match &**tokens {
            Tokens::Characters(_) => (range.len(), 1.0),
            Tokens::Tokenizer(_) => {
                let characters = text.chars().count();
                (characters, characters as f64 / range.len().max(1) as f64)
            }
        };
        Ok(TextWindows {
            path: path.to_path_buf(),
            tokens: tokens.clone(),
            ids: Source::Memory(ids.clone()),
            range,
            context,
            shape: Shape::new(&[context.saturating_add(1)])?,
            characters,
            characters_per_token,
        })
    }

    /// The number of characters in this part of the text.
    pub fn characters(&self) -> usize {
        self.characters
    }

    /// The number of tokens in this part of the text.
    pub fn tokens_of_part(&self) -> usize {
        self.range.len()
    }
}

impl Dataset for TextWindows {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.range.len().saturating_sub(1) / self.context
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let mut ids = vec![0; self.context + 1];
        self.ids.read(self.range.start + index * self.context, &mut ids)?;
        // Exact in f32: a vocabulary has fewer than 2²⁴ tokens.
        sample.fill(self.shape, ids.iter().map(|&id| id as f32))?;
        sample.label = 0;
        sample.targets.clear();
        if let Some(of) = self.tokens.tokenizer()
            && let Some(special) = of.special()
        {
            let begins = ids.iter().map(|&id| f32::from(of.begins(id)));
            sample
                .targets
                .extend([special.mask, special.cls, special.sep].map(|id| id as f32));
            sample.targets.extend(begins);
        }
        Ok(())
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        None
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.path)
    }
    fn tokens(&self) -> Option<&Tokens> {
        Some(&self.tokens)
    }
    fn characters_per_token(&self) -> Option<f64> {
        Some(self.characters_per_token)
    }
}
