//! The backward pass: from an output's gradient to those of the leaves, through the ops in reverse order of creation.

use super::Gradients;
use super::autocast::with_compute;
use super::leaf_casts::LeafCasts;
use super::mode::with_grad;
use super::sum::Sum;
use crate::Tensor;
use crate::tensor::{Node, NodeId, NormSums, Ordered, Slopes};
use crate::watch;
use kiln_core::ops::Activation;
use kiln_core::{Backend, Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The gradients of this scalar with respect to every leaf that it was computed from (`torch.Tensor.backward`). The
    /// graph is freed on the way.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?.requires_grad();
    /// let grads = x.square()?.sum(&[], false)?.backward()?;
    /// assert_eq!(grads.get(&x).unwrap().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor that is not a scalar or not tracked; a graph already freed; whatever a rule's ops return.
    pub fn backward(&self) -> Result<Gradients<B>> {
        self.check_scalar()?;
        let by_id = run(&[(self.clone(), self.full_like(1.0)?)], None, false, false)?;
        Ok(Gradients::new(by_id))
    }

    /// As [`Tensor::backward`], keeping the graph for another pass (`retain_graph=True` in PyTorch).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?.requires_grad();
    /// let y = x.square()?.sum(&[], false)?;
    /// let (first, second) = (y.backward_retain()?, y.backward()?);
    /// assert_eq!(first.get(&x).unwrap().to_f64()?, second.get(&x).unwrap().to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::backward`].
    pub fn backward_retain(&self) -> Result<Gradients<B>> {
        self.check_scalar()?;
        let by_id = run(&[(self.clone(), self.full_like(1.0)?)], None, true, false)?;
        Ok(Gradients::new(by_id))
    }

    /// As [`Tensor::backward`] for a tensor of any shape: the gradients are products of `grad`, which has this tensor's
    /// shape and dtype, with the Jacobian.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?.requires_grad();
    /// let weights = Tensor::from_slice(&cpu, &[10f32, 0.0], &[2])?;
    /// let grads = x.square()?.backward_with(&weights)?;
    /// assert_eq!(grads.get(&x).unwrap().to_vec::<f32>()?, [20.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A gradient of another shape or dtype, and as [`Tensor::backward`].
    pub fn backward_with(&self, grad: &Tensor<B>) -> Result<Gradients<B>> {
        check_seed(self, grad)?;
        let by_id = run(&[(self.clone(), grad.clone())], None, false, false)?;
        Ok(Gradients::new(by_id))
    }

    fn check_scalar(&self) -> Result<()> {
        if self.size() != 1 {
            let expected = "one element; reduce it with `mean` or `sum`, or use `backward_with`";
            return Err(Error::invalid("backward", "shape", self.shape(), expected));
        }
        check_tracked(self)
    }
}

fn check_tracked<B: Backend>(t: &Tensor<B>) -> Result<()> {
    if t.is_tracked() {
        return Ok(());
    }
    let expected = "one computed from a tensor that requires a gradient, outside of `no_grad`";
    Err(Error::invalid("backward", "tensor", "untracked", expected))
}

fn check_seed<B: Backend>(output: &Tensor<B>, grad: &Tensor<B>) -> Result<()> {
    check_tracked(output)?;
    if output.shape() != grad.shape() {
        return Err(Error::ShapeMismatch {
            op: "backward",
            lhs: *output.shape(),
            rhs: *grad.shape(),
        });
    }
    crate::tensor::same_dtype("backward", output, grad)
}

/// The gradients of `output` (weighted by `seed`; ones for a scalar when `None`) with respect to `inputs`, as
/// `torch.autograd.grad`: `None` for an input that the output does not depend on. With `create_graph` the results are
/// tracked and can be differentiated again; the graph is then kept, else it is freed.
///
/// ```
/// # use kiln_nn::{DType, Tensor};
/// # use kiln_nn::autograd::grad;
/// # let cpu = kiln_cpu::Cpu::new();
/// // The second derivative of x³.
/// let x = Tensor::full(&cpu, &[], DType::F32, 2.0)?.requires_grad();
/// let slope = grad(&x.powf(3.0)?, &[&x], None, true)?.remove(0).unwrap();
/// let bend = grad(&slope, &[&x], None, false)?.remove(0).unwrap();
/// assert!((bend.item()? - 12.0).abs() < 1e-4);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// As [`Tensor::backward`]; an untracked input.
#[compiled_once]
pub fn grad<B: Backend>(
    output: &Tensor<B>,
    inputs: &[&Tensor<B>],
    seed: Option<&Tensor<B>>,
    create_graph: bool,
) -> Result<Vec<Option<Tensor<B>>>> {
    let seed = match seed {
        Some(s) => {
            check_seed(output, s)?;
            s.clone()
        }
        None => {
            output.check_scalar()?;
            output.full_like(1.0)?
        }
    };
    let mut targets = HashSet::new();
    for input in inputs {
        check_tracked(input)?;
        targets.extend(input.id());
    }
    let found = run(&[(output.clone(), seed)], Some(&targets), create_graph, create_graph)?;
    Ok(inputs
        .iter()
        .map(|t| t.id().and_then(|id| found.get(&id).cloned()))
        .collect())
}

