//! The walk over a module's fields, which carries the dotted path; all methods of modules are built on it.

use super::param::Param;
use super::state::{Counter, Mode, State};
use crate::{Backend, Result, Tensor};
use kiln_core::ModuleId;
use std::any::Any;

/// A type whose parameters and buffers can be visited. `#[derive(Module)]` implements it for structs whose fields are
/// modules, and every type that has it is a [`Module`](super::Module).
///
/// ```
/// # use kiln_nn::{Backend, DType, Module, Param, Tensor, Walk, WalkMut, Walkable};
/// # let cpu = kiln_cpu::Cpu::new();
/// /// Two parameters, walked by hand as a derived walk would.
/// struct Pair<B: Backend>(Param<B>, Param<B>);
///
/// impl<B: Backend> Walkable<B> for Pair<B> {
///     fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
///         walk.field("left", &self.0);
///         walk.field("right", &self.1);
///     }
///     fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
///         walk.field("left", &mut self.0);
///         walk.field("right", &mut self.1);
///     }
/// }
/// let zeros = || Tensor::zeros(&cpu, &[2], DType::F32).map(Param::new);
/// assert_eq!(Pair(zeros()?, zeros()?).named_parameters()[1].0, "right");
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module",
    label = "no module, and no plain data",
    note = "derive `Module` for it, or leave the field out with `#[module(skip)]`"
)]
pub trait Walkable<B: Backend>: Send + Sync {
    /// The name of the type, as error messages and summaries show it: `Conv2d`.
    ///
    /// ```
    /// # use kiln_nn::{Init, Walkable, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// assert_eq!(Linear::new(init, 4, 2)?.kind(), "Linear");
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn kind(&self) -> &'static str {
        let full = std::any::type_name::<Self>();
        let path = full.split('<').next().unwrap_or(full);
        path.rsplit("::").next().unwrap_or(path)
    }

    /// Identifies this module among those of a model as long as the model is not moved: errors and traces find field names
    /// by it. A module that only wraps another one, such as a `Box`, returns the inner module's id.
    ///
    /// ```
    /// # use kiln_nn::{Init, Walkable, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let layer = Box::new(Linear::new(init, 4, 2)?);
    /// assert_eq!(layer.module_id(), (*layer).module_id());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn module_id(&self) -> ModuleId {
        ModuleId::of(self)
    }

    /// A copy of this module that can run, if it is a layer that can be cloned; `None` otherwise. It shares the memory of the
    /// parameters and buffers until one of the two changes. Activation checkpointing computes such copies again
    /// ([`checkpoint_layers`](crate::autograd::checkpoint_layers)).
    ///
    /// `#[derive(Module)]` writes this for structs without lifetimes whose type parameters, but for the backend, have the bound
    /// `'static`. A tuple of layers that can be copied can be copied.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, Walkable, layers::Linear};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let x = Tensor::ones(&cpu, &[1, 4], DType::F32)?;
    /// let copy = Linear::new(init, 4, 2)?.copied().expect("it is a layer, and it can be cloned");
    /// assert_eq!(copy.run(&x)?.shape().dims(), [1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        None
    }

    /// Visits every field in order.
    ///
    /// See the example of [`Walkable`].
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>);

    /// Visits every field in the same order, mutable.
    ///
    /// See the example of [`Walkable`].
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>);
}

/// A copy of a layer: [`Walkable::copied`]. Every [`Layer`](crate::Layer) that can be cloned is one.
///
/// See the example of [`Walkable::copied`].
pub trait Runnable<B: Backend>: Walkable<B> {
    /// The layer's function, as [`Layer::call`](crate::Layer::call).
    ///
    /// See the example of [`Walkable::copied`].
    ///
    /// # Errors
    /// Those of the layer.
    fn run(&self, x: &Tensor<B>) -> Result<Tensor<B>>;

    /// Another copy.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, Walkable, layers::Linear, module::Runnable};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// # let x = Tensor::ones(&cpu, &[1, 4], DType::F32)?;
    /// let layer = Linear::new(init, 4, 2)?;
    /// assert_eq!(layer.duplicate().run(&x)?.to_f64()?, layer.run(&x)?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    fn duplicate(&self) -> Box<dyn Runnable<B>>;
}

