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
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// The layers that [`checkpoint_layers`] has selected.
struct Selected {
    /// Their names by their ids.
    names: HashMap<ModuleId, String>,
    /// Those that ran as they do without, with their types.
    left: RefCell<BTreeMap<String, &'static str>>,
}

type Selection = Option<Rc<Selected>>;

thread_local! {
    /// True where layers are selected.
    static ON: Cell<bool> = const { Cell::new(false) };
    /// The selection that this thread has set.
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
/// It takes layers that can be cloned and that the model runs by [`Layer::forward`](crate::Layer::forward) or
/// [`Conv::forward_pooled`](crate::layers::Conv::forward_pooled), those that [`checkpointable`] lists. Others run as they do without;
/// [`checkpoint_layers_told`] says which.
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
    checkpoint_layers_told(model, select, f).map(|(result, _)| result)
}

/// As [`checkpoint_layers`]. Also returns the dotted names and the types of the selected layers that `f` ran, and of which everything
/// was kept all the same: there is no copy of them ([`Walkable::copied`](crate::Walkable::copied)), or the model runs them by a function
/// of their own, such as [`MultiheadAttention::attend`](crate::layers::MultiheadAttention::attend).
///
/// ```
/// use kiln_nn::autograd::checkpoint_layers_told;
/// # use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::{Hooked, Linear, Relu}};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// # let x = Tensor::ones(&cpu, &[4, 8], DType::F32)?;
/// let net = Sequential::new().push(Linear::new(init, 8, 8)?).push(Hooked::new(Linear::new(init, 8, 8)?));
/// let (_, left) = checkpoint_layers_told(&net, |_| true, || net.forward(&x))?;
/// assert_eq!(left, [("1".to_string(), "Linear")]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `f`.
pub fn checkpoint_layers_told<B: Backend, M: Module<B> + ?Sized, R>(
    model: &M,
    select: impl Fn(&str) -> bool,
    f: impl FnOnce() -> Result<R>,
) -> Result<(R, Vec<(String, &'static str)>)> {
    let mut names = HashMap::new();
    for (name, id) in modules(model).into_iter().filter(|(name, _)| select(name)) {
        names.entry(id).or_insert(name);
    }
    let selected = Rc::new(Selected {
        names,
        left: RefCell::default(),
    });
    let _restore = Restore::to(Some(Rc::clone(&selected)));
    let result = f()?;
    Ok((result, selected.left.take().into_iter().collect()))
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

/// True if one of these modules is selected and there will be gradients.
pub(crate) fn selects(ids: &[ModuleId]) -> bool {
    is_on() && selection(ids).is_some()
}

/// The selection, if it has one of these modules and there will be gradients.
fn selection(ids: &[ModuleId]) -> Selection {
    let selected = SELECTED.with_borrow(Clone::clone)?;
    (is_grad_enabled() && ids.iter().any(|id| selected.names.contains_key(id))).then_some(selected)
}

impl Selected {
    /// Notes a layer that runs as it does without.
    fn leave(&self, id: ModuleId, kind: &'static str) {
        if let Some(name) = self.names.get(&id) {
            self.left.borrow_mut().insert(name.clone(), kind);
        }
    }
}

/// Notes that a module runs by a function of its own, in which it cannot be computed again.
pub(crate) fn runs_otherwise<B: Backend, M: Module<B> + ?Sized>(module: &M) {
    let id = module.module_id();
    if let Some(selected) = selection(&[id]) {
        selected.leave(id, module.kind());
    }
}

/// Runs a layer by `call`: checkpointed if it is selected and there is a copy of it.
pub(crate) fn layer<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    x: &Tensor<B>,
    call: &dyn Fn() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    let id = module.module_id();
    let Some(selected) = selection(&[id]) else {
        return call();
    };
    let Some(copy) = module.copied() else {
        selected.leave(id, module.kind());
        return call();
    };
    // Layers inside of this one are computed again with it.
    let _inside = Restore::to(None);
    checkpoint_layer(module, || copy, x, call)
}

/// Runs a layer and one without parameters behind it as one op by `call`, checkpointed if one of the two is selected.
pub(crate) fn fused<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    behind: ModuleId,
    copy: impl FnOnce() -> Box<dyn Runnable<B>>,
    x: &Tensor<B>,
    call: &dyn Fn() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    match selection(&[module.module_id(), behind]) {
        None => call(),
        Some(_) => checkpoint_layer(module, copy, x, call),
    }
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
