//! Accuracy: the share of samples whose label has the highest score, or is among the k highest.

use super::Metric;
use crate::Output;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, State, Tensor};

/// The share of samples whose label has the highest score; of equal scores, that of the lowest class counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accuracy;

impl Accuracy {
    /// Creates the metric, named `accuracy`.
    pub fn new() -> Self {
        Accuracy
    }
}

/// Labels that are not one for each vector of scores.
fn differ<B: Backend>(labels: &Indices<B>, scored: &Indices<B>) -> Error {
    Error::ShapeMismatch {
        op: "accuracy",
        lhs: *labels.shape(),
        rhs: *scored.shape(),
    }
}

/// The part of its sample that a label is; where a sample has several, such as one per token, each counts as a part of it.
fn share_of_label<B: Backend>(labels: &Indices<B>) -> f64 {
    let each: usize = labels.shape().get(1..).unwrap_or_default().iter().product();
    1.0 / each.max(1) as f64
}

/// The number of hits, in samples.
fn per_sample<B: Backend>(hits: &Indices<B>, labels: &Indices<B>) -> Result<Tensor<B>> {
    let hits = hits.to_float(DType::F32)?.sum(&[], false)?;
    match share_of_label(labels) {
        1.0 => Ok(hits),
        share => hits.mul_scalar(share),
    }
}

fn share(hits: &[f64], samples: u64) -> f64 {
    hits.first().map_or(f64::NAN, |h| h / samples as f64)
}

impl<B: Backend> Metric<B> for Accuracy {
    fn name(&self) -> String {
        "accuracy".to_string()
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let labels = output.integers("labels")?;
        let predicted = output.floats("scores")?.argmax(-1, false)?;
        if predicted.shape() != labels.shape() {
            return Err(differ(labels, &predicted));
        }
        per_sample(&predicted.eq(labels)?, labels)
    }

    fn add_to(&self, output: &Output<B>, sum: &State<B>) -> Result<()> {
        let labels = output.integers("labels")?;
        output
            .floats("scores")?
            .add_correct(labels, share_of_label(labels), sum)
    }

    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        share(sum, samples)
    }
}

/// The share of samples whose label is among the `k` highest scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopK {
    k: usize,
}

impl TopK {
    /// Creates the metric, named `top{k}`. With `k` larger than the number of classes every sample counts.
    pub fn new(k: usize) -> Self {
        TopK { k }
    }
}

impl<B: Backend> Metric<B> for TopK {
    fn name(&self) -> String {
        format!("top{}", self.k)
    }

    fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
        let (scores, labels) = (output.floats("scores")?, output.integers("labels")?);
        let classes = scores.shape().last().copied().unwrap_or(0);
        let (_, top) = scores.top_k(self.k.min(classes), -1, true)?;
        let (rows, each) = top.shape().split_at(scores.rank().saturating_sub(1));
        if rows != &labels.shape()[..] {
            return Err(differ(labels, &top));
        }
        let labels_of_each = labels.reshape(&[rows, &vec![1; each.len()]].concat()[..])?;
        per_sample(&top.eq(&labels_of_each)?, labels)
    }

    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        share(sum, samples)
    }
}
