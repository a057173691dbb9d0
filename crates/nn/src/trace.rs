//! Forward passes layer by layer: errors that name the layer, traces for `kiln summary`, scopes for a profile.
//!
//! Every forward pass runs inside of a [`scope`]; [`Layer::forward`](crate::Layer::forward) opens one. A module does not know
//! the field that keeps it, so names are found by a walk over the fields of the modules around it: when there is an error,
//! and once for each outermost pass while a trace or a profile is on. Otherwise no name is made.

use crate::autograd::recompute;
use crate::module::{Module, modules};
use crate::predict::Samples;
use crate::watch::{self, Watch};
use crate::{Backend, Error, Result, Shape, Tensor, no_grad};
use kiln_core::{ModuleId, Scope};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// One call of a layer.
///
/// See the example of [`trace`].
#[derive(Clone, Debug, PartialEq)]
pub struct LayerCall {
    /// Dotted path of the layer in the module that was called first.
    pub path: String,
    /// The layer's type: `Conv2d`.
    pub kind: &'static str,
    /// The number of layers around this one.
    pub depth: usize,
    /// True if the layer called inner layers.
    pub container: bool,
    /// Shape of the input.
    pub input: Shape,
    /// Shape of the output.
    pub output: Shape,
    /// Bytes of the output.
    pub output_bytes: usize,
    /// Number of parameters, those of inner layers included.
    pub parameters: usize,
    /// Floating-point operations, those of inner layers included, a multiply-add counted as two.
    pub flops: u64,
}

/// The calls of a trace.
#[derive(Default)]
struct Tracer {
    calls: Vec<LayerCall>,
    /// True if outputs are checked for NaN and infinity.
    looks: bool,
    /// The first call whose output was not finite.
    bad: Option<usize>,
}

/// A forward pass in progress.
#[derive(Default)]
struct Open {
    /// The path of its module in the outermost module, whose own path is empty.
    path: String,
    /// The number of calls of each module so far.
    called: HashMap<ModuleId, usize>,
}

/// The forward passes of this thread while a trace or a profile is on.
#[derive(Default)]
struct State {
    tracer: Option<Tracer>,
    /// The paths of all modules in the outermost one. Modules of size zero may share one address and so one id.
    paths: HashMap<ModuleId, Vec<String>>,
    /// The model that the paths are in, if it was given; its own pass has no name.
    model: Option<ModuleId>,
    /// The passes in progress, from the outermost to the innermost.
    open: Vec<Open>,
}

thread_local! {
    /// True while this thread is traced.
    static ON: Cell<bool> = const { Cell::new(false) };
    static STATE: RefCell<State> = RefCell::default();
}

/// Runs `f` and reports every layer that it called on this thread, outer layers before inner. The outermost module, which
/// `f` calls itself, has no name and is not reported. The calls of a trace inside of a trace are reported by the inner
/// one only.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::{Conv2d, Relu}, trace};
/// # let cpu = kiln_cpu::Cpu::new();
/// let conv = Conv2d::new(&mut Init::new(&cpu, 0), 3, 8, 3)?;
/// let net = Sequential::new().push_named("conv1", conv)?.push(Relu);
/// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
/// let (y, calls) = trace::trace(|| net.forward(&x));
/// assert_eq!((&calls[0].path[..], calls[0].parameters, calls[1].kind), ("conv1", 8 * 27 + 8, "Relu"));
/// assert_eq!(&calls[1].output, y?.shape());
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn trace<R>(f: impl FnOnce() -> R) -> (R, Vec<LayerCall>) {
    let (result, tracer) = traced(Tracer::default(), f);
    (result, tracer.calls)
}

