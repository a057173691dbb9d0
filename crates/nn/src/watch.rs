//! A watch over ops: it is told every op of the forward and the backward pass as it ends, with the layer that it ran in.
//!
//! [`trace::ops`](crate::trace::ops) turns it on for a thread. Off, it costs the look at a flag for each op.

use crate::{DType, Result, Shape};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The direction of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// From inputs to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
}

/// A tensor on any backend.
pub trait AnyTensor {
    /// The dimensions.
    fn shape(&self) -> &Shape;

    /// The element type.
    fn dtype(&self) -> DType;

    /// The elements as f64.
    ///
    /// # Errors
    /// An error of the device, memory of the host.
    fn to_f64(&self) -> Result<Vec<f64>>;

    /// The largest magnitude, which the device computes: NaN if any element is, 0 without elements.
    ///
    /// # Errors
    /// An error of the device.
    fn largest(&self) -> Result<f64>;
}

/// An op that has just ended, or the gradient of one.
pub struct OpCall<'a> {
    /// The op's name, as in errors. A gradient has the name of the op that it is of; `add_gradients` is the sum of several that
    /// reach one tensor.
    pub op: &'static str,
    /// The dotted path of the layer that the op belongs to, in the model that is watched; empty for ops of no layer, such as the loss.
    pub layer: &'a str,
    /// Whether the op itself ran, or its gradient was computed.
    pub pass: Pass,
    /// The op's float inputs; the gradient of its output in the backward pass.
    pub inputs: &'a [&'a dyn AnyTensor],
    /// The op's output; the gradient of one of its inputs in the backward pass.
    pub output: &'a dyn AnyTensor,
}

impl std::fmt::Debug for OpCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpCall")
            .field("op", &self.op)
            .field("layer", &self.layer)
            .field("pass", &self.pass)
            .finish_non_exhaustive()
    }
}

/// A watcher of ops. See the example of [`trace::ops`](crate::trace::ops).
pub trait Watch: Any {
    /// Called when an op has ended. Values that are returned, as many as the output has, take the place of the output: the ops
    /// behind it compute with them.
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>>;
}

/// The watcher of a thread, and what it needs to name layers.
#[derive(Default)]
struct State {
    watch: Option<Rc<RefCell<dyn Watch>>>,
    /// The paths of the layers whose forward passes are in progress.
    layers: Vec<Rc<str>>,
    /// The layers of ops that were recorded for the backward pass, by the number of their node.
    recorded: HashMap<u64, Rc<str>>,
    /// The layer of the op whose gradient is being computed.
    gradient: Option<Rc<str>>,
}

thread_local! {
    /// True while this thread is watched.
    static ON: Cell<bool> = const { Cell::new(false) };
    /// True inside of the work of one op, which is not told.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static STATE: RefCell<State> = RefCell::default();
}

/// Puts the state of this thread back when dropped, also by a panic.
struct Restore(bool, bool, Option<State>);

impl Drop for Restore {
    fn drop(&mut self) {
        ON.set(self.0);
        QUIET.set(self.1);
        if let Some(before) = self.2.take() {
            STATE.replace(before);
        }
    }
}

/// Runs `f` under a watch, which is then returned.
pub(crate) fn with<W: Watch, R>(watch: W, f: impl FnOnce() -> R) -> (R, W) {
    let shared = Rc::new(RefCell::new(watch));
    let state = State {
        watch: Some(shared.clone()),
        ..State::default()
    };
    let restore = Restore(ON.replace(true), QUIET.replace(false), Some(STATE.replace(state)));
    let result = f();
    drop(restore);
    match Rc::try_unwrap(shared) {
        Ok(watch) => (result, watch.into_inner()),
        Err(_) => unreachable!("the state that shared it was dropped"),
    }
}

/// True while ops of this thread are told.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.get() && !QUIET.get()
}

/// Runs `f`, the work of one op, whose own ops are told if `told`.
pub(crate) fn inside<R>(told: bool, f: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            QUIET.set(self.0);
        }
    }
    let _back = Back(QUIET.replace(!told));
    f()
}

/// The forward pass of a layer begins.
pub(crate) fn enter(layer: &str) {
    if ON.get() {
        STATE.with_borrow_mut(|state| state.layers.push(layer.into()));
    }
}

/// The innermost forward pass ends.
pub(crate) fn leave() {
    if ON.get() {
        STATE.with_borrow_mut(|state| state.layers.pop());
    }
}

impl State {
    /// The layer that ops belong to at present.
    fn layer(&self) -> Rc<str> {
        let layer = self.gradient.as_ref().or(self.layers.last());
        layer.cloned().unwrap_or_else(|| "".into())
    }
}

/// Notes the layer of an op that was recorded as the node of this number.
pub(crate) fn recorded(node: u64) {
    if ON.get() {
        STATE.with_borrow_mut(|state| {
            let layer = state.layer();
            state.recorded.insert(node, layer);
        });
    }
}

/// Tells the watcher an op of the forward pass.
pub(crate) fn tell(op: &'static str, inputs: &[&dyn AnyTensor], output: &dyn AnyTensor) -> Option<Vec<f64>> {
    let layer = STATE.with_borrow(State::layer);
    told(op, &layer, Pass::Forward, inputs, output)
}

