//! The models that `kiln` trains on images, and how it trains them.

use crate::args::OptimizerName;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kiln_core::{Backend, Result};
use kiln_models::{Lenet, MnistCnn, Model};
use kiln_nn::{Init, Layer};

/// Reads the name of any model that ships, of those that `kiln train` does not know too.
pub(crate) fn any() -> impl TypedValueParser<Value = Model> {
    PossibleValuesParser::new(Model::ALL.map(Model::name))
        .try_map(|name| Model::from_name(&name).ok_or("no model of this name"))
}

/// The models by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelName {
    /// The convolutional net of the Keras tutorials, for 28x28 digits
    MnistCnn,
    /// The net of the PyTorch tutorial, for CIFAR-10
    Lenet,
}

/// What a model takes, and how it is trained unless told otherwise.
pub(crate) struct Spec {
    /// Shape of an input, `[H, W, C]`.
    pub(crate) input: [usize; 3],
    /// Number of classes.
    pub(crate) classes: usize,
    /// Mean and deviation that inputs in `0..=1` are normalised by.
    pub(crate) normalise: Option<(f32, f32)>,
    pub(crate) epochs: u64,
    pub(crate) batch: u32,
    pub(crate) lr: f64,
    pub(crate) optimizer: OptimizerName,
    pub(crate) momentum: f64,
    pub(crate) workers: u16,
}

impl ModelName {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ModelName::MnistCnn => "mnist-cnn",
            ModelName::Lenet => "lenet",
        }
    }

    /// What it takes.
    pub(crate) fn spec(self) -> Spec {
        match self {
            ModelName::MnistCnn => Spec {
                input: [28, 28, 1],
                classes: 10,
                normalise: None,
                epochs: 5,
                batch: 32,
                lr: 1e-3,
                optimizer: OptimizerName::Adam,
                momentum: 0.0,
                workers: 1,
            },
            ModelName::Lenet => Spec {
                input: [32, 32, 3],
                classes: 10,
                normalise: Some((0.5, 0.5)),
                epochs: 2,
                batch: 4,
                lr: 1e-3,
                optimizer: OptimizerName::Sgd,
                momentum: 0.9,
                workers: 2,
            },
        }
    }

    /// The model with the initial weights of a seed. It maps images `[N, H, W, C]` to logits `[N, classes]`.
    pub(crate) fn build<B: Backend>(self, backend: &B, seed: u64) -> Result<Box<dyn Layer<B>>> {
        let init = Init::new(backend, seed);
        Ok(match self {
            ModelName::MnistCnn => Box::new(MnistCnn::new(init)?),
            ModelName::Lenet => Box::new(Lenet::new(init)?),
        })
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_trains_is_a_model_that_ships() {
        for name in ModelName::value_variants() {
            let model = Model::from_name(name.name()).unwrap();
            assert_eq!(
                model.input(),
                kiln_models::InputKind::Images(name.spec().input),
                "{name}"
            );
            assert_eq!(model.classes(), name.spec().classes, "{name}");
        }
    }
}
