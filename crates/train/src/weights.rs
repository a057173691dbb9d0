//! Saves weights, and checks that they are finite.

use crate::{Result, write_atomic};
use kiln_core::Backend;
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Entry, Module, Tensor, Walk, no_grad};
use std::path::Path;

/// The dotted name of the first parameter or buffer, in the model's order, with a value that is NaN or infinite. Only the
/// largest absolute value of each is read from the device.
pub(crate) fn first_non_finite<B: Backend, M: Module<B> + ?Sized>(model: &M) -> kiln_core::Result<Option<String>> {
    let mut tensors: Vec<(String, Tensor<B>)> = Vec::new();
    model.walk(&mut Walk::new(&mut |name, entry| match entry {
        Entry::Param(p) => tensors.push((name.to_string(), p.tensor().detach())),
        Entry::State(s) => tensors.push((name.to_string(), s.get())),
        Entry::Counter(_) | Entry::Mode(_) => {}
    }));
    for (name, tensor) in tensors {
        if tensor.size() > 0 && !no_grad(|| tensor.abs()?.max(&[], false)?.item())?.is_finite() {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Saves a model's parameters, buffers and counters as safetensors with `metadata`, atomically ([`write_atomic`]).
///
/// # Errors
/// The errors of [`write_atomic`], and an error of the device.
pub fn save_weights<B: Backend, M: Module<B> + ?Sized>(model: &M, metadata: &Metadata, path: &Path) -> Result<()> {
    Ok(write_atomic(path, &encode(&StateDict::of(model), metadata)?)?)
}
