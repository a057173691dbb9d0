//! The differentiable tensor, the node of the op that made it and the rule that differentiates the op. A tensor holds a
//! node, the node a rule, and a rule's gradients are tensors, so the three types are one file.

mod context;
mod display;
mod drop;
mod half;
mod ndarray;
mod part;
mod recompute;
mod values;
mod watched;

pub(crate) use context::Slopes;
pub use context::{RuleContext, Slope};
pub use part::Part;
pub(crate) use values::{require_float, same_dtype};

use crate::array::Array;
use crate::autograd::is_grad_enabled;
use crate::memory::Memory;
use crate::watch;
use kiln_core::ops::{Activation, Op};
use kiln_core::{Backend, DType, Result, Scope, Shape};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A contiguous row-major tensor of floats on backend `B`.
///
/// Cloning shares the memory. A tensor computed from one that requires a gradient is tracked: it holds the graph of the
/// ops that made it, which [`Tensor::backward`] follows back.
///
/// ```
/// # use kiln_nn::Tensor;
/// # let cpu = kiln_cpu::Cpu::new();
/// let w = Tensor::from_slice(&cpu, &[1f32, -2.0], &[2])?.requires_grad();
/// let loss = w.square()?.sum(&[], false)?;
/// assert_eq!(loss.backward()?.get(&w).unwrap().to_vec::<f32>()?, [2.0, -4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Tensor<B: Backend> {
    array: Array<B>,
    node: Option<Arc<Node<B>>>,
}

impl<B: Backend> Clone for Tensor<B> {
    fn clone(&self) -> Self {
        Tensor {
            array: self.array.clone(),
            node: self.node.clone(),
        }
    }
}

impl<B: Backend> AsRef<Tensor<B>> for Tensor<B> {
    fn as_ref(&self) -> &Tensor<B> {
        self
    }
}

impl<B: Backend> Tensor<B> {
    /// An untracked tensor over a buffer that an op has filled.
    pub(crate) fn from_buffer(backend: &B, buffer: B::Buffer, shape: Shape) -> Self {
        Tensor::new(Array::new(backend, buffer, shape), None)
    }

    /// A tensor over memory that others may share.
    pub(crate) fn new(array: Array<B>, node: Option<Arc<Node<B>>>) -> Self {
        Tensor { array, node }
    }

    /// The array, without the graph.
    pub(crate) fn into_array(self) -> Array<B> {
        self.array
    }

    /// The same memory under a shape of equal size, with another node of the graph.
    pub(crate) fn with(&self, shape: Shape, node: Option<Arc<Node<B>>>) -> Self {
        Tensor::new(self.array.with(shape), node)
    }

    /// Finishes an op with the result `self`: tracks it if gradients are on and any input is tracked, with the rule that `rule`
    /// makes. The rule is made only then, so tensors saved for the gradient cost nothing in evaluation.
    pub(crate) fn record<R: Rule<B>>(
        self,
        op: &'static str,
        inputs: &[&Tensor<B>],
        rule: impl FnOnce() -> R,
    ) -> Tensor<B> {
        let made = match watch::is_on() {
            true => self.watched(op, inputs),
            false => self,
        };
        if !is_grad_enabled() || inputs.iter().all(|t| t.node.is_none()) {
            return made;
        }
        let edges = inputs.iter().map(|t| t.node.clone()).collect();
        let scope = made.backend().observer().map_or(0, |observer| observer.scope());
        let node = Node::new((op, scope), Box::new(rule()), edges, &made);
        watch::recorded(node.id.0);
        Tensor {
            node: Some(node),
            ..made
        }
    }

