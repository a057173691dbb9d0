//! Watching a forward pass layer by layer: what `kiln summary` prints.

use crate::layers::Layer;
use crate::{Backend, Result, Shape, Tensor, no_grad};
use kiln_core::Scope;
use std::cell::RefCell;

/// One call of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerCall {
    /// Dotted path of the layer.
    pub path: String,
    /// The layer's type: `Conv2d`.
    pub kind: &'static str,
    /// How many layers it is inside of.
    pub depth: usize,
    /// Whether it called layers of its own.
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

#[derive(Default)]
struct Tracer {
    path: Vec<String>,
    calls: Vec<LayerCall>,
    /// Whether outputs are looked at.
    looks: bool,
    /// The first call whose output was not finite.
    bad: Option<usize>,
}

thread_local! {
    static TRACER: RefCell<Option<Tracer>> = const { RefCell::new(None) };
}

/// Runs `f` and reports every layer that it called on this thread through [`Layer::call`], outer layers before inner.
/// A trace inside of a trace takes the calls for itself.
pub fn trace<R>(f: impl FnOnce() -> R) -> (R, Vec<LayerCall>) {
    let (result, tracer) = traced(Tracer::default(), f);
    (result, tracer.calls)
}

/// Runs `f` and finds the first layer, of those that it called as [`trace`] has it, to give a value that is NaN or infinite.
/// An inner layer comes before the outer one that it belongs to. Every output is waited for: this is slow.
pub fn first_non_finite<R>(f: impl FnOnce() -> R) -> (R, Option<LayerCall>) {
    let looking = Tracer {
        looks: true,
        ..Tracer::default()
    };
    let (result, tracer) = traced(looking, f);
    (result, tracer.bad.and_then(|i| tracer.calls.into_iter().nth(i)))
}

fn traced<R>(tracer: Tracer, f: impl FnOnce() -> R) -> (R, Tracer) {
    struct Restore(Option<Option<Tracer>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(before) = self.0.take() {
                TRACER.replace(before);
            }
        }
    }
    let mut restore = Restore(Some(TRACER.replace(Some(tracer))));
    let result = f();
    let ours = restore.0.take().and_then(|before| TRACER.replace(before));
    (result, ours.unwrap_or_default())
}

/// Whether a trace is on.
pub(crate) fn is_on() -> bool {
    TRACER.with_borrow(Option::is_some)
}

/// Runs a layer, reporting it when a trace is on.
pub(crate) fn layer<B: Backend, L: Layer<B> + ?Sized>(name: &str, layer: &L, x: &Tensor<B>) -> Result<Tensor<B>> {
    let Some(index) = enter(name) else {
        return layer.forward(x);
    };
    let result = layer.forward(x);
    let looks = TRACER.with_borrow(|tracer| tracer.as_ref().is_some_and(|t| t.looks && t.bad.is_none()));
    // A device that fails here fails again where the result is read, and says so there.
    let bad = looks && result.as_ref().is_ok_and(|y| !is_finite(y).unwrap_or(true));
    TRACER.with_borrow_mut(|tracer| {
        let Some(t) = tracer else { return };
        t.path.pop();
        let Ok(y) = &result else {
            t.calls.truncate(index);
            return;
        };
        if bad {
            t.bad = Some(index);
        }
        let depth = t.path.len();
        let inner: u64 = t.calls[index + 1..]
            .iter()
            .filter(|c| c.depth == depth + 1)
            .map(|c| c.flops)
            .sum();
        let call = &mut t.calls[index];
        (call.input, call.output) = (*x.shape(), *y.shape());
        call.output_bytes = y.size() * y.dtype().size();
        call.kind = layer.kind();
        call.parameters = layer.num_parameters();
        call.flops = inner.saturating_add(layer.flops(x.shape(), y.shape()));
    });
    result
}

/// Whether every value is finite: the largest magnitude tells, and it is found on the device.
fn is_finite<B: Backend>(y: &Tensor<B>) -> Result<bool> {
    if y.size() == 0 {
        return Ok(true);
    }
    no_grad(|| Ok(y.detach().abs()?.max(&[], false)?.item()?.is_finite()))
}

/// Runs a layer of the field `name`, telling a backend that watches.
pub(crate) fn watched<B: Backend>(
    backend: &B,
    (name, kind): (&str, impl FnOnce() -> &'static str),
    input: &Shape,
    layer: impl FnOnce() -> Result<Tensor<B>>,
) -> Result<Tensor<B>> {
    if !B::WATCHES {
        return layer();
    }
    let kind = kind();
    backend.enter(&Scope::Layer { name, kind, input });
    let y = layer();
    backend.leave(y.as_ref().ok().map(Tensor::shape));
    y
}

/// Opens a call on the active trace; `None` when there is none.
fn enter(name: &str) -> Option<usize> {
    TRACER.with_borrow_mut(|tracer| {
        let t = tracer.as_mut()?;
        let (index, depth) = (t.calls.len(), t.path.len());
        // The caller's entry is the last one above this depth.
        if let Some(outer) = t.calls.iter_mut().rev().find(|c| c.depth + 1 == depth) {
            outer.container = true;
        }
        t.path.push(name.to_string());
        t.calls.push(LayerCall {
            path: t.path.join("."),
            kind: "",
            depth,
            container: false,
            input: Shape::scalar(),
            output: Shape::scalar(),
            output_bytes: 0,
            parameters: 0,
            flops: 0,
        });
        Some(index)
    })
}