/// A parameter, buffer, counter or mode that a walk visits.
///
/// See the example of [`Walk`].
#[derive(Debug)]
pub enum Entry<'a, B: Backend> {
    /// A parameter.
    Param(&'a Param<B>),
    /// A buffer of floats.
    State(&'a State<B>),
    /// A counter on the device.
    Counter(&'a Counter<B>),
    /// The mode of a layer.
    Mode(&'a Mode),
}

/// A parameter, buffer, counter or mode that a walk visits, mutable.
///
/// See the example of [`WalkMut`].
#[derive(Debug)]
pub enum EntryMut<'a, B: Backend> {
    /// A parameter.
    Param(&'a mut Param<B>),
    /// A buffer of floats.
    State(&'a mut State<B>),
    /// A counter on the device.
    Counter(&'a mut Counter<B>),
    /// The mode of a layer.
    Mode(&'a mut Mode),
}

/// Appends a field's name to the path; returns the length to which the path is cut after the visit.
fn push(path: &mut String, name: &str) -> usize {
    let len = path.len();
    if len > 0 {
        path.push('.');
    }
    path.push_str(name);
    len
}

/// The function that a walk calls: with every parameter and buffer, or with every module.
enum Visit<'w, 'a, B: Backend> {
    Entries(&'w mut dyn FnMut(&str, Entry<'a, B>)),
    Modules(&'w mut dyn FnMut(&str, &'a dyn Walkable<B>)),
}

/// A walk over a module's parameters and buffers.
///
/// ```
/// # use kiln_nn::{Entry, Init, State, Walk, Walkable, layers::BatchNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let (norm, mut states) = (BatchNorm::new(init, 3)?, Vec::new());
/// norm.walk(&mut Walk::new(&mut |name, entry| {
///     if let Entry::State(_) = entry {
///         states.push(name.to_string());
///     }
/// }));
/// assert_eq!(states, ["running_mean", "running_var"]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Walk<'w, 'a, B: Backend> {
    path: String,
    visit: Visit<'w, 'a, B>,
}

impl<'w, 'a, B: Backend> Walk<'w, 'a, B> {
    /// A walk from the root of a model that calls `visit` with dotted names.
    ///
    /// See the example of [`Walk`].
    pub fn new(visit: &'w mut dyn FnMut(&str, Entry<'a, B>)) -> Self {
        Walk {
            path: String::new(),
            visit: Visit::Entries(visit),
        }
    }

    /// A walk that calls `visit` with every field, outer fields before inner ones: modules, lists, parameters and
    /// plain data alike.
    pub(super) fn modules(visit: &'w mut dyn FnMut(&str, &'a dyn Walkable<B>)) -> Self {
        Walk {
            path: String::new(),
            visit: Visit::Modules(visit),
        }
    }

    /// Visits a field under its name.
    ///
    /// See the example of [`Walkable`].
    pub fn field(&mut self, name: &str, module: &'a dyn Walkable<B>) {
        let len = push(&mut self.path, name);
        if let Visit::Modules(visit) = &mut self.visit {
            visit(&self.path, module);
        }
        module.walk(self);
        self.path.truncate(len);
    }

    /// Reports an entry at the present path.
    pub(super) fn entry(&mut self, entry: Entry<'a, B>) {
        if let Visit::Entries(visit) = &mut self.visit {
            visit(&self.path, entry);
        }
    }
}

impl<B: Backend> std::fmt::Debug for Walk<'_, '_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({})", self.path)
    }
}

/// A walk over a module's parameters and buffers, for changing them.
///
/// ```
/// # use kiln_nn::{EntryMut, Init, Mode, WalkMut, Walkable, layers::Dropout};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut dropout = Dropout::new(init, 0.5)?;
/// dropout.walk_mut(&mut WalkMut::new(&mut |_, entry| {
///     if let EntryMut::Mode(mode) = entry {
///         mode.set_training(false); // as `eval` does it
///     }
/// }));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct WalkMut<'w, 'a, B: Backend> {
    path: String,
    visit: VisitMut<'w, 'a, B>,
}

/// The function that a mutable walk calls: with every parameter and buffer, or with the layers that show themselves to it.
enum VisitMut<'w, 'a, B: Backend> {
    Entries(&'w mut dyn FnMut(&str, EntryMut<'a, B>)),
    Layers(&'w mut dyn FnMut(&str, &mut dyn Any)),
}

impl<'w, 'a, B: Backend> WalkMut<'w, 'a, B> {
    /// A walk from the root of a model that calls `visit` with dotted names.
    ///
    /// See the example of [`WalkMut`].
    pub fn new(visit: &'w mut dyn FnMut(&str, EntryMut<'a, B>)) -> Self {
        WalkMut {
            path: String::new(),
            visit: VisitMut::Entries(visit),
        }
    }

    /// A walk that calls `visit` with the layers that show themselves by [`layer`](WalkMut::layer).
    pub(crate) fn layers(visit: &'w mut dyn FnMut(&str, &mut dyn Any)) -> Self {
        WalkMut {
            path: String::new(),
            visit: VisitMut::Layers(visit),
        }
    }

    /// Shows a layer to a walk over layers; false if the walk is one over entries, to which its fields are shown.
    pub(crate) fn layer(&mut self, layer: &mut dyn Any) -> bool {
        match &mut self.visit {
            VisitMut::Entries(_) => false,
            VisitMut::Layers(visit) => {
                visit(&self.path, layer);
                true
            }
        }
    }

    /// Visits a field under its name.
    ///
    /// See the example of [`Walkable`].
    pub fn field(&mut self, name: &str, module: &'a mut dyn Walkable<B>) {
        let len = push(&mut self.path, name);
        module.walk_mut(self);
        self.path.truncate(len);
    }

    /// Reports an entry at the present path.
    pub(super) fn entry(&mut self, entry: EntryMut<'a, B>) {
        if let VisitMut::Entries(visit) = &mut self.visit {
            visit(&self.path, entry);
        }
    }
}

impl<B: Backend> std::fmt::Debug for WalkMut<'_, '_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WalkMut({})", self.path)
    }
}

impl<B: Backend> Walkable<B> for Param<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.entry(Entry::Param(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        walk.entry(EntryMut::Param(self));
    }
}

impl<B: Backend> Walkable<B> for State<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.entry(Entry::State(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        walk.entry(EntryMut::State(self));
    }
}

impl<B: Backend> Walkable<B> for Counter<B> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.entry(Entry::Counter(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        walk.entry(EntryMut::Counter(self));
    }
}

impl<B: Backend> Walkable<B> for Mode {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        walk.entry(Entry::Mode(self));
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        walk.entry(EntryMut::Mode(self));
    }
}
