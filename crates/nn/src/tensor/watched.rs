//! Tensors under a watch of ops.

use super::{NodeId, Tensor};
use crate::autograd::no_grad;
use crate::watch::{self, AnyTensor};
use kiln_core::{Backend, DType, Result, Shape};

impl<B: Backend> AnyTensor for Tensor<B> {
    fn shape(&self) -> &Shape {
        Tensor::shape(self)
    }

    fn dtype(&self) -> DType {
        Tensor::dtype(self)
    }

    fn to_f64(&self) -> Result<Vec<f64>> {
        Tensor::to_f64(self)
    }

    fn largest(&self) -> Result<f64> {
        if self.size() == 0 {
            return Ok(0.0);
        }
        no_grad(|| self.detach().abs()?.max(&[], false)?.item())
    }
}

impl NodeId {
    /// The number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl<B: Backend> Tensor<B> {
    /// Tells the watch of this thread an op with the result `self`, which becomes what the watch gives in its place.
    #[cold]
    #[compiled_once]
    pub(super) fn watched(self, op: &'static str, inputs: &[&Tensor<B>]) -> Tensor<B> {
        let inputs: Vec<&dyn AnyTensor> = inputs.iter().map(|&t| t as _).collect();
        let given = watch::tell(op, &inputs, &self);
        self.replaced(given)
    }

    /// As [`watched`](Tensor::watched), for `self` as a gradient of an op's input, computed from the gradient of its output.
    pub(crate) fn watched_gradient(self, of: (&'static str, NodeId), inputs: &[&Tensor<B>]) -> Tensor<B> {
        let inputs: Vec<&dyn AnyTensor> = inputs.iter().map(|&t| t as _).collect();
        let given = watch::tell_gradient((of.0, of.1.number()), &inputs, &self);
        self.replaced(given)
    }

    fn replaced(self, given: Option<Vec<f64>>) -> Tensor<B> {
        let made = given.map(|values| Tensor::from_f64(self.backend(), &values, Tensor::shape(&self), self.dtype()));
        match made {
            Some(Ok(other)) => Tensor {
                node: self.node.clone(),
                ..other
            },
            _ => self,
        }
    }
}
