//! Who is told which layer asks for a device's work: profiles.

use crate::Shape;

/// A part of a step that an [`Observer`] is told about.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The forward pass of a layer.
    Layer {
        /// The layer's path in the layer that calls it, with dots where it lies deeper: `fc1`, `h.3`.
        name: &'a str,
        /// The layer's type: `Conv2d`.
        kind: &'static str,
        /// Shape of its input.
        input: &'a Shape,
    },
    /// The gradient of an op.
    Gradient {
        /// The op.
        op: &'static str,
        /// The number that [`Observer::scope`] gave when the op was recorded.
        of: u32,
    },
}

/// Somebody who keeps account of the work of a device ([`Runtime::observer`](crate::Runtime::observer)).
pub trait Observer {
    /// Begins a scope, to which all work belongs up to its [`leave`](Observer::leave); scopes nest.
    fn enter(&self, scope: &Scope<'_>);

    /// Ends the innermost scope; the shape is that of a layer's output, if it succeeded.
    fn leave(&self, output: Option<&Shape>);

    /// The innermost scope as a number that [`Scope::Gradient`] will give back.
    fn scope(&self) -> u32;
}
