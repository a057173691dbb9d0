//! The record of a step: a flat list of marks, and the tree of scopes that they name.

use kiln_core::ops::{AttentionParams, Binary, ConvParams, PoolParams, Reduce, Unary};
use kiln_core::{Cost, Observer, Scope, Shape};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The numbers of an op, for its span in a trace.
#[derive(Clone, Copy, Debug)]
pub enum Detail {
    /// Elements of the result.
    Elements(u64),
    /// A function of one tensor, or its gradient, and the elements of the result.
    Unary(Unary, u64),
    /// A function of two tensors and the elements of the result.
    Binary(Binary, u64),
    /// A reduction and the elements of what it reduces.
    Reduce(Reduce, u64),
    /// A convolution or one of its gradients, and the backend's algorithm for it.
    Conv(ConvParams, Option<&'static str>),
    /// A pooling or its gradient.
    Pool(PoolParams),
    /// Attention or its gradient.
    Attention(AttentionParams),
    /// A product: how many, `m`, `n`, `k`; and the backend's algorithm for it.
    Product([u64; 4], Option<&'static str>),
}

/// Something that happened, in nanoseconds after the watching began.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A scope begins.
    Enter {
        /// When.
        at: u64,
        /// The scope, an index of [`Timeline::scopes`].
        scope: u32,
        /// For a gradient: that of which op.
        gradient: Option<&'static str>,
    },
    /// The innermost scope ends.
    Leave {
        /// When.
        at: u64,
    },
    /// An op ran.
    Op {
        /// When it began.
        start: u64,
        /// When it was done.
        end: u64,
        /// Its name, as in the backend's trait.
        name: &'static str,
        /// The least that it takes.
        cost: Cost,
        /// Its numbers.
        detail: Detail,
    },
}

/// A place in the program: a layer with inputs of one shape, or a named part of the step.
#[derive(Clone, Debug)]
pub struct ScopeInfo {
    /// The scope around it; the first scope is its own.
    pub parent: u32,
    /// Dotted path of a layer, name of a part.
    pub name: String,
    /// Type of a layer; empty for a part.
    pub kind: &'static str,
    /// Shape of a layer's input.
    pub input: Option<Shape>,
    /// Shape of a layer's output.
    pub output: Option<Shape>,
    field: String,
    inner: Vec<u32>,
}

impl ScopeInfo {
    /// True if it is a layer, rather than a part of the step.
    pub fn is_layer(&self) -> bool {
        self.input.is_some()
    }
}

/// One watched step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// When it began, in nanoseconds after the watching began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The events, in order of ends.
    pub marks: Vec<Mark>,
}

/// Everything that was watched.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The scopes; the first is the step itself.
    pub scopes: Vec<ScopeInfo>,
    /// The steps.
    pub steps: Vec<Step>,
}

struct State {
    timeline: Timeline,
    /// The step in progress.
    step: Option<Step>,
    /// Open scopes.
    open: Vec<u32>,
}

/// Keeps marks while a step is in progress.
pub(crate) struct Recorder {
    began: Instant,
    /// True while a step is in progress.
    on: AtomicBool,
    state: Mutex<State>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let root = ScopeInfo {
            parent: 0,
            name: "step".to_string(),
            kind: "",
            input: None,
            output: None,
            field: String::new(),
            inner: Vec::new(),
        };
        let timeline = Timeline {
            scopes: vec![root],
            steps: Vec::new(),
        };
        Recorder {
            began: Instant::now(),
            on: AtomicBool::new(false),
            state: Mutex::new(State {
                timeline,
                step: None,
                open: Vec::new(),
            }),
        }
    }

    /// The lock; a panic elsewhere leaves nothing half-done that a later step would read.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the watching began.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// True while a step is in progress: outside of one nothing is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.open.clear();
        state.step = Some(Step {
            start: self.now(),
            ..Step::default()
        });
    }

    pub(crate) fn end(&self, keep: bool) {
        let end = self.now();
        self.on.store(false, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(mut step) = state.step.take().filter(|_| keep) {
            step.end = end;
            state.timeline.steps.push(step);
        }
    }

    /// Begins a named part of the step.
    pub(crate) fn enter_part(&self, name: &str) {
        self.open(name, "", None);
    }

    fn open(&self, field: &str, kind: &'static str, input: Option<Shape>) {
        let mut state = self.state();
        if state.step.is_none() {
            return;
        }
        let parent = state.open.last().copied().unwrap_or(0);
        let scope = state.timeline.child(parent, field, kind, input);
        // After the look-up: watching is not the layer's time.
        state.mark_enter(self.now(), scope, None);
    }

    pub(crate) fn op(&self, mark: Mark) {
        self.state().mark(mark);
    }

    pub(crate) fn timeline(&self) -> Timeline {
        self.state().timeline.clone()
    }
}

impl Observer for Recorder {
    fn enter(&self, scope: &Scope<'_>) {
        match *scope {
            Scope::Layer { name, kind, input } => self.open(name, kind, Some(*input)),
            Scope::Gradient { op, of } => {
                let at = self.now();
                let mut state = self.state();
                let scope = if (of as usize) < state.timeline.scopes.len() {
                    of
                } else {
                    0
                };
                state.mark_enter(at, scope, Some(op));
            }
        }
    }

    fn leave(&self, output: Option<&Shape>) {
        let at = self.now();
        let mut state = self.state();
        let Some(scope) = state.open.pop() else { return };
        if let Some(shape) = output {
            state.timeline.scopes[scope as usize].output = Some(*shape);
        }
        state.mark(Mark::Leave { at });
    }

    fn scope(&self) -> u32 {
        self.state().open.last().copied().unwrap_or(0)
    }
}

impl State {
    fn mark(&mut self, mark: Mark) {
        if let Some(step) = &mut self.step {
            step.marks.push(mark);
        }
    }

    fn mark_enter(&mut self, at: u64, scope: u32, gradient: Option<&'static str>) {
        if self.step.is_some() {
            self.open.push(scope);
            self.mark(Mark::Enter { at, scope, gradient });
        }
    }
}

impl Timeline {
    /// The scope of that field in `parent`, made when it is met for the first time.
    fn child(&mut self, parent: u32, field: &str, kind: &'static str, input: Option<Shape>) -> u32 {
        let outer = &self.scopes[parent as usize];
        let known = outer.inner.iter().copied().find(|&i| {
            let scope = &self.scopes[i as usize];
            scope.field == field && scope.input == input
        });
        if let Some(known) = known {
            return known;
        }
        let name = match outer.is_layer() && input.is_some() {
            true => format!("{}.{field}", outer.name),
            false => field.to_string(),
        };
        let scope = self.scopes.len() as u32;
        self.scopes[parent as usize].inner.push(scope);
        self.scopes.push(ScopeInfo {
            parent,
            name,
            kind,
            input,
            output: None,
            field: field.to_string(),
            inner: Vec::new(),
        });
        scope
    }
}
