//! Samples of one shape, each with a class or with regression targets.

use crate::Batch;
use ndarray::{Array1, Array2, ArrayD};

/// A batch of inputs of one shape, each with a class or with regression targets.
#[derive(Batch, Clone, Debug, Default, PartialEq)]
pub struct Labelled {
    /// The inputs `[N, …]` in f32; images `[N, H, W, C]`.
    pub inputs: ArrayD<f32>,
    /// The class of each sample, `[N]` in i32.
    pub labels: Array1<i32>,
    /// Regression targets `[N, width]` in f32; `None` for classification.
    pub targets: Option<Array2<f32>>,
}
