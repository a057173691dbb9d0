//! The nodes of the graph, and what they keep for the backward pass.

use super::{Again, Node, NodeId, NormSums, Ordered, Output, Part, Rule, RuleContext, Saved, Slope, Slopes, next_id};
use crate::{Tensor, watch};
use kiln_core::{Backend, DType, Result, Scope};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

impl<B: Backend> Node<B> {
    pub(crate) fn leaf() -> Arc<Self> {
        Arc::new(Node {
            id: next_id(),
            op: "leaf",
            scope: 0,
            leaf: true,
            readers: AtomicUsize::new(0),
            saved: Mutex::new(None),
            again: Again::default().into(),
        })
    }

    /// The node of `output`.
    pub(crate) fn new(
        (op, scope): (&'static str, u32),
        rule: Box<dyn Rule<B>>,
        inputs: Vec<Option<Arc<Node<B>>>>,
        output: &Tensor<B>,
    ) -> Arc<Self> {
        for (i, input) in inputs.iter().enumerate() {
            let Some(input) = input else { continue };
            input.readers.fetch_add(1, Ordering::Relaxed);
            let applied = input.activation().and_then(|slope| rule.applies_slope(slope.f));
            if applied != Some(i) {
                input.hold_output();
            }
        }
        let output = rule
            .saves_output()
            .then(|| Output::new(output, rule.activation().is_none() && rule.recompute().is_none()));
        Arc::new(Node {
            id: next_id(),
            op,
            scope,
            leaf: false,
            readers: AtomicUsize::new(0),
            saved: Mutex::new(Some(Arc::new(Saved { rule, inputs, output }))),
            again: Again::default().into(),
        })
    }

    /// The identifier under which [`Gradients`](crate::Gradients) holds the tensor's gradient.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The op that made the tensor, or `leaf`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.leaf
    }

    /// See [`Rule::activation`].
    pub(crate) fn activation(&self) -> Option<Slope<B>> {
        self.saved(true)?.rule.activation()
    }

    /// True if a single op has read the tensor, and as one of its inputs alone.
    pub(crate) fn is_read_once(&self) -> bool {
        self.readers.load(Ordering::Relaxed) == 1
    }

    /// True if an op has read the tensor.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// True if the op's rule [adds up two gradients](Rule::adds_two_grads).
    pub(crate) fn adds_two_grads(&self) -> bool {
        self.saved(true).is_some_and(|saved| saved.rule.adds_two_grads())
    }

    /// Keeps the output's memory for the op's rule, if the rule reads it and cannot compute it again, even when every tensor over it is
    /// dropped.
    pub(crate) fn hold_output(&self) {
        if let Some(saved) = self.saved(true)
            && let Some(output) = saved.output.as_ref().filter(|_| saved.rule.recompute().is_none())
        {
            output.hold();
        }
    }

    /// Runs a part of the op's backward pass `f`, reported to a profile in progress.
    pub(crate) fn instrumented<R>(&self, backend: &B, f: impl FnOnce() -> R) -> R {
        let Some(observer) = backend.observer() else {
            return f();
        };
        let (op, of) = (self.op, self.scope);
        observer.enter(&Scope::Gradient { op, of });
        let result = f();
        observer.leave(None);
        result
    }

    pub(crate) fn saved(&self, keep: bool) -> Option<Arc<Saved<B>>> {
        // The lock is held only during the exchange, so a panic cannot have left the value half-changed.
        let mut saved = self.saved.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if keep { saved.clone() } else { saved.take() }
    }
}

impl<B: Backend> Saved<B> {
    /// The input that is the result of an activation whose slope this rule can apply, and that slope.
    pub(crate) fn slope(&self) -> Option<(&Arc<Node<B>>, Slope<B>)> {
        self.inputs.iter().enumerate().find_map(|(i, input)| {
            let input = input.as_ref()?;
            let slope = input.activation()?;
            (self.rule.applies_slope(slope.f) == Some(i)).then_some((input, slope))
        })
    }

    /// See [`Rule::part`].
    pub(crate) fn part(&self, i: usize) -> Option<Arc<dyn Part<B>>> {
        self.rule.part(i)
    }

    /// The leaf of which the op is a cast, and the dtype of its gradient: [`Rule::casts_to`].
    pub(crate) fn cast_of_leaf(&self) -> Option<(NodeId, DType)> {
        let dtype = self.rule.casts_to()?;
        let leaf = self.inputs.first()?.as_ref().filter(|input| input.is_leaf())?;
        Some((leaf.id(), dtype))
    }

    /// See [`Rule::adds_to`].
    pub(crate) fn adds_to(&self) -> Option<&Arc<Node<B>>> {
        self.inputs.get(self.rule.adds_to()?)?.as_ref()
    }

    pub(crate) fn apply(
        &self,
        node: &Arc<Node<B>>,
        (grad, more): (&Tensor<B>, Option<&Tensor<B>>),
        (sum, last): (Option<&Tensor<B>>, bool),
        (norm, norm_sums): (Option<&Ordered<B>>, Option<&NormSums<B>>),
        needs: &[bool],
        slopes: Slopes<'_, B>,
    ) -> Result<Vec<Option<Tensor<B>>>> {
        // Whatever else reads the output has done so by now: nodes are visited from the newest.
        let again = node.take_again();
        let output = match &self.output {
            Some(output) => match output.tensor(node).or(again) {
                None if !slopes.applied && norm_sums.is_none() && self.rule.recompute().is_some() => {
                    Some(node.instrumented(grad.backend(), || self.recompute(node))?)
                }
                found => found,
            },
            None => None,
        };
        let cx = RuleContext {
            grad,
            more,
            output,
            sum,
            norm,
            norm_sums,
            last,
            needs,
            slopes,
        };
        let rule = || self.rule.backward(&cx);
        watch::rule(node.id.0, || node.instrumented(grad.backend(), rule))
    }
}
