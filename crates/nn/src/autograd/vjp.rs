//! Differentiation of a closure inside of a rule: it gives fused ops gradients of gradients, and lets composed ops drop their
//! intermediate results and compute them again for the gradient.

use super::backward::run;
use super::mode::{is_grad_enabled, no_grad, with_grad};
use crate::Tensor;
use crate::tensor::{Node, Rule, RuleContext};
use kiln_core::{Backend, Result};
use std::collections::HashSet;

/// The rule of the identity, which marks where the closure's graph begins.
struct Begin;

impl<B: Backend> Rule<B> for Begin {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.clone())])
    }
}

/// The gradients of `f(inputs)` with respect to `inputs`, weighted by `grad`: `None` for untracked inputs.
///
/// A rule with a fused backward kernel calls this with the op's composed definition when gradients are being recorded
/// (`is_grad_enabled()` inside a rule means `create_graph`): the results are then tracked functions of `inputs` and
/// `grad`.
///
/// # Errors
/// Whatever `f` or its rules return.
pub fn vjp<B: Backend>(
    inputs: &[&Tensor<B>],
    grad: &Tensor<B>,
    f: impl FnOnce(&[Tensor<B>]) -> Result<Tensor<B>>,
) -> Result<Vec<Option<Tensor<B>>>> {
    let create_graph = is_grad_enabled();
    let marked: Vec<Tensor<B>> = inputs
        .iter()
        .map(|t| match t.node() {
            Some(node) => t.with(
                *t.shape(),
                Some(Node::new(("begin", 0), Box::new(Begin), vec![Some(node.clone())], t)),
            ),
            None => (*t).clone(),
        })
        .collect();
    let output = with_grad(true, || f(&marked))?;
    if !output.is_tracked() {
        return Ok(vec![None; inputs.len()]);
    }
    let targets: HashSet<_> = marked.iter().filter_map(Tensor::id).collect();
    let found = run(&[(output, grad.clone())], Some(&targets), true, create_graph)?;
    Ok(marked
        .iter()
        .map(|t| t.id().and_then(|id| found.get(&id).cloned()))
        .collect())
}

/// `f(inputs)`, recorded with its inputs alone: the backward pass computes `f` again (Chen et al., "Training Deep Nets
/// with Sublinear Memory Cost", 2016; `torch.utils.checkpoint`). All tracked tensors that `f` reads must be among the
/// inputs.
///
/// # Errors
/// Those of `f`.
pub(crate) fn checkpoint<B: Backend>(
    op: &'static str,
    inputs: &[&Tensor<B>],
    f: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
) -> Result<Tensor<B>> {
    let inputs: Vec<Tensor<B>> = inputs.iter().map(|&t| t.clone()).collect();
    let y = no_grad(|| f(&inputs))?;
    let tracked: Vec<&Tensor<B>> = inputs.iter().collect();
    Ok(y.record(op, &tracked, || Checkpoint {
        inputs: inputs.clone(),
        f,
    }))
}

struct Checkpoint<B: Backend, F> {
    inputs: Vec<Tensor<B>>,
    f: F,
}

impl<B: Backend, F> Rule<B> for Checkpoint<B, F>
where
    F: Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
{
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let inputs: Vec<&Tensor<B>> = self.inputs.iter().collect();
        vjp(&inputs, cx.grad, &self.f)
    }
}
