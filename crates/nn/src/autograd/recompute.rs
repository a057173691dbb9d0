//! Activation checkpointing of layers: the forward pass keeps a layer's input alone, and the backward pass runs a copy of the layer on
//! it again.
//!
//! The copy shares the memory of the parameters, and has buffers and counters of its own with the values from before the forward
//! pass. So it draws the same random numbers, and the layer's own running statistics move once.

use super::autocast::{autocast, autocast_dtype};
use super::backward::run;
use super::mode::{is_grad_enabled, no_grad, with_grad};
use super::vjp::{begin, closed};
use crate::module::{Runnable, copyable, entries_mut, modules};
use crate::tensor::{NodeId, Rule, RuleContext};
use crate::{Backend, DType, EntryMut, Module, Result, State, Tensor};
use kiln_core::ModuleId;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

/// Modules by their ids.
type Selection = Option<Rc<HashSet<ModuleId>>>;

thread_local! {
    /// True where layers are selected.
    static ON: Cell<bool> = const { Cell::new(false) };
    /// The layers that [`checkpoint_layers`] has selected on this thread.
    static SELECTED: RefCell<Selection> = const { RefCell::new(None) };
}

/// Puts the selection back when dropped, also when a panic passes through.
struct Restore(Selection);

impl Restore {
    fn to(selection: Selection) -> Self {
        ON.set(selection.is_some());
        Restore(SELECTED.replace(selection))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        ON.set(self.0.is_some());
        SELECTED.replace(self.0.take());
    }
}

/// Runs `f` with activation checkpointing of the layers of `model` whose dotted names `select` accepts, as if each of them was in a
/// [`Checkpointed`](crate::layers::Checkpointed): what `f` records keeps the inputs of these layers alone, and the backward pass
/// computes them again. Of layers inside of each other the outermost is taken.
///
/// It takes layers that can be cloned and that the model runs by [`Layer::forward`](crate::Layer::forward), those that
/// [`checkpointable`] lists; others run as they do without.
///
/// ```
/// use kiln_nn::autograd::checkpoint_layers;
/// # use kiln_nn::{DType, Init, Layer, Module, Sequential, Tensor, layers::{Linear, Tanh}};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// # let x = Tensor::ones(&cpu, &[4, 8], DType::F32)?;
/// let mut net = Sequential::new();
/// for _ in 0..4 {
///     net = net.push((Linear::new(init, 8, 8)?, Tanh));
/// }
/// let loss = |net: &Sequential<_>| net.forward(&x)?.square()?.sum(&[], false);
/// let plain = loss(&net)?.backward()?;
/// let saving = checkpoint_layers(&net, |name| name.ends_with(".0"), || loss(&net))?.backward()?;
/// for p in net.parameters() {
///     assert_eq!(saving.get(p).unwrap().to_f64()?, plain.get(p).unwrap().to_f64()?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `f`.
pub fn checkpoint_layers<B: Backend, M: Module<B> + ?Sized, R>(
    model: &M,
    select: impl Fn(&str) -> bool,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let selected = modules(model).into_iter().filter(|(name, _)| select(name));
    let _restore = Restore::to(Some(Rc::new(selected.map(|(_, id)| id).collect())));
    f()
}

/// The dotted names of the layers inside of `model` that can be checkpointed: those that can be cloned.
///
/// ```
/// use kiln_nn::autograd::checkpointable;
/// # use kiln_nn::{Init, Sequential, layers::{Linear, Relu}};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let net = Sequential::new().push(Linear::new(init, 4, 8)?).push_named("act", Relu)?;
/// assert_eq!(checkpointable(&net), ["0", "act"]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn checkpointable<B: Backend, M: Module<B> + ?Sized>(model: &M) -> Vec<String> {
    copyable(model)
}