/// Runs `f` and returns the first of the layers that [`trace`] would report whose output has a NaN or infinite value.
/// An inner layer comes before the outer one that it belongs to. This is slow: it waits for every output.
///
/// ```
/// # use kiln_nn::{DType, Layer, Sequential, Tensor, layers::{Lambda, Relu}, trace};
/// # let cpu = kiln_cpu::Cpu::new();
/// let net = Sequential::new().push(Relu).push_named("log", Lambda::new(|x| x.log()))?;
/// let (_, bad) = trace::first_non_finite(|| net.forward(&Tensor::zeros(&cpu, &[2], DType::F32)?));
/// assert_eq!(bad.map(|call| call.path), Some("log".to_string()));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn first_non_finite<R>(f: impl FnOnce() -> R) -> (R, Option<LayerCall>) {
    let looking = Tracer {
        looks: true,
        ..Tracer::default()
    };
    let (result, tracer) = traced(looking, f);
    (result, tracer.bad.and_then(|i| tracer.calls.into_iter().nth(i)))
}

fn traced<R>(tracer: Tracer, f: impl FnOnce() -> R) -> (R, Tracer) {
    let state = State {
        tracer: Some(tracer),
        ..State::default()
    };
    let (result, state) = swapped(state, f);
    (result, state.tracer.unwrap_or_default())
}

/// Runs `f` with passes reported to `state`, which is returned as it is then.
fn swapped<R>(state: State, f: impl FnOnce() -> R) -> (R, State) {
    struct Restore(bool, Option<State>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.1.take() {
                ON.set(self.0);
                STATE.replace(before);
            }
        }
    }
    let mut restore = Restore(ON.replace(true), Some(STATE.replace(state)));
    let result = f();
    let ours = restore.1.take().map(|before| STATE.replace(before));
    ON.set(restore.0);
    (result, ours.unwrap_or_default())
}

/// Runs `f` and tells `watch` every op of the forward and backward passes that `f` makes on this thread, with the layer of `model`
/// that it belongs to. Returns the watch too. Of a watch inside of a watch the inner one is told.
///
/// ```
/// use kiln_nn::watch::{OpCall, OpName, Watch};
/// use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::{Linear, Relu}, trace};
///
/// /// Keeps the names of ops.
/// struct Names(Vec<OpName>);
///
/// impl Watch for Names {
///     fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
///         self.0.push(call.name());
///         None
///     }
/// }
///
/// # let cpu = kiln_cpu::Cpu::new();
/// let net = Sequential::new().push_named("fc", Linear::new(&mut Init::new(&cpu, 0), 3, 2)?)?.push(Relu);
/// let x = Tensor::ones(&cpu, &[1, 3], DType::F32)?;
/// let (loss, names) = trace::ops(&net, Names(Vec::new()), || net.forward(&x)?.sum(&[], false)?.backward());
/// let names: Vec<String> = names.0.iter().map(|name| name.to_string()).collect();
/// assert_eq!(names[0], "the forward pass of op `linear` in layer `fc`");
/// assert_eq!(names.last().unwrap(), "the gradient of op `linear` in layer `fc`");
/// # loss?;
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn ops<B, M, W, R>(model: &M, watch: W, f: impl FnOnce() -> R) -> (R, W)
where
    B: Backend,
    M: Module<B> + ?Sized,
    W: Watch,
{
    let state = State {
        paths: by_id(modules(model)),
        model: Some(model.module_id()),
        open: vec![Open::default()],
        ..State::default()
    };
    swapped(state, || watch::with(watch, f)).0
}

/// True while a trace is on.
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// Runs `body`, the forward pass of `module` on `x`, so that errors, traces and profiles name its layers. For modules
/// that are no [`Layer`](crate::Layer) because their input is not one tensor. Of several inputs, `x` is the one whose
/// shape is shown.
///
/// ```
/// # use kiln_nn::{Backend, Layer, Module, Result, Tensor, layers::Linear, trace};
/// #[derive(Module)]
/// struct Pair<B: Backend> {
///     left: Linear<B>,
///     right: Linear<B>,
/// }
///
/// impl<B: Backend> Pair<B> {
///     fn forward(&self, x: &Tensor<B>, y: &Tensor<B>) -> Result<Tensor<B>> {
///         trace::scope(self, x, || self.left.forward(x)?.add(&self.right.forward(y)?))
///     }
/// }
/// ```
///
/// # Errors
/// That of `body`, with the name of the layer that it came from.
pub fn scope<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    x: &impl Samples<B>,
    body: impl FnOnce() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    if recompute::is_on() && x.as_tensor().is_some() {
        recompute::runs_otherwise(module);
    }
    run(module, None, x, |_, _| 0, body)
}

