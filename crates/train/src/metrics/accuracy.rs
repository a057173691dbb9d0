//! Accuracy: how often the label has the highest score, or is among the k highest.

use super::Metric;
use super::sum::DeviceSum;
use crate::Batch;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// The share of samples whose label has the highest score; the lowest class wins a tie.
pub struct Accuracy<B: Backend> {
    right: DeviceSum<B>,
    samples: u64,
}

impl<B: Backend> Default for Accuracy<B> {
    fn default() -> Self {
        Accuracy {
            right: DeviceSum::default(),
            samples: 0,
        }
    }
}

impl<B: Backend> Accuracy<B> {
    /// Named `accuracy`.
    pub fn new() -> Self {
        Accuracy::default()
    }
}

fn share(hits: &[f64], samples: u64) -> f64 {
    hits.first().map_or(f64::NAN, |h| h / samples as f64)
}

impl<B: Backend> Metric<B> for Accuracy<B> {
    fn name(&self) -> String {
        "accuracy".to_string()
    }

    fn reset(&mut self) {
        *self = Accuracy::default();
    }

    fn update(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        let right = scores.argmax(-1, false)?.eq(&batch.labels)?;
        self.right.add(right.to_float(DType::F32)?.sum(&[], false)?)?;
        self.samples += batch.labels.size() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<f64> {
        Ok(share(&self.right.take()?, std::mem::take(&mut self.samples)))
    }
}

/// The share of samples whose label is among the `k` highest scores.
pub struct TopK<B: Backend> {
    k: usize,
    hits: DeviceSum<B>,
    samples: u64,
}

impl<B: Backend> TopK<B> {
    /// Named `top{k}`. A `k` of more than the classes counts every sample.
    pub fn new(k: usize) -> Self {
        TopK {
            k,
            hits: DeviceSum::default(),
            samples: 0,
        }
    }
}

impl<B: Backend> Metric<B> for TopK<B> {
    fn name(&self) -> String {
        format!("top{}", self.k)
    }

    fn reset(&mut self) {
        *self = TopK::new(self.k);
    }

    fn update(&mut self, scores: &Tensor<B>, batch: &Batch<B>) -> Result<()> {
        let classes = scores.shape().last().copied().unwrap_or(0);
        let (_, top) = scores.top_k(self.k.min(classes), -1, true)?;
        let hits = top.eq(&batch.labels.reshape(&[batch.labels.size(), 1])?)?;
        self.hits.add(hits.to_float(DType::F32)?.sum(&[], false)?)?;
        self.samples += batch.labels.size() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<f64> {
        Ok(share(&self.hits.take()?, std::mem::take(&mut self.samples)))
    }
}
