//! The interface between layers and profilers: which layer the work of a device belongs to.

use crate::Shape;

/// A part of a step, reported to an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The forward pass of a layer.
    Layer {
        /// The layer's path in the calling layer, with dots where it is nested deeper: `fc1`, `h.3`.
        name: &'a str,
        /// The layer's type: `Conv2d`.
        kind: &'static str,
        /// The shape of the layer's input.
        input: &'a Shape,
    },
    /// A named part of a step outside of any layer, such as a loss.
    Part {
        /// The part's name.
        name: &'a str,
    },
    /// The gradient of an op.
    Gradient {
        /// The op.
        op: &'static str,
        /// The number that [`Observer::scope`] returned when the op was recorded.
        of: u32,
    },
}

/// A profiler of a device's work ([`Runtime::observer`](crate::Runtime::observer)).
pub trait Observer {
    /// Begins a scope: all work until the matching [`leave`](Observer::leave) belongs to it. Scopes nest.
    fn enter(&self, scope: &Scope<'_>);

    /// Ends the innermost scope. `output` is the shape of a layer's output; `None` for gradients and after an error.
    fn leave(&self, output: Option<&Shape>);

    /// Returns a number for the innermost scope, which a later [`Scope::Gradient`] passes in `of`.
    fn scope(&self) -> u32;
}