/// True while layers are selected on this thread.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// Runs a layer by `call`: checkpointed if it is selected and there is a copy of it.
pub(crate) fn layer<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    x: &Tensor<B>,
    call: &dyn Fn() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    let selected = SELECTED.with_borrow(|s| s.as_ref().is_some_and(|s| s.contains(&module.module_id())));
    let copy = match selected && is_grad_enabled() {
        true => module.copied(),
        false => None,
    };
    let Some(copy) = copy else { return call() };
    // Layers inside of this one are computed again with it.
    let _inside = Restore::to(None);
    checkpoint_layer(module, || copy, x, call)
}

/// The output of `call`, the forward pass of `module` on `x`, recorded with `x` and the parameters alone.
pub(crate) fn checkpoint_layer<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    copy: impl FnOnce() -> Box<dyn Runnable<B>>,
    x: &Tensor<B>,
    call: &dyn Fn() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    let parameters = module.parameters().into_iter().map(|p| p.tensor());
    let inputs: Vec<&Tensor<B>> = std::iter::once(x)
        .chain(parameters.filter(|p| p.is_tracked()))
        .collect();
    if !is_grad_enabled() || inputs.iter().all(|t| !t.is_tracked()) {
        return call();
    }
    recorded(copy(), &inputs, call)
}

/// As [`checkpoint_layer`], compiled once for each backend.
fn recorded<B: Backend>(
    mut layer: Box<dyn Runnable<B>>,
    inputs: &[&Tensor<B>],
    call: &dyn Fn() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    own_buffers(&mut *layer)?;
    let y = no_grad(call)?.detach();
    Ok(y.record("checkpoint", inputs, || Recompute {
        layer,
        inputs: inputs.iter().map(|&t| t.clone()).collect(),
        compute: autocast_dtype(),
    }))
}

/// Gives a layer memory of its own for buffers and counters.
fn own_buffers<B: Backend>(layer: &mut dyn Runnable<B>) -> Result<()> {
    for (_, entry) in entries_mut(layer) {
        match entry {
            EntryMut::State(state) => *state = State::new(state.get().copy()?),
            EntryMut::Counter(counter) => {
                let count = counter.get().copy()?;
                counter.replace(count);
            }
            EntryMut::Param(_) | EntryMut::Mode(_) => {}
        }
    }
    Ok(())
}

struct Recompute<B: Backend> {
    /// A copy of the layer, with buffers as they were before the forward pass.
    layer: Box<dyn Runnable<B>>,
    /// The layer's input, and its tracked parameters in their order.
    inputs: Vec<Tensor<B>>,
    /// The precision of the forward pass.
    compute: Option<DType>,
}

impl<B: Backend> Rule<B> for Recompute<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let create_graph = is_grad_enabled();
        // What this pass changes in its buffers, another pass must not find.
        let mut layer = self.layer.duplicate();
        let (x, parameters) = match self.inputs.split_first() {
            Some((x, parameters)) => (x, parameters),
            None => return Ok(Vec::new()),
        };
        // The parameters of the copy are leaves of their own. Gradients that are to have gradients lead to the layer's.
        let x = match (x.is_tracked(), create_graph) {
            (false, _) => x.clone(),
            (true, false) => x.requires_grad(),
            (true, true) => begin(x),
        };
        let mut ids = vec![x.id()];
        let mut originals = parameters.iter();
        for (_, entry) in entries_mut(&mut *layer) {
            if let EntryMut::Param(p) = entry
                && p.is_trainable()
                && let Some(original) = originals.next()
            {
                if create_graph {
                    p.stand_in(begin(original));
                }
                ids.push(p.tensor().id());
            }
        }
        let body = || match self.compute {
            Some(dtype) => autocast(dtype, || layer.run(&x)),
            None => layer.run(&x),
        };
        let output = with_grad(true, body)?;
        drop(layer);
        if !output.is_tracked() {
            return Ok(vec![None; ids.len()]);
        }
        let targets: HashSet<NodeId> = ids.iter().flatten().copied().collect();
        closed("checkpoint", &output, &targets)?;
        let found = run(&[(output, cx.grad.clone())], Some(&targets), create_graph, create_graph)?;
        Ok(ids.into_iter().map(|id| found.get(&id?).cloned()).collect())
    }
}
