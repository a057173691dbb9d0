//! The agreement of two successive rules of the backward pass, by which the first one takes the sums that the gradient of a batch norm begins
//! with, while it writes the gradient of the norm's result.

#[cfg(doc)]
use super::Rule;
use super::{Node, NormOfInput, NormSums, Ordered, RuleContext, Saved};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::BatchNormInputs;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic;

impl<B: Backend> NormOfInput<B> {
    /// True if the backend's op can write the norm's result as well: there is a ReLU, and no residual.
    pub(crate) fn makes_result(&self) -> bool {
        self.relu && self.y.is_none()
    }

    /// The operands of the backend's op.
    pub(crate) fn inputs(&self) -> BatchNormInputs<'_, B::Buffer> {
        BatchNormInputs {
            x: self.x.buffer(),
            scale: self.scale.as_ref().map(Tensor::buffer),
            shift: self.shift.as_ref().map(Tensor::buffer),
            mean: self.mean.buffer(),
            rstd: self.rstd.buffer(),
            y: self.y.as_ref().map(Tensor::buffer),
        }
    }
}

impl<B: Backend> Ordered<B> {
    /// The sums, if the rule has taken them.
    pub(crate) fn sums(self) -> Option<NormSums<B>> {
        self.sums.into_inner()
    }
}

impl<B: Backend> Saved<B> {
    /// The input that is the result of a norm whose sums this rule can take.
    pub(crate) fn norm_to_sum(&self) -> Option<&Arc<Node<B>>> {
        self.inputs.get(self.rule.gives_norm_sums()?)?.as_ref()
    }
}

impl<B: Backend> Node<B> {
    /// The norm that made the tensor, for a rule that is to take its sums.
    pub(crate) fn norm(self: &Arc<Self>) -> Result<Option<Ordered<B>>> {
        let Some(saved) = self.saved(true) else {
            return Ok(None);
        };
        let Some(mut norm) = saved.rule.takes_norm_sums() else {
            return Ok(None);
        };
        if let Some(output) = &saved.output {
            norm.y = match output.tensor(self) {
                None if saved.rule.recompute().is_some() => Some(self.computed_again()?),
                None => return Ok(None),
                found => found,
            };
        }
        let sums = OnceCell::new();
        Ok(Some(Ordered { norm, sums }))
    }

    /// True if a term of the tensor's gradient, behind `terms` others, is the last one that ops give.
    pub(crate) fn ends_with(&self, terms: usize) -> bool {
        self.readers.load(atomic::Ordering::Relaxed) == terms + 1
    }
}

impl<B: Backend> RuleContext<'_, B> {
    /// The norm that made the input of [`Rule::gives_norm_sums`], if the rule is to take its sums. Then it gives them to
    /// [`put_norm_sums`](Self::put_norm_sums), and the gradient of that input is the one before residual and ReLU of the norm, with
    /// [`sum`](Self::sum) in it.
    pub(crate) fn norm_of_input(&self) -> Option<&NormOfInput<B>> {
        self.norm.map(|ordered| &ordered.norm)
    }

    /// Gives the sums of the norm that made the input.
    pub(crate) fn put_norm_sums(&self, sums: NormSums<B>) {
        if let Some(ordered) = self.norm {
            let first = ordered.sums.set(sums);
            debug_assert!(first.is_ok(), "a rule gives the sums of a norm once");
        }
    }

    /// The sums of this rule's norm, if the gradient is the one before its residual and ReLU.
    pub(crate) fn norm_sums(&self) -> Option<&NormSums<B>> {
        self.norm_sums
    }
}
