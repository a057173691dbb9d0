//! A perceptron for rows of a table.

use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, regression};
use kiln_core::ops::Activation;
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::layers::Linear;
use kiln_nn::{Init, Layer, Module, Tensor};

/// The numbers of a row where no data says otherwise.
const FEATURES: usize = 8;
/// Outputs of the hidden layers.
const HIDDEN: usize = 64;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a perceptron of two hidden layers, which predicts a column of a table from the others",
    input: Input::rows(&[FEATURES]),
    output: OutputKind::Numbers(1),
    values: regression::VALUES,
    monitor: regression::MONITOR,
    parameters: 4_801,
    recipe: Recipe {
        data: DataKind::Csv,
        epochs: 100,
        optimizer: OptimizerOptions::of(OptimizerKind::AdamW),
        ..Recipe::CLASSES
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<regression::Task<B>> {
    Ok(regression::task(Perceptron::new(init, sizes.features, sizes.outputs)?))
}

/// Two hidden layers of 64 outputs with a ReLU, and a dense layer: rows `[N, features]` to numbers `[N, outputs]`. PyTorch's initial
/// weights.
#[derive(Clone, Debug, Module)]
pub struct Perceptron<B: Backend> {
    fc1: Linear<B>,
    fc2: Linear<B>,
    fc3: Linear<B>,
}

impl<B: Backend> Perceptron<B> {
    /// The net with the initial weights of `init`'s seed.
    ///
    /// # Errors
    /// No features or outputs, memory.
    pub fn new(mut init: Init<B>, features: usize, outputs: usize) -> Result<Self> {
        let init = &mut init;
        let relu = Activation::Relu;
        Ok(Perceptron {
            fc1: Linear::<B>::builder(features, HIDDEN).activation(relu).build(init)?,
            fc2: Linear::<B>::builder(HIDDEN, HIDDEN).activation(relu).build(init)?,
            fc3: Linear::new(init, HIDDEN, outputs)?,
        })
    }
}

impl<B: Backend> Layer<B> for Perceptron<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.fc3.forward(&self.fc2.forward(&self.fc1.forward(x)?)?)
    }
}
