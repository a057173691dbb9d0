//! The differentiable tensor, the node of the op that made it and the rule that differentiates the op. A tensor holds a
//! node, the node a rule, and a rule's gradients are tensors, so the three types are one file.

mod context;
mod display;
mod drop;
mod half;
mod ndarray;
mod node;
mod norm_sums;
mod recompute;
mod values;
mod watched;

pub(crate) use recompute::Reader;
pub(crate) use values::{require_float, same_dtype};

use crate::array::Array;
use crate::autograd::is_grad_enabled;
use crate::memory::Memory;
use crate::watch;
use kiln_core::ops::{Activation, Op, RowNorm};
use kiln_core::{Backend, DType, Result, Shape};
use std::cell::OnceCell;
use std::ops::Range;
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
        for t in inputs {
            if let Some(node) = &t.node {
                node.keep_for_readers(t);
            }
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

    /// A function that computes the op's result again, with the bits that it had, from what the rule has saved and from the output of the
    /// node of [`recomputed_from`](Rule::recomputed_from), if it names one; `None` for a rule that does not save all of its inputs, or
    /// whose op is worth more than the memory of its result. Such a rule's output is not kept for the rule either: it is computed again
    /// where the rule [reads it](Rule::saves_output).
    fn recompute(&self) -> Option<Recompute<'_, B>> {
        None
    }

    /// The node whose output [`recompute`](Rule::recompute) wants, itself computed again, as in a chain of residual blocks.
    fn recomputed_from(&self) -> Option<&Arc<Node<B>>> {
        None
    }

    /// The layer norm that the op is: the rule of a linear layer may make the result again by it, on the way, in place of
    /// [`recompute`](Rule::recompute).
    fn row_norm(&self) -> Option<RowNorm<'_, B::Buffer>> {
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

    /// The norm that the rule differentiates, if it takes the sums that its gradient begins with from `RuleContext::norm_sums`.
    fn takes_norm_sums(&self) -> Option<NormOfInput<B>> {
        None
    }

    /// The input whose gradient the rule makes together with the sums of the norm that made it, where `RuleContext::norm_of_input` has that
    /// norm: with `RuleContext::sum` added, before residual and ReLU of the norm.
    fn gives_norm_sums(&self) -> Option<usize> {
        None
    }
}

/// A function that computes an op's result again: [`Rule::recompute`].
pub type Recompute<'a, B> = Box<dyn Fn(Option<&Tensor<B>>) -> Result<Tensor<B>> + 'a>;

/// The arguments of a rule's backward pass: the gradient of the op's output, and the output if the rule reads it.
///
/// See the example of [`function`](crate::autograd::function), whose closure is given one.
pub struct RuleContext<'a, B: Backend> {
    /// The gradient of the op's output.
    pub grad: &'a Tensor<B>,
    more: Option<&'a Tensor<B>>,
    output: Option<Tensor<B>>,
    sum: Option<&'a Tensor<B>>,
    norm: Option<&'a Ordered<B>>,
    norm_sums: Option<&'a NormSums<B>>,
    last: bool,
    needs: &'a [bool],
    slopes: Slopes<'a, B>,
}

/// The slope of an activation, by which one of two successive rules of the backward pass multiplies a gradient.
#[derive(Clone)]
pub struct Slope<B: Backend> {
    /// The activation.
    pub f: Activation,
    /// Its input, if the slope is computed from that. Else it is computed from the result.
    pub input: Option<Tensor<B>>,
}

/// The agreement of two successive rules of the backward pass, by which the first one multiplies its gradient by the slope of an
/// activation and the activation's rule does not: a pooling has fewer elements to set to zero than the ReLU, and a product writes
/// its gradient once.
pub(crate) struct Slopes<'a, B: Backend> {
    /// This rule must multiply the gradient of its input by this slope.
    pub(crate) of_input: Option<&'a Slope<B>>,
    /// The gradient of this rule's output has the slope of the activation that ends the op.
    pub(crate) applied: bool,
}

/// A batch norm in training, to the rule that takes its sums.
pub struct NormOfInput<B: Backend> {
    pub(crate) x: Tensor<B>,
    pub(crate) scale: Option<Tensor<B>>,
    pub(crate) shift: Option<Tensor<B>>,
    pub(crate) mean: Tensor<B>,
    pub(crate) rstd: Tensor<B>,
    /// The result, if it is that of a ReLU behind a residual.
    pub(crate) y: Option<Tensor<B>>,
    /// True if a ReLU is behind it.
    pub(crate) relu: bool,
}

/// The gradients of scale and shift of a norm, of the accumulation dtype. The gradient of its result is then that before residual and ReLU.
pub(crate) struct NormSums<B: Backend> {
    pub(crate) dscale: Tensor<B>,
    pub(crate) dshift: Tensor<B>,
}

/// A norm whose sums are wanted, and the sums once there are any.
pub(crate) struct Ordered<B: Backend> {
    norm: NormOfInput<B>,
    sums: OnceCell<NormSums<B>>,
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
    again: Mutex<Again<B>>,
}

/// The output of a node that has been computed again, until its last reader has read it.
struct Again<B: Backend> {
    value: Option<Tensor<B>>,
    /// How many rules of other nodes read it.
    readers: usize,
    /// True if it was not kept because a single op reads it: a second one has it kept.
    for_one: bool,
}

fn next_id() -> NodeId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
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

/// The part of a tensor that an op reads: the gradient of the op belongs there, and the gradient of the rest is zero.
///
/// A rule that names a part ([`Rule::part`]) returns a gradient of the part's shape. The backward pass adds it to the one
/// gradient of the whole tensor, so the cost of `n` parts is proportional to their elements, not to `n` times those of
/// the whole.
pub trait Part<B: Backend>: Send + Sync + 'static {
    /// The shape of the whole tensor.
    fn whole(&self) -> Shape;

    /// An axis and a range of its entries that contains the part. `None` if the part may name an element more than
    /// once, as an index tensor may.
    fn within(&self) -> Option<(usize, Range<usize>)>;

    /// Adds `grad` to the part of `whole`, in place. `zero` is true if nothing was added to the part before; a part with
    /// a range ([`within`](Part::within)) must then be overwritten, because a part as large as the whole is given
    /// uninitialised memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), an error of the device.
    fn add(&self, grad: &Tensor<B>, whole: &mut B::Buffer, zero: bool) -> Result<()>;

    /// Reads this part of a tensor of the whole's shape, by a differentiable op.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), an error of the device.
    fn of(&self, whole: &Tensor<B>) -> Result<Tensor<B>>;
}
