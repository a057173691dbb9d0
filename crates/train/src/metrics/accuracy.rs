//! Accuracy: the share of samples whose label has the highest score, or is among the k highest.

use super::Metric;
use crate::Batch;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// The share of samples whose label has the highest score; of equal scores, that of the lowest class counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accuracy;

impl Accuracy {
    /// Creates the metric, named `accuracy`.
    pub fn new() -> Self {
        Accuracy
    }
}

fn share(hits: &[f64], samples: u64) -> f64 {
    hits.first().map_or(f64::NAN, |h| h / samples as f64)
}

impl<B: Backend> Metric<B> for Accuracy {
    fn name(&self) -> String {
        "accuracy".to_string()
    }

    fn measure(&self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<Tensor<B>> {
        let right = scores.argmax(-1, false)?.eq(&batch.labels)?;
        right.to_float(DType::F32)?.sum(&[], false)
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

    fn measure(&self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<Tensor<B>> {
        let classes = scores.shape().last().copied().unwrap_or(0);
        let (_, top) = scores.top_k(self.k.min(classes), -1, true)?;
        let hits = top.eq(&batch.labels.reshape(&[batch.labels.size(), 1])?)?;
        hits.to_float(DType::F32)?.sum(&[], false)
    }

    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        share(sum, samples)
    }
}
