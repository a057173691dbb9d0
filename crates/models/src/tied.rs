//! The head of a language model that shares its matrix with the embedding.

use kiln_core::{Backend, Result};
use kiln_nn::{Activation, Layer, Module, Param, Shape, Tensor};

/// Logits by the table of an embedding, made anew for each forward pass: `x·Eᵀ`, `[…, width]` to `[…, tokens]`, with a bias if there is
/// one. A table that is used twice is one parameter (Press and Wolf 2017).
#[derive(Module)]
#[module(kind = "TiedHead")]
pub(crate) struct TiedHead<B: Backend> {
    #[module(skip)]
    table: Tensor<B>,
    #[module(skip)]
    bias: Option<Tensor<B>>,
}

impl<B: Backend> TiedHead<B> {
    /// The head of an embedding's table `[tokens, width]` and a bias `[tokens]`.
    pub(crate) fn new(table: &Param<B>, bias: Option<&Param<B>>) -> Self {
        TiedHead {
            table: table.tensor().clone(),
            bias: bias.map(|bias| bias.tensor().clone()),
        }
    }
}

impl<B: Backend> Layer<B> for TiedHead<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.linear(&self.table, self.bias.as_ref(), Activation::None)
    }

    /// The product of every vector with the table.
    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        2 * input.size() as u64 * self.table.shape()[0] as u64
    }
}
