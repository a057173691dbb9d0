//! Texts as tokens between `[CLS]` and `[SEP]`, with what is to be said about each: the samples of networks such as BERT.

use crate::dataset::check_index;
use crate::{DataError, Dataset, Result, Sample, TokenizerChoice, Tokens};
use kiln_core::Shape;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of tokens of texts that are made up.
pub(super) const MADE_UP: usize = 1000;

/// The tokens of a tokenizer that is learned where no other is asked for.
pub(super) const LEARNED: TokenizerChoice = TokenizerChoice::WordPiece(4000);

/// The largest number of tokens of a text, by the shape `[T]` of a network's input.
pub(super) fn most_of(shape: &[usize]) -> Result<usize> {
    match *shape {
        [most] => Ok(most),
        _ => Err(DataError::shape("texts", format!("{shape:?}"), "texts [T]")),
    }
}

/// A text.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// Its tokens, with those around it.
    pub(super) ids: Vec<i32>,
    /// Its class.
    pub(super) label: i32,
    /// Labels of its tokens, in place of a class of the whole text.
    pub(super) targets: Vec<f32>,
}

impl Encoded {
    /// Makes a sample of it: the tokens, and −1 behind the end.
    pub(super) fn fill(&self, shape: Shape, sample: &mut Sample) -> Result<()> {
        // Exact in f32: a vocabulary has fewer than 2²⁴ tokens.
        let id = |at: usize| self.ids.get(at).map_or(-1.0, |&id| id as f32);
        sample.fill(shape, (0..shape.size()).map(id))?;
        sample.label = self.label;
        sample.targets.clone_from(&self.targets);
        Ok(())
    }
}

/// Texts of a file, or made-up ones.
#[derive(Debug)]
pub(super) struct EncodedTexts {
    /// The file; `None` for texts that are made up, like their tokens.
    pub(super) path: Option<PathBuf>,
    pub(super) tokens: Option<Arc<Tokens>>,
    /// The names of the classes.
    pub(super) names: Arc<[String]>,
    pub(super) shape: Shape,
    pub(super) texts: Vec<Encoded>,
    pub(super) characters_per_token: f64,
}

impl Dataset for EncodedTexts {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.texts.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        self.texts[index].fill(self.shape, sample)
    }
    fn shape(&self) -> Option<Shape> {
        Some(self.shape)
    }
    fn classes(&self) -> Option<usize> {
        Some(self.names.len())
    }
    fn class_names(&self) -> &[String] {
        &self.names
    }
    fn source(&self) -> Option<&Path> {
        self.path.as_deref()
    }
    fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_deref()
    }
    fn characters_per_token(&self) -> Option<f64> {
        self.tokens.as_ref().map(|_| self.characters_per_token)
    }
}
