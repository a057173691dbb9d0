//! A row of the table of datasets.

use super::facts::Facts;
use super::kinds::SampleKind;
use super::opened::{Opened, Shared};
use crate::{BadRecords, Result, Sample, TokenizerChoice};
use std::path::Path;

/// The files of a dataset, and the network that they are for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The file or folder; `None` for data that ships with this crate.
    pub path: Option<&'a Path>,
    /// The shape of the network's input: `[H, W, C]` of images, `[T, H, W, C]` of clips, `[T]` of windows of text, `[T, F]` of speech. Rows have as many numbers as the file.
    pub shape: &'a [usize],
    /// The sides of squares, with one or three channels, that the network can be built for too: images of files are scaled to the largest of
    /// them that the first one covers, and not to `shape`.
    pub sides: &'a [usize],
    /// True if images of files of several sizes keep theirs, and the network's transform crops and scales them; otherwise they are scaled to its
    /// input.
    pub own_size: bool,
    /// The column to predict, of a table.
    pub target: Option<&'a str>,
    /// The tokens that texts are to be cut into: characters if it is `None`. For a trained network with a tokenizer it is the file of
    /// that.
    pub tokenizer: Option<&'a TokenizerChoice>,
    /// The policy for bad records.
    pub bad: BadRecords,
    /// Facts about the data that the network was trained on; `None` before that.
    pub facts: Option<&'a Facts>,
}

/// The options for single files that a network is asked about.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions<'a> {
    /// The shape of the network's input.
    pub shape: &'a [usize],
    /// True if an image keeps its size, and the network's transform crops and scales it.
    pub own_size: bool,
    /// Facts about the data that the network was trained on.
    pub facts: &'a Facts,
    /// The `tokenizer.json` of the network, of networks of texts.
    pub tokenizer: Option<&'a Path>,
    /// True to invert images of digits, false not to; `None` inverts those with a light border.
    pub invert: Option<bool>,
}

/// Reads a single file as raw samples without labels.
pub type ReadFile = fn(&Path, &FileOptions<'_>) -> Result<Vec<Sample>>;

/// Facts about a dataset, and how it is read. A dataset of the table is a file with one.
#[derive(Debug)]
pub struct DatasetCard {
    /// The name in sentences: `CIFAR-10`.
    pub title: &'static str,
    /// A description in one line.
    pub description: &'static str,
    /// The name of its files before their path: `MNIST files of`.
    pub files: &'static str,
    /// The name of the data that ships with this crate; `None` if none does.
    pub ships: Option<&'static str>,
    /// How to get the data, as an imperative: `download …`.
    pub obtain: &'static str,
    /// A file or folder that a user could have: `cifar-10-batches-bin`.
    pub example: &'static str,
    /// The kind of its samples.
    pub samples: &'static SampleKind,
    /// The shape of its samples, where they all have the same: networks of other inputs do not take them.
    pub shape: Option<&'static [usize]>,
    /// The names of its classes, where they are known without its files.
    pub classes: &'static [&'static str],
    /// True if every sample has a class, so that networks can learn to tell classes apart.
    pub has_classes: bool,
    /// True if the column to predict has to be named.
    pub has_target: bool,
    /// The facts without which no network for it can be built.
    pub facts: &'static [&'static str],
    /// True if the file or folder looks like this dataset; only names are looked at.
    pub recognises: fn(&Path) -> bool,
    /// Reads all of it.
    pub open: fn(&Request<'_>) -> Result<Opened>,
    /// Reads the samples that are held back; the files of the others need not exist, where they are others.
    pub held_back: fn(&Request<'_>) -> Result<Shared>,
    /// Reads a single file as raw samples without labels, for a trained network; `None` if a network is not asked about files of this
    /// dataset, or about more than a file, such as a question about a text.
    pub file: Option<ReadFile>,
}
