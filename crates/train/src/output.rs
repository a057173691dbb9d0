//! The result of a training step for a batch.

use kiln_core::{Backend, Error, Result};
use kiln_nn::{Indices, Tensor};

/// A value that a step hands out for metrics.
#[derive(Clone, Debug)]
pub enum Value<B: Backend> {
    /// A tensor of floats.
    Floats(Tensor<B>),
    /// A tensor of integers.
    Integers(Indices<B>),
}

impl<B: Backend> From<Tensor<B>> for Value<B> {
    fn from(tensor: Tensor<B>) -> Self {
        Value::Floats(tensor)
    }
}

impl<B: Backend> From<&Tensor<B>> for Value<B> {
    fn from(tensor: &Tensor<B>) -> Self {
        Value::Floats(tensor.clone())
    }
}

impl<B: Backend> From<Indices<B>> for Value<B> {
    fn from(indices: Indices<B>) -> Self {
        Value::Integers(indices)
    }
}

impl<B: Backend> From<&Indices<B>> for Value<B> {
    fn from(indices: &Indices<B>) -> Self {
        Value::Integers(indices.clone())
    }
}

/// The loss to minimise, its parts by name, and the values that metrics are computed from.
///
/// ```
/// # use kiln_cpu::Cpu;
/// # use kiln_nn::{DType, Tensor};
/// use kiln_train::Output;
/// # let cpu = Cpu::new();
/// # let (reconstruction, kl) = (Tensor::ones(&cpu, &[], DType::F32)?, Tensor::ones(&cpu, &[], DType::F32)?);
/// # let latent = Tensor::ones(&cpu, &[4, 2], DType::F32)?;
/// let output = Output::new(reconstruction.add(&kl)?)
///     .part("reconstruction", &reconstruction)
///     .part("kl", &kl)
///     .with("latent", latent);
/// assert_eq!(output.parts[1].0, "kl");
/// assert_eq!(output.floats("latent")?.shape().dims(), [4, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Output<B: Backend> {
    /// The mean loss of the batch, a tensor of one element.
    pub loss: Tensor<B>,
    /// Tensors of one element by name, such as the terms of the loss. Their means are measured beside that of the loss.
    pub parts: Vec<(String, Tensor<B>)>,
    /// The values that metrics are computed from, by name.
    pub values: Vec<(String, Value<B>)>,
}

impl<B: Backend> Output<B> {
    /// Creates an output with nothing but a loss.
    pub fn new(loss: Tensor<B>) -> Self {
        Output {
            loss,
            parts: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Adds a part of the loss, a tensor of one element, whose mean is measured under this name.
    pub fn part(mut self, name: impl Into<String>, value: &Tensor<B>) -> Self {
        self.parts.push((name.into(), value.detach()));
        self
    }

    /// Adds a value for metrics.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value<B>>) -> Self {
        let value = match value.into() {
            Value::Floats(t) => Value::Floats(t.detach()),
            integers => integers,
        };
        self.values.push((name.into(), value));
        self
    }

    /// Adds the scores of each class `[N, classes]`, logits or probabilities, as `scores`, and the true classes `[N]` as
    /// `labels`: what accuracies are computed from.
    pub fn with_scores(self, scores: impl Into<Value<B>>, labels: &Indices<B>) -> Self {
        self.with("scores", scores).with("labels", labels)
    }

    /// Adds `predictions` and the `targets` of the same shape that they should equal, for metrics of regression.
    pub fn with_predictions(self, predictions: impl Into<Value<B>>, targets: impl Into<Value<B>>) -> Self {
        self.with("predictions", predictions).with("targets", targets)
    }

    /// The floats handed out as `name`.
    ///
    /// # Errors
    /// Nothing of that name, or integers.
    pub fn floats(&self, name: &str) -> Result<&Tensor<B>> {
        match self.get(name) {
            Some(Value::Floats(t)) => Ok(t),
            _ => Err(self.lacks(name, "a tensor of floats that the step hands out by that name")),
        }
    }

    /// The integers handed out as `name`.
    ///
    /// # Errors
    /// Nothing of that name, or floats.
    pub fn integers(&self, name: &str) -> Result<&Indices<B>> {
        match self.get(name) {
            Some(Value::Integers(i)) => Ok(i),
            _ => Err(self.lacks(name, "a tensor of integers that the step hands out by that name")),
        }
    }

    /// True if the step hands out all of these names.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name).is_some())
    }

    fn get(&self, name: &str) -> Option<&Value<B>> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    fn lacks(&self, name: &str, expected: &str) -> Error {
        Error::invalid("metric", "input", format!("`{name}`"), expected)
    }

    /// The loss and its parts as one tensor `[1 + parts]`, for reading, and their names.
    pub(crate) fn measured(&self) -> Result<Measured<B>> {
        let flat = |t: &Tensor<B>| t.detach().to_dtype(self.loss.dtype())?.reshape(&[1usize]);
        let values = match &self.parts[..] {
            [] => flat(&self.loss)?,
            parts => {
                let all = std::iter::once(&self.loss).chain(parts.iter().map(|(_, t)| t));
                let all: Vec<Tensor<B>> = all.map(flat).collect::<Result<_>>()?;
                Tensor::concat(&all.iter().collect::<Vec<_>>(), 0)?
            }
        };
        Ok(Measured {
            values,
            names: self.parts.iter().map(|(name, _)| name.clone()).collect(),
            decided: false,
        })
    }
}

impl<B: Backend> From<Tensor<B>> for Output<B> {
    fn from(loss: Tensor<B>) -> Self {
        Output::new(loss)
    }
}

/// The loss of a batch and its parts, on the device.
#[derive(Debug, Clone)]
pub(crate) struct Measured<B: Backend> {
    /// The loss, then the parts.
    pub(crate) values: Tensor<B>,
    /// The names of the parts.
    pub(crate) names: Vec<String>,
    /// True if after the parts there is what the device has decided about the step: 1 if its update was skipped, else 0.
    pub(crate) decided: bool,
}

impl<B: Backend> Measured<B> {
    /// Adds what the device has decided, `[1]`. It counts if this is the last batch of the step.
    pub(crate) fn decide(&mut self, skipped: &Tensor<B>, last: bool) -> Result<()> {
        let skipped = skipped.to_dtype(self.values.dtype())?;
        self.values = Tensor::concat(&[&self.values, &skipped], 0)?;
        self.decided = last;
        Ok(())
    }
}
