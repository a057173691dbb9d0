//! The dtype in which metrics compute.

use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// f64 where the backend computes in it, f32 elsewhere.
pub(super) fn wide_dtype<B: Backend>(backend: &B) -> DType {
    match backend.supports_dtype(DType::F64) {
        true => DType::F64,
        false => DType::F32,
    }
}

/// The tensor in the [wide dtype](wide_dtype).
pub(super) fn wide<B: Backend>(tensor: &Tensor<B>) -> Result<Tensor<B>> {
    tensor.to_dtype(wide_dtype(tensor.backend()))
}