/// Runs `body`, which calls several modules inside of `module`, so that errors, traces and profiles name their layers by their paths in
/// `module`: the losses of a model that has no forward pass of its own, such as a GAN. Inside of another pass it changes nothing.
///
/// ```
/// # use kiln_nn::{Backend, DType, Init, Layer, Module, Result, Tensor, layers::Linear, trace};
/// #[derive(Module)]
/// struct Gan<B: Backend> {
///     generator: Linear<B>,
///     critic: Linear<B>,
/// }
///
/// impl<B: Backend> Gan<B> {
///     fn loss(&self, noise: &Tensor<B>) -> Result<Tensor<B>> {
///         trace::within(self, noise, || {
///             self.critic.forward(&self.generator.forward(noise)?)?.mean(&[], false)
///         })
///     }
/// }
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let gan = Gan { generator: Linear::new(init, 4, 9)?, critic: Linear::new(init, 9, 1)? };
/// let noise = Tensor::zeros(&cpu, &[2, 4], DType::F32)?;
/// let (_, calls) = trace::trace(|| gan.loss(&noise));
/// assert_eq!(calls.iter().map(|call| call.path.as_str()).collect::<Vec<_>>(), ["generator", "critic"]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of `body`, with the name of the layer that they came from.
pub fn within<B: Backend, M: Module<B> + ?Sized, R>(
    module: &M,
    x: &impl Samples<B>,
    body: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let (modules, parameters) = (|| modules(module), || module.num_parameters());
    let pass = || Pass {
        ids: vec![module.module_id()],
        kind: module.kind(),
        backend: x.backend(),
        input: x.shape(),
        modules: &modules,
        parameters: &parameters,
        flops: &|_, _| 0,
    };
    let watched = is_on() || x.backend().observer().is_some();
    let result = match watched && STATE.with_borrow(|state| state.open.is_empty()) {
        false => body(),
        true => {
            let paths = paths(&pass());
            STATE.with_borrow_mut(|state| {
                state.paths = paths;
                state.enter(String::new());
            });
            let _close = Close;
            body()
        }
    };
    result.map_err(|e| failed(e, &pass()))
}

/// Runs `body` as a part of a step with this name, outside of any layer, so that a profile has a row for it: a loss, say.
///
/// ```
/// # use kiln_nn::{DType, Tensor, trace};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let logits = Tensor::zeros(&cpu, &[2, 3], DType::F32)?;
/// let loss = trace::part(&cpu, "loss", || logits.square()?.mean(&[], false))?;
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub fn part<B: Backend, R>(backend: &B, name: &str, body: impl FnOnce() -> R) -> R {
    let Some(observer) = backend.observer() else {
        return body();
    };
    observer.enter(&Scope::Part { name });
    let result = body();
    observer.leave(None);
    result
}

/// Ends a pass when dropped, also by a panic.
struct Close;

impl Drop for Close {
    fn drop(&mut self) {
        STATE.with_borrow_mut(|state| state.open.pop());
        watch::leave();
    }
}

/// The layer of a forward pass. Whatever depends on the layer's type is behind a function, so that all types share the code
/// that reports a pass.
struct Pass<'p, B: Backend> {
    /// The ids of the modules that run as one layer.
    ids: Vec<ModuleId>,
    kind: &'static str,
    backend: &'p B,
    input: &'p Shape,
    /// The modules inside of the layer.
    modules: &'p dyn Fn() -> Vec<(String, ModuleId)>,
    /// The number of parameters.
    parameters: &'p dyn Fn() -> usize,
    /// The floating-point operations of the layer itself, from the shapes of input and output.
    flops: &'p dyn Fn(&Shape, &Shape) -> u64,
}

