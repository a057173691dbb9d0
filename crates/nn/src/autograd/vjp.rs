//! Differentiation of a closure inside of a rule: it gives fused ops gradients of gradients, and lets composed ops drop their
//! intermediate results and compute them again for the gradient.

use super::autocast::{autocast_dtype, with_compute};
use super::backward::run;
use super::mode::{is_grad_enabled, no_grad, with_grad};
use crate::tensor::{Node, NodeId, Rule, RuleContext};
use crate::watch;
use crate::{DType, Error, Tensor};
use kiln_core::{Backend, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// The op of [`checkpoint`].
const CHECKPOINT: &str = "checkpoint";

/// The rule of the identity, which marks where the closure's graph begins.
struct Begin;

impl<B: Backend> Rule<B> for Begin {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.clone())])
    }
}

/// The same tensor, where a closure's graph begins.
pub(super) fn begin<B: Backend>(t: &Tensor<B>) -> Tensor<B> {
    match t.node() {
        Some(node) => t.with(
            *t.shape(),
            Some(Node::new(("begin", 0), Box::new(Begin), vec![Some(node.clone())], t)),
        ),
        None => t.clone(),
    }
}

/// The gradients of `f(inputs)` with respect to `inputs`, weighted by `grad`: `None` for untracked inputs.
///
/// A rule with a fused backward kernel calls this with the op's composed definition when gradients are being recorded
/// (`is_grad_enabled()` inside a rule means `create_graph`): the results are then tracked functions of `inputs` and
/// `grad`.
///
/// ```
/// # use kiln_nn::Tensor;
/// # use kiln_nn::autograd::vjp;
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?.requires_grad();
/// let grad = Tensor::from_slice(&cpu, &[10f32, 100.0], &[2])?;
/// let dx = vjp(&[&x], &grad, |inputs| inputs[0].square())?.remove(0).unwrap();
/// assert_eq!(dx.to_vec::<f32>()?, [20.0, 400.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Whatever `f` or its rules return.
pub fn vjp<B: Backend>(
    inputs: &[&Tensor<B>],
    grad: &Tensor<B>,
    f: impl FnOnce(&[Tensor<B>]) -> Result<Tensor<B>>,
) -> Result<Vec<Option<Tensor<B>>>> {
    begun(inputs, grad, f, |_, _| Ok(()), false)
}

/// As [`vjp`], with a `check` of the output and the ids of the inputs. A watch is told of the gradients of `f`'s ops if `told`.
fn begun<B: Backend>(
    inputs: &[&Tensor<B>],
    grad: &Tensor<B>,
    f: impl FnOnce(&[Tensor<B>]) -> Result<Tensor<B>>,
    check: impl FnOnce(&Tensor<B>, &HashSet<NodeId>) -> Result<()>,
    told: bool,
) -> Result<Vec<Option<Tensor<B>>>> {
    let create_graph = is_grad_enabled();
    let marked: Vec<Tensor<B>> = inputs.iter().map(|t| begin(t)).collect();
    let output = with_grad(true, || f(&marked))?;
    if !output.is_tracked() {
        return Ok(vec![None; inputs.len()]);
    }
    let targets: HashSet<_> = marked.iter().filter_map(Tensor::id).collect();
    check(&output, &targets)?;
    let seeds = [(output, grad.clone())];
    let found = watch::inside(told, || run(&seeds, Some(&targets), true, create_graph))?;
    Ok(marked
        .iter()
        .map(|t| t.id().and_then(|id| found.get(&id).cloned()))
        .collect())
}

/// `f(inputs)`, recorded with its inputs alone: the backward pass computes `f` again, so that nothing that `f` computes on its way
/// is kept (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; `torch.utils.checkpoint`). All tracked tensors that
/// `f` reads must be among the inputs; random numbers that it draws must be the same both times.
///
/// ```
/// use kiln_nn::{DType, Tensor, autograd::checkpoint};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::ones(&cpu, &[4, 4], DType::F32)?.requires_grad();
/// let y = checkpoint(&[&x], |t| t[0].matmul(&t[0])?.tanh()?.matmul(&t[0]))?;
/// assert!(y.sum(&[], false)?.backward()?.get(&x).is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `f`. In the backward pass, [`Error::InvalidArgument`] for an `f` that reads a tracked tensor that is not among its
/// inputs: its gradient would be lost.
pub fn checkpoint<B: Backend>(
    inputs: &[&Tensor<B>],
    f: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
) -> Result<Tensor<B>> {
    checkpoint_as(CHECKPOINT, inputs, f)
}

/// The error for an output that depends on a leaf other than through the inputs.
pub(super) fn closed<B: Backend>(op: &'static str, output: &Tensor<B>, inputs: &HashSet<NodeId>) -> Result<()> {
    let mut nodes: Vec<Arc<Node<B>>> = output.node().cloned().into_iter().collect();
    let mut seen = inputs.clone();
    while let Some(node) = nodes.pop() {
        if !seen.insert(node.id()) {
            continue;
        }
        if node.is_leaf() {
            let expected = "a closure whose tracked tensors are all among its inputs";
            return Err(Error::invalid(
                op,
                "f",
                "one that reads another tracked tensor",
                expected,
            ));
        }
        if let Some(saved) = node.saved(true) {
            nodes.extend(saved.inputs.iter().flatten().cloned());
        }
    }
    Ok(())
}

/// As [`checkpoint`], as the op of this name.
pub(crate) fn checkpoint_as<B: Backend>(
    op: &'static str,
    inputs: &[&Tensor<B>],
    f: impl Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
) -> Result<Tensor<B>> {
    let inputs: Vec<Tensor<B>> = inputs.iter().map(|&t| t.clone()).collect();
    let y = no_grad(|| f(&inputs))?.detach();
    let tracked: Vec<&Tensor<B>> = inputs.iter().collect();
    Ok(y.record(op, &tracked, || Checkpoint {
        op,
        inputs: inputs.clone(),
        compute: autocast_dtype(),
        f,
    }))
}

struct Checkpoint<B: Backend, F> {
    op: &'static str,
    inputs: Vec<Tensor<B>>,
    /// The precision of the forward pass.
    compute: Option<DType>,
    f: F,
}

impl<B: Backend, F> Rule<B> for Checkpoint<B, F>
where
    F: Fn(&[Tensor<B>]) -> Result<Tensor<B>> + Send + Sync + 'static,
{
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let inputs: Vec<&Tensor<B>> = self.inputs.iter().collect();
        let f = |x: &[Tensor<B>]| with_compute(self.compute, || (self.f)(x));
        // The ops of a closure of the caller's own are layers of the model; those of a fused op are its own affair.
        let told = self.op == CHECKPOINT;
        begun(&inputs, cx.grad, f, |y, known| closed(self.op, y, known), told)
    }
}