    /// The backend.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// let y = Tensor::zeros(x.backend(), &[3], x.dtype())?;
    /// assert_eq!(y.size(), 3);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn backend(&self) -> &B {
        &self.array.backend
    }

    /// True if the backend computes `op` in this dtype; a fused op that it does not have is composed of others.
    pub(crate) fn has_op(&self, op: Op) -> bool {
        self.backend().supports(op, self.dtype())
    }

    /// The dimensions.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 3], DType::F32)?;
    /// assert_eq!((x.shape().dims(), x.shape()[1]), (&[2, 3][..], 3));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn shape(&self) -> &Shape {
        &self.array.shape
    }

    /// The element type.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2], DType::F16)?;
    /// assert_eq!(x.dtype(), DType::F16);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        self.array.dtype()
    }

    /// Number of elements.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert_eq!(Tensor::zeros(&cpu, &[2, 3], DType::F32)?.size(), 6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.shape().size()
    }

    /// Number of dimensions.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert_eq!(Tensor::zeros(&cpu, &[2, 3], DType::F32)?.rank(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn rank(&self) -> usize {
        self.shape().rank()
    }

    /// A leaf over the same memory, with respect to which gradients are computed (`torch.Tensor.requires_grad_`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// let grads = w.mul_scalar(3.0)?.sum(&[], false)?.backward()?;
    /// assert_eq!(grads.get(&w).unwrap().to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn requires_grad(&self) -> Self {
        self.with(*self.shape(), Some(Node::leaf()))
    }

    /// An untracked tensor over the same memory (`torch.Tensor.detach`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// assert!(w.exp()?.is_tracked() && !w.detach().exp()?.is_tracked());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn detach(&self) -> Self {
        self.with(*self.shape(), None)
    }

    /// True if a gradient can flow through this tensor (`requires_grad` in PyTorch).
    ///
    /// See the example of [`Tensor::detach`].
    pub fn is_tracked(&self) -> bool {
        self.node.is_some()
    }

    /// The id under which [`Gradients`](crate::Gradients) holds the gradient of this tensor; `None` when it is not tracked.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// let grads = w.sum(&[], false)?.backward()?;
    /// assert!(grads.by_id(w.id().unwrap()).is_some());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn id(&self) -> Option<NodeId> {
        self.node.as_ref().map(|n| n.id())
    }

    pub(crate) fn node(&self) -> Option<&Arc<Node<B>>> {
        self.node.as_ref()
    }

    /// The memory.
    pub(crate) fn buffer(&self) -> &B::Buffer {
        &self.array.memory
    }

    /// The memory with its id.
    pub(crate) fn memory(&self) -> &Arc<Memory<B::Buffer>> {
        &self.array.memory
    }
}

/// Identifies a tracked tensor. Ids grow with creation, so an op's id is larger than those of its inputs.
///
/// See the example of [`Tensor::id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u64);

/// The backward function of an op (`backward` of a `torch.autograd.Function`).
///
/// See the example of [`function`](crate::autograd::function), which makes a rule of a closure.
pub trait Rule<B: Backend>: Send + Sync + 'static {
    /// The gradients of the op's inputs, in the order they were recorded, each of the shape and dtype of its input or of the
    /// [`part`](Rule::part) of it that was read. `None` where no gradient flows, or where [`RuleContext::needs`] says that none
    /// is wanted.
    ///
    /// Written in differentiable ops. A fused backward kernel may stand in when
    /// [`is_grad_enabled`](crate::autograd::is_grad_enabled) is false.
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>>;

    /// The part of input `i` that the op reads, if it does not read all of it: the gradient of the rest is zero, and
    /// [`backward`](Rule::backward) returns the gradient of the part alone.
    fn part(&self, i: usize) -> Option<Arc<dyn Part<B>>> {
        let _ = i;
        None
    }

    /// True if the rule reads [`RuleContext::output`]. A rule cannot hold its own output, because the two would keep each other
    /// alive.
    fn saves_output(&self) -> bool {
        false
    }

    /// The activation that ends the op, if the rule begins by multiplying the gradient by its slope. Such a rule must skip that
    /// if [`RuleContext::slope_applied`] is true.
    fn activation(&self) -> Option<Slope<B>> {
        None
    }

    /// The input whose gradient the rule multiplies by the slope of `f`, if that input is the result of `f` and
    /// [`RuleContext::slope`] asks for it. A rule that does so only where no gradient of gradients is wanted
    /// ([`is_grad_enabled`](crate::autograd::is_grad_enabled), which is true when the op is recorded) returns `None` elsewhere:
    /// then the activation's rule keeps the output that it reads.
    fn applies_slope(&self, f: Activation) -> Option<usize> {
        let _ = f;
        None
    }

    /// True if the rule adds up the two gradients of an output that was used twice, where the backward pass does not need their sum:
    /// [`RuleContext::more_grad`] then has the second.
    fn adds_two_grads(&self) -> bool {
        false
    }

    /// True if the op's result is its input under another shape.
    fn keeps_elements(&self) -> bool {
        false
    }

    /// The op's result again, from what the rule has saved, with the bits that it had; `None` for a rule that does not save all of its
    /// inputs, or whose op is worth more than the memory of its result.
    fn recompute(&self) -> Option<Box<dyn Fn() -> Result<Tensor<B>> + '_>> {
        None
    }

    /// The dtype to which the rule casts the gradient, if it does nothing else. Those of leaves are cast together at the end of the pass.
    fn casts_to(&self) -> Option<DType> {
        None
    }

    /// The input whose gradient the rule returns with `RuleContext::sum` added to it.
    fn adds_to(&self) -> Option<usize> {
        None
    }
}

