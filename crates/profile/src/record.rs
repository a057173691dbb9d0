//! The record of a step: a flat list of marks, and the tree of scopes that the marks refer to.

use kiln_core::ops::{AttentionParams, Binary, ConvParams, PoolParams, Reduce, Unary};
use kiln_core::{Cost, Observer, Scope, Shape};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The function, shape and algorithm of an op, for its event in a trace.
#[derive(Clone, Copy, Debug)]
pub enum Detail {
    /// Elements of the result.
    Elements(u64),
    /// A function of one tensor, or its gradient, and the elements of the result.
    Unary(Unary, u64),
    /// A function of two tensors and the elements of the result.
    Binary(Binary, u64),
    /// A reduction and the elements of its input.
    Reduce(Reduce, u64),
    /// A convolution or one of its gradients, and the backend's algorithm for it.
    Conv(ConvParams, Option<&'static str>),
    /// A pooling or its gradient.
    Pool(PoolParams),
    /// Attention or its gradient.
    Attention(AttentionParams),
    /// Matrix products: their number, `m`, `n`, `k`; and the backend's algorithm for them.
    Product([u64; 4], Option<&'static str>),
}

/// An event, with times in nanoseconds after the [`Profiled`](crate::Profiled) was made.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A scope begins.
    Enter {
        /// The time.
        at: u64,
        /// The scope, an index of [`Timeline::scopes`].
        scope: u32,
        /// The op whose gradient is computed in the scope; `None` in the forward pass.
        gradient: Option<&'static str>,
    },
    /// The innermost scope ends.
    Leave {
        /// The time.
        at: u64,
    },
    /// An op ran.
    Op {
        /// The time of its begin.
        start: u64,
        /// The time of its end.
        end: u64,
        /// The op's name, as in the backend's trait.
        name: &'static str,
        /// The least cost of the op.
        cost: Cost,
        /// The function, shape and algorithm of the op.
        detail: Detail,
    },
}

/// A place in the program: a layer with inputs of one shape, or a named part of the step.
#[derive(Clone, Debug)]
pub struct ScopeInfo {
    /// The scope around it; the first scope is its own.
    pub parent: u32,
    /// Dotted path of a layer, or name of a part.
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

/// One profiled step.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The time of its begin, in nanoseconds after the [`Profiled`](crate::Profiled) was made.
    pub start: u64,
    /// The time of its end.
    pub end: u64,
    /// The events, in the order in which they were recorded: an op when it has ended.
    pub marks: Vec<Mark>,
}

/// The record of a [`Profiled`](crate::Profiled).
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

/// Records marks while a step is in progress.
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

    /// Locks the state, even after a panic: that leaves nothing incomplete which a later step would read.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the recorder was made.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// True while a step is in progress; outside of a step nothing is recorded.
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
        // The time is taken after the look-up, so that the profiler's own work is not counted for the layer.
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
            Scope::Part { name } => self.open(name, "", None),
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
    /// The scope of this field with an input of this shape in `parent`; made if there is none yet.
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
