//! The fully connected layer.

use super::Layer;
use crate::{Backend, Error, Init, Module, Param, Result, Shape, Tensor};
use kiln_core::ops::{Activation, MatmulParams};
use std::marker::PhantomData;

/// `y = f(x·Wᵀ + b)` over the last dimension (`torch.nn.Linear`, fused with an activation if one is set).
///
/// Input `[…, in]`, output `[…, out]`; `weight` is `[out, in]`, `bias` is `[out]`.
#[derive(Debug, Module)]
pub struct Linear<B: Backend> {
    /// The matrix `[out, in]`.
    pub weight: Param<B>,
    /// The bias `[out]`.
    pub bias: Option<Param<B>>,
    activation: Activation,
}

/// The options of a [`Linear`].
#[derive(Clone, Copy, Debug)]
pub struct LinearBuilder<B> {
    inputs: usize,
    outputs: usize,
    bias: bool,
    activation: Activation,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> Linear<B> {
    /// A layer from `inputs` to `outputs` features, with a bias.
    ///
    /// # Errors
    /// No inputs or no outputs, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize) -> Result<Self> {
        Self::builder(inputs, outputs).build(init)
    }

    /// A layer with options.
    pub fn builder(inputs: usize, outputs: usize) -> LinearBuilder<B> {
        LinearBuilder {
            inputs,
            outputs,
            bias: true,
            activation: Activation::None,
            backend: PhantomData,
        }
    }
}

impl<B: Backend> LinearBuilder<B> {
    /// With or without a bias; with by default.
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Applies an activation to the result, in the same kernel.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// As [`Linear::new`].
    pub fn build(self, init: &mut Init<B>) -> Result<Linear<B>> {
        for (name, value) in [("inputs", self.inputs), ("outputs", self.outputs)] {
            if value == 0 {
                return Err(Error::invalid("linear", name, 0, "at least 1"));
            }
        }
        let shape = [self.outputs, self.inputs];
        Ok(Linear {
            weight: init.weight(&shape)?,
            bias: self.bias.then(|| init.bias(self.outputs, &shape)).transpose()?,
            activation: self.activation,
        })
    }
}

impl<B: Backend> Layer<B> for Linear<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.linear(&self.weight, self.bias.as_deref(), self.activation)
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let w = self.weight.shape();
        let p = Shape::new(&[input.size() / w[1], w[1]]).and_then(|x| MatmulParams::new("linear", &x, w, false, true));
        p.map_or(0, |(p, _)| p.flops())
    }
}