/// The rule of an op with its inputs and output, as the backward pass needs them; dropped once used, unless the graph is
/// retained.
pub(crate) struct Saved<B: Backend> {
    rule: Box<dyn Rule<B>>,
    pub(crate) inputs: Vec<Option<Arc<Node<B>>>>,
    output: Option<Output<B>>,
}

/// An op's output, kept for its rule. An activation's output is at first only a weak reference: it is held once an op reads it whose
/// rule does not apply the activation's slope.
struct Output<B: Backend> {
    backend: B,
    shape: Shape,
    memory: Weak<Memory<B::Buffer>>,
    held: OnceLock<Arc<Memory<B::Buffer>>>,
}

impl<B: Backend> Output<B> {
    fn new(output: &Tensor<B>, hold: bool) -> Self {
        let kept = Output {
            backend: output.backend().clone(),
            shape: *output.shape(),
            memory: Arc::downgrade(output.memory()),
            held: OnceLock::new(),
        };
        if hold {
            kept.hold();
        }
        kept
    }

    fn hold(&self) {
        if self.held.get().is_none()
            && let Some(memory) = self.memory.upgrade()
        {
            self.held.get_or_init(|| memory);
        }
    }

    fn tensor(&self, node: &Arc<Node<B>>) -> Option<Tensor<B>> {
        let memory = self.held.get().cloned().or_else(|| self.memory.upgrade())?;
        let (backend, shape) = (self.backend.clone(), self.shape);
        let array = Array { backend, memory, shape };
        Some(Tensor::new(array, Some(node.clone())))
    }
}

/// A tracked tensor's place in the graph: a leaf, or an op with its inputs.
pub struct Node<B: Backend> {
    id: NodeId,
    op: &'static str,
    /// The number of the observer's scope in which the op was recorded, if a profile was in progress.
    scope: u32,
    leaf: bool,
    /// How many times ops read the tensor.
    readers: AtomicUsize,
    saved: Mutex<Option<Arc<Saved<B>>>>,
}

fn next_id() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl<B: Backend> Node<B> {
    pub(crate) fn leaf() -> Arc<Self> {
        Arc::new(Node {
            id: next_id(),
            op: "leaf",
            scope: 0,
            leaf: true,
            readers: AtomicUsize::new(0),
            saved: Mutex::new(None),
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
            .then(|| Output::new(output, rule.activation().is_none()));
        Arc::new(Node {
            id: next_id(),
            op,
            scope,
            leaf: false,
            readers: AtomicUsize::new(0),
            saved: Mutex::new(Some(Arc::new(Saved { rule, inputs, output }))),
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

    /// True if the op's rule [adds up two gradients](Rule::adds_two_grads).
    pub(crate) fn adds_two_grads(&self) -> bool {
        self.saved(true).is_some_and(|saved| saved.rule.adds_two_grads())
    }

    /// Keeps the output's memory for the op's rule, if the rule reads it, even when every tensor over it is dropped.
    pub(crate) fn hold_output(&self) {
        if let Some(output) = self.saved(true).as_ref().and_then(|saved| saved.output.as_ref()) {
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
        needs: &[bool],
        slopes: Slopes<'_, B>,
    ) -> Result<Vec<Option<Tensor<B>>>> {
        let output = self.output.as_ref().and_then(|output| output.tensor(node));
        let cx = RuleContext {
            grad,
            more,
            output,
            sum,
            last,
            needs,
            slopes,
        };
        let rule = || self.rule.backward(&cx);
        watch::rule(node.id.0, || node.instrumented(grad.backend(), rule))
    }
}

/// A node owns its inputs, so dropping a chain of a million ops recursively would need a million stack frames; this drops
/// it in a loop.
impl<B: Backend> Drop for Node<B> {
    fn drop(&mut self) {
        if let Some(saved) = self.saved(false) {
            drop::in_a_loop(saved);
        }
    }
}
