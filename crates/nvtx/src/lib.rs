//! NVTX ranges: names for stretches of a program's time on the time line of NVIDIA's profilers, such as Nsight Systems.
//!
//! Without a profiler a range costs one look at a flag. A profiler sets `NVTX_INJECTION64_PATH`, and the library of that name is
//! opened at the first range; neither NVIDIA's toolkit nor its headers take part in the build. [`range`] names a stretch of a
//! thread's time; [`observer`] names the layers and gradients of a net for a backend.
//!
//! ```
//! fn train() {
//!     let _epoch = kiln_nvtx::range("epoch");
//!     for step in 0..3 {
//!         let _step = kiln_nvtx::range_with(|| format!("step {step}"));
//!     }
//! }
//! # train();
//! ```

mod injection;
mod layers;

use injection::Tool;
use kiln_core::{Observer, Scope, Shape};
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The profiler that listens, if one does.
fn tool() -> Option<&'static Tool> {
    static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
    TOOL.get_or_init(Tool::find).as_ref()
}

/// True if a profiler listens.
pub fn is_on() -> bool {
    tool().is_some()
}

/// A stretch of this thread's time, which ends when this is dropped. Ranges of a thread nest.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    on: bool,
    /// A range ends on the thread that it began on.
    thread: PhantomData<*const ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.on {
            pop();
        }
    }
}

/// Begins a range. What follows a NUL byte in the name is left out.
pub fn range(name: &str) -> Range {
    let on = is_on();
    if on {
        push(name);
    }
    Range {
        on,
        thread: PhantomData,
    }
}

/// As [`range`], with a name that is only made if a profiler listens.
pub fn range_with(name: impl FnOnce() -> String) -> Range {
    match is_on() {
        true => range(&name()),
        false => Range {
            on: false,
            thread: PhantomData,
        },
    }
}

fn push(name: &str) {
    let text = name.split('\0').next().unwrap_or_default();
    if let (Some(tool), Ok(text)) = (tool(), CString::new(text)) {
        tool.push(&text);
    }
}

fn pop() {
    if let Some(tool) = tool() {
        tool.pop();
    }
}

/// Ranges of the layers and gradients of a net.
struct Layers;

impl Observer for Layers {
    fn enter(&self, scope: &Scope<'_>) {
        let outer = layers::innermost();
        match *scope {
            Scope::Layer { name: "", kind, .. } => {
                push(kind);
                layers::enter(outer);
            }
            Scope::Layer { name, kind, .. } => {
                push(&format!("{name} ({kind})"));
                layers::enter(layers::inside(outer, name));
            }
            Scope::Part { name } => {
                push(name);
                layers::enter(layers::inside(outer, name));
            }
            Scope::Gradient { op, of } => {
                match layers::path(of) {
                    Some(path) => push(&format!("gradient of {op} in {path}")),
                    None => push(&format!("gradient of {op}")),
                }
                // What a gradient records for its own gradients, and layers that it computes again, belong to its layer.
                layers::enter(of);
            }
        }
    }

    fn leave(&self, _: Option<&Shape>) {
        layers::leave();
        pop();
    }

    fn scope(&self) -> u32 {
        layers::innermost()
    }
}

/// What a backend can hand out as its [`observer`](kiln_core::Runtime::observer) so that a profiler sees layers and gradients; `None`
/// if no profiler listens. A layer's range is inside of that of the layer that called it, and a gradient's has the path of its layer:
/// `gradient of conv in layer1.0.conv1`.
pub fn observer() -> Option<&'static dyn Observer> {
    is_on().then_some(&Layers)
}
