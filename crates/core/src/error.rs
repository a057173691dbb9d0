//! The errors of tensor operations. Each names the op, the value found and the value expected.

use crate::{DType, Shape};

/// The result of a function that checks its arguments.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a tensor operation.
///
/// Arguments are checked once, where a public function takes them. Layers add their path in the model, so that a message
/// reads ``in `features.3` (Conv2d): conv2d: …``.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes that must be equal or broadcast are not compatible.
    #[error("{op}: shapes {lhs} and {rhs} do not agree")]
    ShapeMismatch {
        /// The op that was called.
        op: &'static str,
        /// The first operand's shape.
        lhs: Shape,
        /// The second operand's shape.
        rhs: Shape,
    },
    /// A tensor of a rank that the op does not accept.
    #[error("{op}: expected rank {expected}, found rank {rank}")]
    Rank {
        /// The op that was called.
        op: &'static str,
        /// The ranks that the op accepts.
        expected: &'static str,
        /// The rank found.
        rank: usize,
    },
    /// An axis outside the shape.
    #[error("{op}: axis {axis} is out of range for shape {shape}")]
    Axis {
        /// The op that was called.
        op: &'static str,
        /// The axis asked for.
        axis: isize,
        /// The shape of the tensor.
        shape: Shape,
    },
    /// An argument outside its domain: a stride of 0, groups that do not divide the channels, …
    #[error("{op}: {argument} = {value}, expected {expected}")]
    InvalidArgument {
        /// The op that was called.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// The value found.
        value: String,
        /// The values that would have been accepted.
        expected: String,
    },
    /// Dimensions whose product overflows.
    #[error("{op}: dimensions {dims:?} overflow the address space")]
    TooLarge {
        /// The op that was called.
        op: &'static str,
        /// The dimensions asked for.
        dims: Vec<usize>,
    },
    /// Operands of different dtypes.
    #[error("{op}: dtypes {lhs} and {rhs} differ; convert one with `to_dtype`")]
    DTypeMismatch {
        /// The op that was called.
        op: &'static str,
        /// The first operand's dtype.
        lhs: DType,
        /// The second operand's dtype.
        rhs: DType,
    },
    /// A dtype that the op or the backend does not support.
    #[error("{op}: dtype {dtype} is not supported, expected {expected}")]
    UnsupportedDType {
        /// The op that was called.
        op: &'static str,
        /// The dtype found.
        dtype: DType,
        /// The dtypes that are accepted.
        expected: &'static str,
    },
    /// An op that the backend does not implement.
    #[error("{op}: {device} has no such op")]
    UnsupportedOp {
        /// The op that was called.
        op: &'static str,
        /// The device.
        device: String,
    },
    /// A buffer whose dtype or length differs from what the parameters of the op require.
    #[error("{op}: `{operand}` has {len} elements of {dtype}, expected {expected_len} of {expected_dtype}")]
    Operand {
        /// The op that was called.
        op: &'static str,
        /// The name of the buffer.
        operand: &'static str,
        /// The dtype found.
        dtype: DType,
        /// The number of elements found.
        len: usize,
        /// The dtype that the op needs.
        expected_dtype: DType,
        /// The number of elements that the op needs.
        expected_len: usize,
    },
    /// An index (label, token id, gather index) outside its range.
    #[error("{op}: index {index} at position {position} is out of range 0..{size}")]
    IndexOutOfRange {
        /// The op that was called.
        op: &'static str,
        /// The index found.
        index: i64,
        /// The flat, row-major position of the index in its tensor.
        position: usize,
        /// The number of valid indices.
        size: usize,
    },
    /// An allocation that failed.
    #[error("{device}: out of memory: {requested} bytes requested{}", of_free(*free))]
    OutOfMemory {
        /// The device.
        device: String,
        /// The number of bytes requested.
        requested: usize,
        /// The number of bytes free; `None` if the system does not tell.
        free: Option<usize>,
    },
    /// An op without a gradient was called on a tensor that requires one.
    #[error("{op} has no gradient; call `detach()` on its input if none is wanted")]
    NoGradient {
        /// The op without a gradient.
        op: &'static str,
    },
    /// `backward` ran a second time through a graph that the first run freed.
    #[error("{op}: this part of the graph was already used by a backward pass; keep it with `backward_retain`")]
    GraphFreed {
        /// The op whose saved tensors are gone.
        op: &'static str,
    },
    /// A trainable parameter that the loss does not depend on: a part of the model is detached or unused.
    #[error(
        "`{parameter}` trains but has no gradient: it had no part in the loss; freeze it, or let the optimizer skip \
         parameters without a gradient"
    )]
    MissingGradient {
        /// Dotted name of the parameter.
        parameter: String,
    },
    /// An optimizer was given a parameter that has the name of one whose state it keeps, but is another parameter.
    #[error(
        "{op}: the state kept for `{parameter}` is that of another model's parameter; give each model an optimizer of its own, \
         or carry the state over with `state_dict` and `load_state_dict`"
    )]
    OtherParameter {
        /// The optimizer.
        op: &'static str,
        /// Dotted name of the parameter.
        parameter: String,
    },
    /// A device that cannot be used: no driver, no such device.
    #[error("{device} cannot be used: {reason}")]
    DeviceUnavailable {
        /// The device that was asked for.
        device: String,
        /// The reason, and the remedy.
        reason: String,
    },
    /// A function that waits for the device or reads host memory was called inside a captured step.
    #[error("{device}: {what} cannot be part of a captured step; do it before or after the step")]
    NotCapturable {
        /// The device that captures.
        device: String,
        /// The function that was called.
        what: &'static str,
    },
    /// A call of the backend's driver or library failed.
    #[error("{device}: {call} failed with code {code}: {meaning}")]
    Device {
        /// The device.
        device: String,
        /// The call that failed.
        call: &'static str,
        /// The error code that it returned.
        code: i32,
        /// The meaning of the code.
        meaning: String,
    },
    /// Work that was interrupted ([`Runtime::interruptible`](crate::Runtime::interruptible)); its results are incomplete.
    #[error("{device}: interrupted; what was being computed is not there")]
    Interrupted {
        /// The device.
        device: String,
    },
    /// An error inside a model, with the module it came from.
    #[error("{}{source}", place(path, layer))]
    In {
        /// Dotted path of the module, as in the state dictionary; empty for the module that was called from outside.
        path: String,
        /// The module's type, such as `Conv2d`.
        layer: &'static str,
        /// The modules at which `path` starts, until their own names are added to it.
        from: Origin,
        /// The error itself.
        source: Box<Error>,
    },
}

