//! The inputs and outputs of networks.

use kiln_data::{
    CLIPS, IMAGES, MadeUp, OBJECTS, PAIRS, QUESTIONS, ROWS, SampleKind, Shared, TAGGED, TEXTS, UTTERANCES, WINDOWS,
};

/// The input of a network: samples of a kind, of this shape without the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// The kind of samples.
    pub kind: &'static SampleKind,
    /// `[H, W, C]` of images, `[T, H, W, C]` of clips, `[T]` of windows of text and of pairs of texts, `[T, F]` of speech; of rows the numbers of a row that the network is built for where no data says
    /// otherwise.
    pub shape: &'static [usize],
    /// The sides of square images that it can be built for, with one or three channels, where the data has others than `shape`; the smallest
    /// first.
    pub sides: &'static [usize],
}

impl Input {
    /// Images `[H, W, C]`.
    pub const fn images(shape: &'static [usize; 3]) -> Self {
        Input {
            kind: &IMAGES,
            shape,
            sides: &[],
        }
    }

    /// Images `[H, W, C]`, or squares of these sides with one or three channels, which the data decides.
    pub const fn images_of(shape: &'static [usize; 3], sides: &'static [usize]) -> Self {
        Input {
            kind: &IMAGES,
            shape,
            sides,
        }
    }

    /// True if a network with this input can be built for images of this shape.
    pub fn fits(self, shape: &[usize]) -> bool {
        let one_of = |side: usize| self.sides.contains(&side);
        match *shape {
            [h, w, c] if h == w && one_of(h) && [1, 3].contains(&c) => true,
            _ => shape == self.shape,
        }
    }

    /// The shapes of images other than `shape` that a network with this input can be built for, the largest first.
    pub fn other_shapes(self) -> impl Iterator<Item = [usize; 3]> {
        let squares = self
            .sides
            .iter()
            .rev()
            .flat_map(|&side| [[side, side, 3], [side, side, 1]]);
        squares.filter(move |square| square != self.shape)
    }

    /// Images `[H, W, C]` with objects in them.
    pub const fn objects(shape: &'static [usize; 3]) -> Self {
        Input {
            kind: &OBJECTS,
            shape,
            sides: &[],
        }
    }

    /// Clips `[T, H, W, C]`.
    pub const fn clips(shape: &'static [usize; 4]) -> Self {
        Input {
            kind: &CLIPS,
            shape,
            sides: &[],
        }
    }

    /// Windows of this many tokens, as i32 numbers.
    pub const fn tokens(length: &'static [usize; 1]) -> Self {
        Input {
            kind: &WINDOWS,
            shape: length,
            sides: &[],
        }
    }

    /// Texts of at most this many tokens, as i32 numbers.
    pub const fn texts(length: &'static [usize; 1]) -> Self {
        Input {
            kind: &TEXTS,
            shape: length,
            sides: &[],
        }
    }

    /// Pairs of texts of at most this many tokens each.
    pub const fn pairs(length: &'static [usize; 1]) -> Self {
        Input {
            kind: &PAIRS,
            shape: length,
            sides: &[],
        }
    }

    /// Sentences of at most this many tokens, as i32 numbers, whose words have tags.
    pub const fn tagged(length: &'static [usize; 1]) -> Self {
        Input {
            kind: &TAGGED,
            shape: length,
            sides: &[],
        }
    }

    /// Questions about texts, in windows of at most this many tokens.
    pub const fn questions(length: &'static [usize; 1]) -> Self {
        Input {
            kind: &QUESTIONS,
            shape: length,
            sides: &[],
        }
    }

    /// Rows of numbers, as many as the data has.
    pub const fn rows(width: &'static [usize; 1]) -> Self {
        Input {
            kind: &ROWS,
            shape: width,
            sides: &[],
        }
    }

    /// Speech as spectrograms of so many bins, and the frames of made-up samples.
    pub const fn speech(shape: &'static [usize; 2]) -> Self {
        Input {
            kind: &UTTERANCES,
            shape,
            sides: &[],
        }
    }