/// Runs a backward pass. Without `targets` it ends at every leaf; with them, it visits only ops that lead to one.
#[compiled_once]
pub(super) fn run<B: Backend>(
    seeds: &[(Tensor<B>, Tensor<B>)],
    targets: Option<&HashSet<NodeId>>,
    retain: bool,
    create_graph: bool,
) -> Result<HashMap<NodeId, Tensor<B>>> {
    let needed = match targets {
        Some(t) => Some(leading_to(seeds.iter().filter_map(|(o, _)| o.node()), t)?),
        None => None,
    };
    let wanted = |node: &Arc<Node<B>>| needed.as_ref().is_none_or(|n| n.contains(&node.id()));
    let mut nodes: BTreeMap<NodeId, Arc<Node<B>>> = BTreeMap::new();
    let mut pending: HashMap<NodeId, Sum<B>> = HashMap::new();
    let mut results = HashMap::new();
    // Ids of results of activations whose gradients in `pending` have the activation's slope, in every term added so far.
    let mut applied = HashSet::new();
    // Of norms whose gradients in `pending` are those before residual and ReLU.
    let mut norm_sums: HashMap<NodeId, NormSums<B>> = HashMap::new();
    // Only a rule needs the sum of what reaches this node, and adds two terms itself.
    let apart = |node: &Arc<Node<B>>| {
        let needed = create_graph || watch::is_on() || targets.is_some_and(|t| t.contains(&node.id()));
        !needed && node.adds_two_grads()
    };
    let mut casts = LeafCasts::default();
    let derive = || {
        for (output, seed) in seeds {
            if let Some(node) = output.node().filter(|n| wanted(n)) {
                nodes.insert(node.id(), node.clone());
                pending
                    .entry(node.id())
                    .or_default()
                    .add(seed.clone(), create_graph, false)?;
            }
        }
        while let Some((id, node)) = nodes.pop_last() {
            let Some(sum) = pending.remove(&id) else { continue };
            let added = sum.terms() > 1;
            let (mut grad, more) = sum.terms_apart()?;
            if added && watch::is_on() {
                grad = grad.watched_gradient(("add_gradients", id), &[]);
            }
            let target = targets.map_or(node.is_leaf(), |t| t.contains(&id));
            if target {
                results.insert(id, grad.clone());
            }
            // A target is an end of the pass unless it also lies on the way to another target.
            if node.is_leaf() || (target && !leads_further(&node, &needed)) {
                continue;
            }
            let Some(saved) = node.saved(retain) else {
                return Err(Error::GraphFreed { op: node.op() });
            };
            if let Some((leaf, dtype)) = saved.cast_of_leaf().filter(|_| !create_graph && !watch::is_on()) {
                if needed.as_ref().is_none_or(|n| n.contains(&leaf)) {
                    casts.push(leaf, grad, dtype)?;
                }
                continue;
            }
            let needs: Vec<bool> = saved.inputs.iter().map(|i| i.as_ref().is_some_and(&wanted)).collect();
            // If the gradient of the input is itself a target, the slope must not be in it.
            let slope = saved.slope().filter(|(input, slope)| {
                let target = targets.is_some_and(|targets| targets.contains(&input.id()));
                // A ReLU's zeros can be written twice. Another slope goes into the only gradient that the activation's result has.
                let once = || input.is_read_once() && !pending.contains_key(&input.id()) && !watch::is_on();
                !target && wanted(input) && (slope.f == Activation::Relu || once())
            });
            let slopes = Slopes {
                of_input: slope.as_ref().map(|(_, slope)| slope),
                applied: applied.remove(&id),
            };
            // A watch is told every term of a sum by itself.
            let sum = saved
                .adds_to()
                .filter(|_| slope.is_none() && !create_graph && !watch::is_on());
            let mut sum = sum.and_then(|input| pending.get_mut(&input.id())?.take());
            let summed = saved.norm_to_sum().filter(|input| {
                let target = targets.is_some_and(|targets| targets.contains(&input.id()));
                let last = || input.ends_with(pending.get(&input.id()).map_or(0, Sum::terms));
                !target && !create_graph && !watch::is_on() && wanted(input) && last()
            });
            let mut norm = summed.map(Node::norm).transpose()?.flatten();
            if let (Some(input), Some(_)) = (summed, &norm)
                && let Some(others) = pending.get_mut(&input.id())
            {
                sum = others.take();
                norm = norm.filter(|_| sum.is_some());
            }
            let terms = (&grad, more.as_ref());
            let mine = norm_sums.remove(&id);
            let norms = (norm.as_ref(), mine.as_ref());
            let mut grads = saved.apply(&node, terms, (sum.as_ref(), !retain), norms, &needs, slopes)?;
            let mut taken = norm.and_then(Ordered::sums);
            if watch::is_on() {
                let told = |g: Tensor<B>| g.watched_gradient((node.op(), id), &[&grad]);
                grads = grads.into_iter().map(|g| g.map(told)).collect();
            }
            let backend = grad.backend().clone();
            drop((grad, more));
            debug_assert_eq!(
                grads.len(),
                needs.len(),
                "rule of {} returns a gradient per input",
                node.op()
            );
            for (i, (input, g)) in saved.inputs.iter().zip(grads).enumerate() {
                if let (Some(input), Some(g)) = (input, g)
                    && wanted(input)
                {
                    nodes.insert(input.id(), input.clone());
                    if slope.as_ref().is_none_or(|(of, _)| of.id() != input.id()) {
                        applied.remove(&input.id());
                    } else if !pending.contains_key(&input.id()) {
                        applied.insert(input.id());
                    }
                    match taken.take_if(|_| summed.is_some_and(|of| of.id() == input.id())) {
                        Some(sums) => norm_sums.insert(input.id(), sums),
                        None => norm_sums.remove(&input.id()),
                    };
                    let sum = pending.entry(input.id()).or_default();
                    match saved.part(i) {
                        Some(part) => node.instrumented(&backend, || sum.add_part(part, g, create_graph))?,
                        None => sum.add(g, create_graph, apart(input))?,
                    }
                }
            }
        }
        Ok(())
    };
    with_grad(create_graph, || with_compute(None, derive))?;
    casts.add_to(&mut results)?;
    Ok(results)
}

