//! Bits per character of a language model.

use super::Metric;
use crate::Output;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// The bits that a language model spends on a character of a text: the mean cross-entropy of its tokens by the mean number of
/// characters of a token. It compares models whose tokens differ, of the same text.
///
/// It reads `nats` `[1]`, the mean cross-entropy of the tokens of a batch times the number of its samples, all of which have as many
/// tokens. It is measured where steps hand that out, as [`BitsPerCharacter::nats`] does.
///
/// ```
/// # use kiln_cpu::Cpu;
/// # use kiln_nn::Tensor;
/// use kiln_train::{BitsPerCharacter, Metric, Output};
/// # let cpu = Cpu::new();
/// // Two windows of tokens of three characters, each of which was one of eight.
/// let loss = Tensor::from_slice(&cpu, &[8f32.ln()], &[])?;
/// let output = BitsPerCharacter::nats(Output::new(loss), 2)?;
/// let mut metric = BitsPerCharacter::new(3.0);
/// let sum = Metric::<Cpu>::measure(&metric, &output)?.to_f64()?;
/// assert!((Metric::<Cpu>::value(&mut metric, &sum, 2) - 1.0).abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BitsPerCharacter {
    characters_per_token: f64,
}

impl BitsPerCharacter {
    /// Creates the metric, named `bits_per_character`, for tokens of so many characters in the mean; 1 for characters.
    pub fn new(characters_per_token: f64) -> Self {
        BitsPerCharacter { characters_per_token }
    }

    /// Hands out what the metric reads of a batch of `samples` samples whose loss is the mean cross-entropy of their tokens.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory).
    pub fn nats<B: Backend>(output: Output<B>, samples: usize) -> Result<Output<B>> {
        let nats = output.loss.detach().reshape(&[1usize])?.mul_scalar(samples as f64)?;
        Ok(output.with("nats", nats))
    }
}

impl<B: Backend> Metric<B> for BitsPerCharacter {
    fn name(&self) -> String {
        "bits_per_character".to_string()
    }

    fn reads(&self) -> &[&'static str] {
        &["nats"]
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        super::wide::wide(output.floats("nats")?)
    }

    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        match sum {
            [nats] => nats / samples as f64 / self.characters_per_token / std::f64::consts::LN_2,
            _ => f64::NAN,
        }
    }
}
