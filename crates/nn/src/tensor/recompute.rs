//! Results of ops that are computed again in place of being kept.

use super::Node;
use crate::Tensor;
use crate::autograd::no_grad;
use kiln_core::{Backend, Error, Result};
use std::sync::Arc;

impl<B: Backend> Node<B> {
    /// The node that can compute the output [again](Rule::recompute), up to its shape: this one or one before it.
    pub(crate) fn recomputed_by(self: &Arc<Self>) -> Option<Arc<Self>> {
        let saved = self.saved(true)?;
        if saved.rule.keeps_elements() {
            return saved.inputs.first()?.as_ref()?.recomputed_by();
        }
        saved.rule.recompute().is_some().then(|| self.clone())
    }

    /// The output again, untracked.
    pub(crate) fn recompute(self: &Arc<Self>) -> Result<Tensor<B>> {
        let freed = || Error::GraphFreed { op: self.op() };
        let saved = self.saved(true).ok_or_else(freed)?;
        let recompute = saved.rule.recompute().ok_or_else(freed)?;
        Ok(no_grad(recompute)?.detach())
    }
}
