//! The facts about a network that are known before it is built.

use crate::Recipe;

/// The shape of what a network takes, without the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Images `[H, W, C]`.
    Images([usize; 3]),
    /// Sequences of that many token ids.
    Tokens(usize),
}

/// All that is known about a network before it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// One line for people.
    pub description: &'static str,
    /// The input.
    pub input: InputKind,
    /// Number of classes, of tokens for a GPT: the last dimension of the logits.
    pub classes: usize,
    /// Number of values in all parameters, for that many classes.
    pub parameters: usize,
    /// The way to train it.
    pub recipe: Recipe,
}
