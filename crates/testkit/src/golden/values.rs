//! Numbers and tensors from the golden files.

use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;
use serde_json::Value;

/// The `eps` of every norm.
pub(super) const EPS: f64 = 1e-3;

pub(super) fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(number).collect()
}

/// A JSON number, or a string that names NaN or an infinity.
pub(super) fn number(v: &Value) -> f64 {
    let named = || v.as_str().and_then(|name| name.parse().ok());
    v.as_f64().or_else(named).expect("a number")
}

pub(super) fn tensor<B: Backend>(backend: &B, v: &Value, dtype: DType) -> Result<Tensor<B>> {
    Tensor::from_f64(backend, &numbers(&v["data"]), &shape(v), dtype)
}

pub(super) fn shape(v: &Value) -> Vec<usize> {
    numbers(&v["shape"]).into_iter().map(|d| d as usize).collect()
}