/// As [`scope`], where `flops` gives the floating-point operations of the module itself from the shapes of input and output. If
/// `with` is given, `module` and that other module run as one layer of the given type.
#[inline]
pub(crate) fn run<B: Backend, M: Module<B> + ?Sized>(
    module: &M,
    with: Option<(ModuleId, &'static str)>,
    x: &impl Samples<B>,
    flops: impl Fn(&Shape, &Shape) -> u64,
    body: impl FnOnce() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    let (modules, parameters) = (|| modules(module), || module.num_parameters());
    let pass = || {
        let (ids, kind) = match with {
            None => (vec![module.module_id()], module.kind()),
            Some((other, kind)) => (vec![module.module_id(), other], kind),
        };
        Pass {
            ids,
            kind,
            backend: x.backend(),
            input: x.shape(),
            modules: &modules,
            parameters: &parameters,
            flops: &flops,
        }
    };
    let y = match is_on() || x.backend().observer().is_some() {
        false => body(),
        true => observed(&pass(), Box::new(body)),
    };
    y.map_err(|e| failed(e, &pass()))
}

/// The error of a pass, with the path of the inner layer that it came from.
#[cold]
#[compiled_once]
fn failed<B: Backend>(e: Error, pass: &Pass<'_, B>) -> Error {
    e.leaving(&pass.ids, pass.kind, &|left, kind| {
        let paths = paths(pass);
        path_of(left, kind, &|id| paths.get(&id).cloned().unwrap_or_default(), &|_| 0)
    })
}

/// The paths of the modules inside of the layer.
fn paths<B: Backend>(pass: &Pass<'_, B>) -> HashMap<ModuleId, Vec<String>> {
    by_id((pass.modules)())
}

fn by_id(modules: Vec<(String, ModuleId)>) -> HashMap<ModuleId, Vec<String>> {
    let mut paths: HashMap<ModuleId, Vec<String>> = HashMap::new();
    for (path, id) in modules {
        paths.entry(id).or_default().push(path);
    }
    paths
}

/// The path of the modules `ids` in a module, from the `paths` that each id has in it; `kind` if an id has none, such as
/// a layer made inside of the forward pass. Modules of size zero may share an id: they are sorted by depth, then in the
/// order of the walk, and `turn` selects one.
fn path_of(
    ids: &[ModuleId],
    kind: &str,
    paths: &dyn Fn(ModuleId) -> Vec<String>,
    turn: &dyn Fn(ModuleId) -> usize,
) -> String {
    let path = |&id: &ModuleId| {
        let mut found = paths(id);
        found.sort_by_key(|path| path.matches('.').count());
        let turn = turn(id) % found.len().max(1);
        found.into_iter().nth(turn)
    };
    let found: Option<Vec<String>> = ids.iter().map(path).collect();
    found.map_or_else(|| kind.to_string(), |paths| paths.join("+"))
}

/// Runs a forward pass and reports it to the trace and the profile, unless it is the outermost, which has no name.
#[cold]
#[compiled_once]
fn observed<B: Backend>(pass: &Pass<'_, B>, body: Box<dyn FnOnce() -> Result<Tensor<B>> + '_>) -> Result<Tensor<B>> {
    if STATE.with_borrow(|state| state.open.is_empty()) {
        let paths = paths(pass);
        STATE.with_borrow_mut(|state| {
            state.paths = paths;
            state.enter(String::new());
        });
        let _close = Close;
        return body();
    }
    if STATE.with_borrow(|state| state.model.is_some_and(|model| pass.ids == [model])) {
        return body();
    }
    let (name, index) = STATE.with_borrow_mut(|state| state.begin(&pass.ids, pass.kind));
    let _close = Close;
    let observer = pass.backend.observer();
    if let Some(observer) = observer {
        let (name, kind, input) = (&name, pass.kind, pass.input);
        observer.enter(&Scope::Layer { name, kind, input });
    }
    let y = body();
    if let Some(index) = index {
        report(index, pass, y.as_ref());
    }
    if let Some(observer) = observer {
        observer.leave(y.as_ref().ok().map(Tensor::shape));
    }
    y
}

impl State {
    fn enter(&mut self, path: String) {
        watch::enter(&path);
        self.open.push(Open {
            path,
            called: HashMap::new(),
        });
    }

    /// Opens the pass of a layer; returns its path in its caller, and its index in the trace if there is one.
    fn begin(&mut self, ids: &[ModuleId], kind: &'static str) -> (String, Option<usize>) {
        let depth = self.open.len() - 1;
        let (paths, caller) = (&self.paths, &mut self.open[depth]);
        let inside = |id: ModuleId| {
            let all = paths.get(&id).into_iter().flatten();
            all.filter_map(|path| relative(path, &caller.path)).collect()
        };
        let turn = |id: ModuleId| caller.called.get(&id).copied().unwrap_or(0);
        let name = path_of(ids, kind, &inside, &turn);
        ids.iter().for_each(|&id| *caller.called.entry(id).or_default() += 1);
        let path = match &caller.path[..] {
            "" => name.clone(),
            outer => format!("{outer}.{name}"),
        };
        let index = self.tracer.as_mut().map(|tracer| {
            // The caller's entry is the last one above this depth.
            if let Some(outer) = tracer.calls.iter_mut().rev().find(|c| c.depth + 1 == depth) {
                outer.container = true;
            }
            tracer.calls.push(LayerCall {
                path: path.clone(),
                kind,
                depth,
                container: false,
                input: Shape::scalar(),
                output: Shape::scalar(),
                output_bytes: 0,
                parameters: 0,
                flops: 0,
            });
            tracer.calls.len() - 1
        });
        self.enter(path);
        (name, index)
    }
}

/// The rest of `path` after `around`, the path of a module around it.
fn relative(path: &str, around: &str) -> Option<String> {
    match around {
        "" => Some(path.to_string()),
        around => Some(path.strip_prefix(around)?.strip_prefix('.')?.to_string()),
    }
}

/// Completes the entry of a layer in the trace, or removes it with those of its inner layers if the layer has failed.
fn report<B: Backend>(index: usize, pass: &Pass<'_, B>, y: Result<&Tensor<B>, &Error>) {
    let looks = STATE.with_borrow(|state| state.tracer.as_ref().is_some_and(|t| t.looks && t.bad.is_none()));
    // A device that fails here fails again where the result is read, and the error is reported there.
    let bad = looks && y.is_ok_and(|y| !is_finite(y).unwrap_or(true));
    STATE.with_borrow_mut(|state| {
        let Some(tracer) = &mut state.tracer else { return };
        let Ok(y) = y else {
            tracer.calls.truncate(index);
            return;
        };
        if bad {
            tracer.bad = Some(index);
        }
        let depth = tracer.calls[index].depth;
        let inner = tracer.calls[index + 1..].iter().filter(|c| c.depth == depth + 1);
        let inner: u64 = inner.map(|c| c.flops).sum();
        let call = &mut tracer.calls[index];
        (call.input, call.output) = (*pass.input, *y.shape());
        call.output_bytes = y.size() * y.dtype().size();
        call.parameters = (pass.parameters)();
        call.flops = inner.saturating_add((pass.flops)(pass.input, y.shape()));
    });
}

/// True if every value is finite, by the largest magnitude, which the device computes.
fn is_finite<B: Backend>(y: &Tensor<B>) -> Result<bool> {
    if y.size() == 0 {
        return Ok(true);
    }
    no_grad(|| Ok(y.detach().abs()?.max(&[], false)?.item()?.is_finite()))
}