/// The identity of a module: its address and its type, which are unique as long as the module is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleId {
    address: usize,
    type_name: &'static str,
}

impl ModuleId {
    /// The identity of the module at this reference.
    pub fn of<M: ?Sized>(module: &M) -> Self {
        ModuleId {
            address: std::ptr::from_ref(module).cast::<()>().addr(),
            type_name: std::any::type_name::<M>(),
        }
    }
}

/// The modules whose forward pass an [`Error::In`] left last; empty when its path is complete. All origins compare equal,
/// so that equal errors of two models are equal.
#[derive(Debug, Clone, Default)]
pub struct Origin(Vec<ModuleId>);

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

fn join(name: &str, path: &str) -> String {
    match path {
        "" => name.to_string(),
        path => format!("{name}.{path}"),
    }
}

/// The start of a message: the path and type of the module, if it has a path.
fn place(path: &str, layer: &str) -> String {
    match path {
        "" => String::new(),
        path => format!("in `{path}` ({layer}): "),
    }
}

/// The end of a message about memory: the number of bytes free, if known.
fn of_free(bytes: Option<usize>) -> String {
    bytes.map_or_else(String::new, |free| format!(", {free} bytes free"))
}

impl Error {
    /// Creates an [`Error::InvalidArgument`].
    pub fn invalid(
        op: &'static str,
        argument: &'static str,
        value: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Error::InvalidArgument {
            op,
            argument,
            value: value.to_string(),
            expected: expected.into(),
        }
    }