/// Tells the watcher the gradient of an op that was recorded as the node of this number.
pub(crate) fn tell_gradient(
    (op, node): (&'static str, u64),
    inputs: &[&dyn AnyTensor],
    output: &dyn AnyTensor,
) -> Option<Vec<f64>> {
    let layer = STATE.with_borrow(|state| state.recorded.get(&node).cloned());
    told(op, layer.as_deref().unwrap_or_default(), Pass::Backward, inputs, output)
}

fn told(
    op: &'static str,
    layer: &str,
    pass: Pass,
    inputs: &[&dyn AnyTensor],
    output: &dyn AnyTensor,
) -> Option<Vec<f64>> {
    let watch = STATE.with_borrow(|state| state.watch.clone())?;
    let call = OpCall {
        op,
        layer,
        pass,
        inputs,
        output,
    };
    // The ops by which the watcher looks at the output are not watched.
    inside(false, || watch.borrow_mut().op(&call))
}

/// Runs the rule of the op that was recorded as the node of this number. What it computes belongs to the op's layer.
pub(crate) fn rule<R>(node: u64, f: impl FnOnce() -> R) -> R {
    struct Back(Option<Rc<str>>);
    impl Drop for Back {
        fn drop(&mut self) {
            let before = self.0.take();
            STATE.with_borrow_mut(|state| state.gradient = before);
        }
    }
    if !ON.get() {
        return f();
    }
    let before = STATE.with_borrow_mut(|state| {
        let layer = state.recorded.get(&node).cloned();
        std::mem::replace(&mut state.gradient, layer)
    });
    let _back = Back(before);
    inside(false, f)
}

/// An op, or the gradient of one, by its name and the layer that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName {
    /// See [`OpCall::layer`].
    pub layer: String,
    /// See [`OpCall::op`].
    pub op: String,
    /// See [`OpCall::pass`].
    pub pass: Pass,
}

impl OpCall<'_> {
    /// The name of the op.
    pub fn name(&self) -> OpName {
        OpName {
            layer: self.layer.to_string(),
            op: self.op.to_string(),
            pass: self.pass,
        }
    }
}

/// `the forward pass of op conv2d in layer features.0`.
impl std::fmt::Display for OpName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let OpName { layer, op, pass } = self;
        match pass {
            Pass::Forward => write!(f, "the forward pass of op `{op}`")?,
            Pass::Backward => write!(f, "the gradient of op `{op}`")?,
        }
        match &layer[..] {
            "" => Ok(()),
            layer => write!(f, " in layer `{layer}`"),
        }
    }
}

/// An op with a value that is NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFiniteOp {
    /// The op.
    pub name: OpName,
    /// NaN if there is one, else infinity.
    pub value: f64,
    /// True if the value arose here: a NaN from inputs without NaN, or an infinity from finite inputs.
    pub arose: bool,
}

/// Watches for the first op with a value that is NaN or infinite. It waits for every op.
///
/// Infinities can be meant, as those of a mask that softmax turns into zeros. An op whose inputs are infinite already is therefore
/// taken only if no value arose in a later one, and `masked_fill` is left out. Ops in [`ordinary`](FirstNonFinite::ordinary) are
/// left out too.
///
/// ```
/// use kiln_nn::watch::{FirstNonFinite, Pass};
/// use kiln_nn::{DType, Sequential, Layer, Tensor, layers::{Lambda, Relu}, trace};
/// # let cpu = kiln_cpu::Cpu::new();
/// let net = Sequential::new().push(Relu).push_named("log", Lambda::new(|x| x.log()))?;
/// let x = Tensor::zeros(&cpu, &[2], DType::F32)?;
/// let (_, watch) = trace::ops(&net, FirstNonFinite::default(), || net.forward(&x));
/// let first = watch.first().unwrap();
/// assert_eq!((&first.name.layer[..], &first.name.op[..], first.name.pass), ("log", "log", Pass::Forward));
/// assert!(first.value.is_infinite() && first.arose);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FirstNonFinite {
    /// Ops that have such values in steps that are fine.
    pub ordinary: BTreeSet<OpName>,
    /// Every op with such a value up to the first in which one arose, that one included, without the ordinary ones.
    pub found: Vec<NonFiniteOp>,
}

impl FirstNonFinite {
    /// The first op in which such a value arose; if there is none, the first with one.
    pub fn first(&self) -> Option<&NonFiniteOp> {
        self.found.iter().find(|op| op.arose).or(self.found.first())
    }
}

impl Watch for FirstNonFinite {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        if self.found.last().is_some_and(|op| op.arose) {
            return None;
        }
        // A device that fails here fails again where the result is read, and the error is reported there.
        let value = call.output.largest().unwrap_or(0.0);
        if value.is_finite() {
            return None;
        }
        let name = call.name();
        let inputs = call.inputs.iter().map(|x| x.largest().unwrap_or(0.0));
        let arose = match value.is_nan() {
            true => !inputs.into_iter().any(f64::is_nan),
            false => inputs.into_iter().all(f64::is_finite),
        };
        let is_meant = !value.is_nan() && arose && call.op == "masked_fill";
        if !is_meant && !self.ordinary.contains(&name) {
            self.found.push(NonFiniteOp { name, value, arose });
        }
        None
    }
}