    /// The word for a sample: `image`, `window`.
    pub const fn noun(self) -> &'static str {
        self.kind.noun
    }

    /// The shape `[H, W, C]`, if samples are images.
    pub fn image(self) -> Option<[usize; 3]> {
        match self.kind == &IMAGES || self.kind == &OBJECTS {
            true => self.shape.try_into().ok(),
            false => None,
        }
    }

    /// The shape `[T, H, W, C]`, if samples are clips.
    pub fn clip(self) -> Option<[usize; 4]> {
        match self.kind == &CLIPS {
            true => self.shape.try_into().ok(),
            false => None,
        }
    }

    /// Bytes of one input on a device: values of f32, or ids of i32.
    pub fn bytes(self) -> usize {
        4 * self.shape.iter().product::<usize>()
    }

    /// The sizes of raw samples that are made up: [`SampleKind::samples`] and [`SampleKind::synthetic`] take them.
    pub const fn made_up(self, count: usize, outputs: usize, seed: u64) -> MadeUp<'static> {
        MadeUp {
            shape: self.shape,
            outputs,
            count,
            seed,
        }
    }

    /// Raw samples that are made up, to train on.
    ///
    /// # Errors
    /// No outputs, sizes that overflow.
    pub fn samples(self, count: usize, outputs: usize, seed: u64) -> kiln_data::Result<Shared> {
        (self.kind.samples)(&self.made_up(count, outputs, seed))
    }
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&(self.kind.describe)(self.shape))
    }
}

/// The sizes that a network is built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetSizes {
    /// The numbers of a row, for networks of rows.
    pub(crate) features: usize,
    /// The tokens that a text consists of, for networks of texts with classes.
    pub(crate) vocabulary: Option<usize>,
    /// The shape `[H, W, C]` of images; zeros for networks of something else.
    pub(crate) image: [usize; 3],
    /// The last dimension of the output.
    pub(crate) outputs: usize,
}

/// The output of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Logits of this many classes.
    Classes(usize),
    /// Logits of the next of this many characters; a network for a text has as many as the text has, or its tokenizer.
    Characters(usize),
    /// Logits of this many tokens, or of as many as the data has if these are more. The characters of a text are tokens until a text
    /// is read by another vocabulary.
    Tokens(usize),
    /// Logits of this many tokens, or of exactly as many as the data has.
    Vocabulary(usize),
    /// Logits of this many letters with a blank, at each step of an utterance; a network for other letters has as many as the data.
    Letters(usize),
    /// Logits of this many tokens, or of exactly as many as the data has, and two more for the beginning and the end, at each token of a text
    /// that is written for another.
    Translation(usize),
    /// Logits of this many tags for each token of a sentence; a network for other tags has as many as the data.
    Tags(usize),
    /// Logits of the first and of the last token of an answer, for each token of a question and a text.
    Spans,
    /// Boxes of objects of this many classes; a network for other classes has as many as the data.
    Boxes(usize),
    /// Images like its inputs.
    Images,
    /// This many numbers.
    Numbers(usize),
}

impl OutputKind {
    /// The last dimension of the output: classes, characters or numbers; `None` for images.
    pub const fn size(self) -> Option<usize> {
        match self {
            OutputKind::Classes(n)
            | OutputKind::Characters(n)
            | OutputKind::Tokens(n)
            | OutputKind::Vocabulary(n)
            | OutputKind::Letters(n)
            | OutputKind::Translation(n)
            | OutputKind::Tags(n)
            | OutputKind::Boxes(n)
            | OutputKind::Numbers(n) => Some(n),
            OutputKind::Spans => Some(2),
            OutputKind::Images => None,
        }
    }

    /// The number of classes; `None` for other outputs.
    pub const fn classes(self) -> Option<usize> {
        match self {
            OutputKind::Classes(n) => Some(n),
            _ => None,
        }
    }
}

impl std::fmt::Display for OutputKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OutputKind::Classes(n) => write!(f, "{n} classes"),
            OutputKind::Characters(n) => write!(f, "{n} characters, or the tokens of the text"),
            OutputKind::Tokens(n) => write!(f, "{n} tokens"),
            OutputKind::Vocabulary(n) => write!(f, "{n} tokens, or those of the text"),
            OutputKind::Letters(n) => write!(f, "{n} letters with a blank, or those of the data"),
            OutputKind::Translation(n) => write!(f, "texts of {n} tokens, or of those of the data"),
            OutputKind::Tags(n) => write!(f, "{n} tags of words, or those of the data"),
            OutputKind::Boxes(n) => write!(f, "boxes of {n} classes, or those of the data"),
            OutputKind::Spans => f.write_str("answers that are spans of the texts"),
            OutputKind::Images => f.write_str("images like them"),
            OutputKind::Numbers(1) => f.write_str("a number"),
            OutputKind::Numbers(n) => write!(f, "{n} numbers"),
        }
    }
}
