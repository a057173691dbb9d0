//! Facts about a network that are known before it is built.

use crate::Recipe;

/// The shape of a network's input, without the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Images `[H, W, C]`.
    Images([usize; 3]),
    /// Sequences of this many i32 token ids.
    Tokens(usize),
}

/// Facts about a network that are known before it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// A description in one line, as `kiln models` shows it.
    pub description: &'static str,
    /// The input.
    pub input: InputKind,
    /// Number of classes, or of tokens for a GPT: the last dimension of the logits.
    pub classes: usize,
    /// Number of values in all parameters, for this number of classes.
    pub parameters: usize,
    /// The way to train it.
    pub recipe: Recipe,
}
