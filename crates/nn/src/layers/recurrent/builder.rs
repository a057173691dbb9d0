//! The options of recurrent layers.

use super::directions::{Direction, RecurrentLayers};
use crate::init::Initializer;
use crate::layers::Dropout;
use crate::ops::RecurrentCell;
use crate::{Backend, Error, Init, Param, Result};
use std::marker::PhantomData;

/// The options of an [`Rnn`](crate::layers::Rnn), [`Lstm`](crate::layers::Lstm) or [`Gru`](crate::layers::Gru), called `L`.
///
/// See the example of [`Lstm::builder`](crate::layers::Lstm::builder).
#[derive(Clone, Copy, Debug)]
pub struct RecurrentBuilder<B, L> {
    pub(super) cell: RecurrentCell,
    inputs: usize,
    hidden: usize,
    layers: usize,
    bias: bool,
    batch_first: bool,
    dropout: f64,
    bidirectional: bool,
    pub(super) projection: usize,
    made: PhantomData<fn() -> (B, L)>,
}

impl<B: Backend, L: From<RecurrentLayers<B>>> RecurrentBuilder<B, L> {
    pub(super) fn of(cell: RecurrentCell, inputs: usize, hidden: usize) -> Self {
        RecurrentBuilder {
            cell,
            inputs,
            hidden,
            layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            projection: 0,
            made: PhantomData,
        }
    }

    /// The number of layers (`num_layers`), each of which reads the states of the one before; 1 by default.
    ///
    /// See the example of [`Lstm::builder`](crate::layers::Lstm::builder).
    pub fn layers(mut self, layers: usize) -> Self {
        self.layers = layers;
        self
    }

    /// With or without biases; with by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Gru};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// assert_eq!(Gru::builder(3, 2).bias(false).build(init)?.num_parameters(), 6 * 3 + 6 * 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// True for inputs and results `[N, T, …]`; `[T, N, …]` by default. States are the same both ways.
    ///
    /// See the example of [`Lstm::builder`](crate::layers::Lstm::builder).
    pub fn batch_first(mut self, batch_first: bool) -> Self {
        self.batch_first = batch_first;
        self
    }

    /// The probability that an element of the results of all layers but the last is zeroed in training; 0 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Gru};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let mut gru = Gru::builder(3, 8).layers(2).dropout(0.5).build(init)?;
    /// let x = Tensor::ones(&cpu, &[4, 1, 3], DType::F32)?;
    /// assert_ne!(gru.forward(&x)?.to_vec::<f32>()?, gru.forward(&x)?.to_vec::<f32>()?);
    /// gru.eval();
    /// assert_eq!(gru.forward(&x)?.to_vec::<f32>()?, gru.forward(&x)?.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dropout(mut self, p: f64) -> Self {
        self.dropout = p;
        self
    }

    /// True for a second direction, from the last step to the first, whose states follow those of the first; false by default.
    ///
    /// See the example of [`RecurrentLayers`].
    pub fn bidirectional(mut self, bidirectional: bool) -> Self {
        self.bidirectional = bidirectional;
        self
    }

    /// Makes the layers, whose parameters are all drawn from U(−1/√H, 1/√H), as in PyTorch.
    ///
    /// See the example of [`Lstm::builder`](crate::layers::Lstm::builder).
    ///
    /// # Errors
    /// Sizes of 0, a probability outside of `0..=1`, a projection that is not smaller than the state, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<L> {
        self.made(init).map(L::from)
    }

    fn made(&self, init: &mut Init<B>) -> Result<RecurrentLayers<B>> {
        let RecurrentBuilder { cell, hidden, .. } = *self;
        for (name, value) in [("inputs", self.inputs), ("hidden", hidden), ("layers", self.layers)] {
            if value == 0 {
                return Err(Error::invalid("recurrent", name, 0, "at least 1"));
            }
        }
        if self.projection >= hidden {
            let expected = format!("less than {hidden}, the size of the state");
            return Err(Error::invalid("recurrent", "proj_size", self.projection, expected));
        }
        let bound = 1.0 / (hidden as f64).sqrt();
        let drawn = Initializer::Uniform {
            low: -bound,
            high: bound,
        };
        let mut draw = |dims: &[usize]| init.tensor(dims, &drawn).map(Param::new);
        let state = if self.projection > 0 { self.projection } else { hidden };
        let count = 1 + usize::from(self.bidirectional);
        let too_large = || Error::invalid("recurrent", "hidden", hidden, "a size that fits memory");
        let rows = hidden.checked_mul(cell.gates()).ok_or_else(too_large)?;
        let mut directions = Vec::new();
        for layer in 0..self.layers {
            let inputs = if layer == 0 { self.inputs } else { state * count };
            for _ in 0..count {
                directions.push(Direction {
                    weight_ih: draw(&[rows, inputs])?,
                    weight_hh: draw(&[rows, state])?,
                    bias_ih: self.bias.then(|| draw(&[rows])).transpose()?,
                    bias_hh: self.bias.then(|| draw(&[rows])).transpose()?,
                    weight_hr: (self.projection > 0).then(|| draw(&[state, hidden])).transpose()?,
                });
            }
        }
        let dropout = Dropout::new(init, self.dropout)?;
        Ok(RecurrentLayers {
            cell,
            directions,
            bidirectional: self.bidirectional,
            batch_first: self.batch_first,
            dropout: (self.dropout > 0.0 && self.layers > 1).then_some(dropout),
        })
    }
}
