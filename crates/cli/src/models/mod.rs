//! The built-in models, generic over the backend.

mod lenet;
mod mnist_cnn;

pub(crate) use lenet::Lenet;
pub(crate) use mnist_cnn::MnistCnn;

use crate::args::OptimizerName;
use clap::ValueEnum;
use kiln_core::{Backend, Result};
use kiln_nn::{Init, Layer};

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
    use kiln_core::DType;
    use kiln_cpu::Cpu;
    use kiln_nn::optim::{Adam, Optimizer, Sgd};
    use kiln_nn::{Indices, Module, Tensor};

    /// One step of every model: a parameter that no gradient reaches is named here, not found months later.
    #[test]
    fn one_step_reaches_every_parameter() {
        let cpu = Cpu::new();
        for name in ModelName::value_variants() {
            let spec = name.spec();
            let [h, w, c] = spec.input;
            let mut model = name.build(&cpu, 0).unwrap();
            assert_eq!(model.num_trainable(), model.num_parameters(), "{name}");
            let images = Tensor::rand(&cpu, &[16, h, w, c], DType::F32, 7, 0).unwrap();
            let classes: Vec<i32> = (0..16).map(|i| i % spec.classes as i32).collect();
            let labels = Indices::from_slice(&cpu, &classes, &[16]).unwrap();
            let loss = model.forward(&images).unwrap().cross_entropy(&labels).unwrap();
            let grads = loss.backward().unwrap();

            let parameters = model.named_parameters();
            let mut before = Vec::new();
            let mut reached = 0;
            for (path, parameter) in &parameters {
                let grad = grads.get(parameter.tensor());
                let grad = grad.unwrap_or_else(|| panic!("{name}: no gradient for {path}"));
                assert_eq!(grad.shape(), parameter.tensor().shape(), "{name}: {path}");
                let grad = grad.to_f64().unwrap();
                assert!(grad.iter().all(|g| g.is_finite()), "{name}: gradient of {path}");
                reached += usize::from(grad.iter().any(|&g| g != 0.0));
                before.push(parameter.tensor().to_f64().unwrap());
            }
            assert!(
                100 * reached >= 99 * parameters.len(),
                "{name}: {reached} of {} parameters have a gradient that is not zero",
                parameters.len()
            );

            let mut optimizer: Box<dyn Optimizer<Cpu>> = match spec.optimizer {
                OptimizerName::Adam => Box::new(Adam::new(spec.lr)),
                _ => Box::new(Sgd::new(spec.lr).momentum(spec.momentum)),
            };
            optimizer.step(&mut *model, &grads).unwrap();
            for ((path, parameter), before) in model.named_parameters().iter().zip(&before) {
                let after = parameter.tensor().to_f64().unwrap();
                assert!(after.iter().all(|v| v.is_finite()), "{name}: {path}");
                assert_ne!(&after, before, "{name}: {path} did not change");
            }
        }
    }
}