    /// Adds the module that an error came from. Paths of nested modules are joined with dots; the innermost type is kept.
    pub fn within(self, name: &str, layer: &'static str) -> Self {
        match self {
            Error::In {
                path, layer, source, ..
            } => Error::In {
                path: join(name, &path),
                layer,
                from: Origin::default(),
                source,
            },
            source => Error::In {
                path: name.to_string(),
                layer,
                from: Origin::default(),
                source: Box::new(source),
            },
        }
    }

    /// Adds to an error that it leaves the forward pass of `modules`; there are several where they run as one fused op.
    ///
    /// A module does not know the name of the field that holds it, so the error keeps the module's identity. The enclosing
    /// module looks that identity up among its fields with `name`, which returns the path.
    pub fn leaving(
        self,
        modules: &[ModuleId],
        layer: &'static str,
        name: &dyn Fn(&[ModuleId], &'static str) -> String,
    ) -> Self {
        let left = Origin(modules.to_vec());
        match self {
            Error::In {
                path,
                layer,
                from,
                source,
            } => {
                let path = match &from.0[..] {
                    [] => path,
                    modules => join(&name(modules, layer), &path),
                };
                Error::In {
                    path,
                    layer,
                    from: left,
                    source,
                }
            }
            source => Error::In {
                path: String::new(),
                layer,
                from: left,
                source: Box::new(source),
            },
        }
    }

    /// True for [`Error::Interrupted`], also inside [`Error::In`].
    pub fn is_interrupted(&self) -> bool {
        matches!(self.root(), Error::Interrupted { .. })
    }

    /// Returns the innermost error, without [`Error::In`] around it.
    pub fn root(&self) -> &Error {
        match self {
            Error::In { source, .. } => source.root(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_modules_join_their_paths() {
        let e = Error::invalid("conv2d", "stride", 0, "at least 1")
            .within("3", "Conv2d")
            .within("features", "Sequential");
        assert_eq!(
            e.to_string(),
            "in `features.3` (Conv2d): conv2d: stride = 0, expected at least 1"
        );
        assert!(matches!(e.root(), Error::InvalidArgument { .. }));
    }

    /// The error of a layer passes through a module that holds it as `fc` and one that holds that as `h.3`.
    #[test]
    fn what_an_error_has_left_is_named_by_the_next_module_out() {
        let (fc, block, net) = (1u32, 2u32, 3u32);
        let nobody = |_: &[ModuleId], _| -> String { unreachable!("the error comes from here") };
        let known = |id: ModuleId, name: &'static str| {
            move |asked: &[ModuleId], _: &'static str| {
                assert_eq!(asked, [id]);
                name.to_string()
            }
        };
        let [fc, block, net] = [&fc, &block, &net].map(ModuleId::of);
        let e = Error::invalid("linear", "x", 0, "1").leaving(&[fc], "Linear", &nobody);
        assert_eq!(e.to_string(), "linear: x = 0, expected 1");
        let e = e.leaving(&[block], "Block", &known(fc, "fc"));
        assert_eq!(e.to_string(), "in `fc` (Linear): linear: x = 0, expected 1");
        let e = e.leaving(&[net], "Net", &known(block, "h.3"));
        assert_eq!(e.to_string(), "in `h.3.fc` (Linear): linear: x = 0, expected 1");
        assert_eq!(
            e.clone().within("net", "Net").to_string(),
            "in `net.h.3.fc` (Linear): linear: x = 0, expected 1"
        );
        // A name given by `within` belongs to the module that added it.
        let e = Error::invalid("linear", "x", 0, "1")
            .within("fc", "Linear")
            .leaving(&[net], "Net", &nobody);
        assert_eq!(e.to_string(), "in `fc` (Linear): linear: x = 0, expected 1");
    }

    #[test]
    fn free_bytes_are_told_where_they_are_known() {
        let full = |free| {
            let (device, requested) = ("cpu".to_string(), 64);
            Error::OutOfMemory {
                device,
                requested,
                free,
            }
            .to_string()
        };
        assert_eq!(full(None), "cpu: out of memory: 64 bytes requested");
        assert_eq!(full(Some(7)), "cpu: out of memory: 64 bytes requested, 7 bytes free");
    }
}
