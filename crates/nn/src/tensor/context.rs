//! The arguments of a rule of the backward pass: gradients, the output, slopes of activations.

#[cfg(doc)]
use super::Rule;
use super::{RuleContext, Slope};
use crate::{Backend, Tensor};

impl<B: Backend> RuleContext<'_, B> {
    /// The op's output, tracked.
    ///
    /// # Panics
    /// When the rule's `saves_output` is false, or it has an activation whose slope is [already in the
    /// gradient](Self::slope_applied): a bug in the rule.
    pub fn output(&self) -> &Tensor<B> {
        self.output
            .as_ref()
            .unwrap_or_else(|| unreachable!("a rule that reads its output says so in saves_output"))
    }

    /// The term that is to be added to the gradient of the output, if there is one: only for a rule that
    /// [says that it does](Rule::adds_two_grads).
    pub fn more_grad(&self) -> Option<&Tensor<B>> {
        self.more
    }

    /// The gradient that the input of [`Rule::adds_to`] has from other ops, all of them or none; the gradient that the rule returns for that
    /// input has to contain it.
    pub(crate) fn sum(&self) -> Option<&Tensor<B>> {
        self.sum
    }

    /// True if the graph is freed by this backward pass, so that the rule may change what it has saved and shares with nobody.
    pub(crate) fn is_last(&self) -> bool {
        self.last
    }

    /// True if the gradient of input `i` is wanted.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # use kiln_nn::autograd::function;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let a = Tensor::full(&cpu, &[], DType::F32, 3.0)?;
    /// let b = Tensor::full(&cpu, &[], DType::F32, 4.0)?.requires_grad();
    /// let factor = a.clone();
    /// let y = function("times", &[&a, &b], || a.mul(&b), move |cx| {
    ///     assert!(!cx.needs(0) && cx.needs(1)); // only b requires a gradient
    ///     Ok(vec![None, Some(cx.grad.mul(&factor)?)])
    /// })?;
    /// assert_eq!(y.backward()?.get(&b).unwrap().item()?, 3.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn needs(&self, i: usize) -> bool {
        self.needs.get(i).copied().unwrap_or(false)
    }

    /// The slope by which the rule must multiply the gradient of the input that [`Rule::applies_slope`] names, in place of the
    /// activation's rule, which runs next.
    pub fn slope(&self) -> Option<&Slope<B>> {
        self.slopes.of_input
    }

    /// True if the gradient is already multiplied by the slope of the activation that ends the op.
    pub fn slope_applied(&self) -> bool {
        self.slopes.applied
    }
}
