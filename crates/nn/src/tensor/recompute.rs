//! Results of ops that are computed again in place of being kept.
//!
//! A result of which another is computed, as in a chain of residual blocks, is computed first; the chain is walked in a loop. A node keeps
//! what was computed until its last reader has read it, which may be the rule of the node itself: the backward pass comes to it after all
//! others.

use super::{Again, Node, Saved};
use crate::Tensor;
use crate::autograd::no_grad;
use kiln_core::ops::RowNorm;
use kiln_core::{Backend, Error, Result};
use std::sync::{Arc, MutexGuard, PoisonError};

impl<B: Backend> Default for Again<B> {
    fn default() -> Self {
        Again {
            value: None,
            readers: 0,
            for_one: false,
        }
    }
}

/// A rule that reads the output of a node, which is computed again for it.
pub(crate) struct Reader<B: Backend>(Arc<Node<B>>);

impl<B: Backend> Reader<B> {
    pub(crate) fn new(node: Arc<Node<B>>) -> Self {
        node.again().readers += 1;
        Reader(node)
    }

    /// The reader of an output that is kept once another op reads it too.
    pub(crate) fn only(node: Arc<Node<B>>) -> Self {
        node.again().for_one = true;
        Reader::new(node)
    }

    /// The values from which the output can be computed again; `None` if that was done, or if it was kept for several readers.
    pub(crate) fn absent(&self) -> Option<Arc<Saved<B>>> {
        match self.0.again().value {
            Some(_) => None,
            None => self.0.saved(true),
        }
    }

    /// Keeps the output, which this reader has made again, for others that will read it.
    pub(crate) fn made(&self, y: Tensor<B>) {
        let mut again = self.0.again();
        if again.readers > 1 {
            again.value = Some(y);
        }
    }

    /// The output again, untracked.
    pub(crate) fn read(&self) -> Result<Tensor<B>> {
        let value = self.0.computed_again()?;
        self.0.forget_after(1);
        Ok(value)
    }
}

impl<B: Backend> Drop for Reader<B> {
    fn drop(&mut self) {
        self.0.again().readers -= 1;
        self.0.forget_after(0);
    }
}

impl<B: Backend> Node<B> {
    /// The node that can compute the output [again](super::Rule::recompute), up to its shape: this one or one before it.
    pub(crate) fn recomputed_by(self: &Arc<Self>) -> Option<Arc<Self>> {
        let saved = self.saved(true)?;
        if saved.rule.keeps_elements() {
            return saved.inputs.first()?.as_ref()?.recomputed_by();
        }
        saved.rule.recompute().is_some().then(|| self.clone())
    }

    /// Keeps the output `y` for the rule of [`Reader::only`], as another op is about to read it: of an output that is read twice no rule applies
    /// the slope, on whose way it would be made again.
    pub(super) fn keep_for_readers(&self, y: &Tensor<B>) {
        if self.leaf || !self.is_read() {
            return;
        }
        let mut again = self.again();
        if again.for_one && again.readers > 0 && again.value.is_none() {
            again.value = Some(y.detach());
        }
    }

    fn again(&self) -> MutexGuard<'_, Again<B>> {
        // The lock is held only during exchanges, so a panic cannot have left the value half-changed.
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the output no longer if this many readers are left, and the rule of this node does not read it.
    fn forget_after(&self, readers: usize) {
        let own = self.saved(true).is_some_and(|saved| saved.output.is_some());
        let mut again = self.again();
        if again.readers <= readers && !own {
            again.value = None;
        }
    }

    /// The output, if it has been computed again, which is kept no longer.
    pub(super) fn take_again(self: &Arc<Self>) -> Option<Tensor<B>> {
        let value = self.again().value.take()?;
        Some(value.with(*value.shape(), Some(self.clone())))
    }

    /// The output again, untracked, with those that it is computed from. Of these every second one is kept, if there are readers: the backward
    /// pass comes to those in between later, one at a time, and computes them from the ones that were kept.
    pub(crate) fn computed_again(self: &Arc<Self>) -> Result<Tensor<B>> {
        let (mut missing, mut found, mut next) = (Vec::new(), None, Some(self.clone()));
        while let Some(node) = next {
            if let Some(value) = node.again().value.clone() {
                found = Some(value);
                break;
            }
            let freed = || Error::GraphFreed { op: node.op() };
            let saved = node.saved(true).ok_or_else(freed)?;
            next = saved.rule.recomputed_from().cloned();
            missing.push((node, saved));
        }
        while let Some((node, saved)) = missing.pop() {
            let value = saved.computed(&node, found.as_ref())?;
            let mut again = node.again();
            if missing.len().is_multiple_of(2) && (again.readers > 0 || saved.output.is_some()) {
                again.value = Some(value.clone());
            }
            found = Some(value);
        }
        found.ok_or(Error::GraphFreed { op: self.op() })
    }
}

impl<B: Backend> Saved<B> {
    /// See [`Rule::row_norm`](super::Rule::row_norm).
    pub(crate) fn row_norm(&self) -> Option<RowNorm<'_, B::Buffer>> {
        self.rule.row_norm()
    }

    /// The output of `node`, whose rule this is, again and tracked.
    pub(super) fn recompute(&self, node: &Arc<Node<B>>) -> Result<Tensor<B>> {
        let from = self
            .rule
            .recomputed_from()
            .map(|node| node.computed_again())
            .transpose()?;
        let value = self.computed(node, from.as_ref())?;
        Ok(value.with(*value.shape(), Some(node.clone())))
    }

    fn computed(&self, node: &Node<B>, from: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let recompute = self.rule.recompute().ok_or(Error::GraphFreed { op: node.op() })?;
        Ok(no_grad(|| recompute(from))?.detach())
    }
}