fn leads_further<B: Backend>(node: &Arc<Node<B>>, needed: &Option<HashSet<NodeId>>) -> bool {
    let (Some(needed), Some(saved)) = (needed, node.saved(true)) else {
        return false;
    };
    saved.inputs.iter().flatten().any(|i| needed.contains(&i.id()))
}

/// The nodes from which a target can be reached, targets included. Ids order the graph, so nothing older than the
/// oldest target is looked at.
fn leading_to<'a, B: Backend>(
    outputs: impl Iterator<Item = &'a Arc<Node<B>>>,
    targets: &HashSet<NodeId>,
) -> Result<HashSet<NodeId>> {
    let Some(&oldest) = targets.iter().min() else {
        return Ok(HashSet::new());
    };
    let mut seen: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    let mut stack: Vec<Arc<Node<B>>> = outputs.cloned().collect();
    while let Some(node) = stack.pop() {
        if node.id() < oldest || seen.contains_key(&node.id()) {
            continue;
        }
        let inputs: Vec<Arc<Node<B>>> = match node.saved(true) {
            Some(saved) => saved.inputs.iter().flatten().cloned().collect(),
            None if node.is_leaf() || targets.contains(&node.id()) => Vec::new(),
            None => return Err(Error::GraphFreed { op: node.op() }),
        };
        seen.insert(node.id(), inputs.iter().map(|n| n.id()).collect());
        stack.extend(inputs);
    }
    let mut needed = HashSet::new();
    for (id, inputs) in seen {
        if targets.contains(&id) || inputs.iter().any(|i| needed.contains(i)) {
            needed.insert(id);
        }
    }
    Ok(needed)
}
