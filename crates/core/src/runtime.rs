//! Memory and execution: what a backend provides beside its ops.

use crate::ops::Op;
use crate::{DType, Element, Error, Observer, Result, host};
use std::sync::Arc;

/// Memory on a backend's device, tagged with its dtype.
pub trait Buffer: Send + Sync + 'static {
    /// The element type.
    fn dtype(&self) -> DType;
    /// Number of elements.
    fn len(&self) -> usize;
    /// True if there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of the elements, in the machine's order, where the host can read them in place; `None` on another device.
    fn host_bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// The work of a backend's allocator so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in buffers that are alive.
    pub live: usize,
    /// Bytes kept for reuse.
    pub cached: usize,
    /// The largest `live` seen.
    pub peak: usize,
    /// Blocks that had to come from the system because none was cached.
    pub allocations: u64,
}

/// Tells whether work in progress is to be given up. Once it has said yes it goes on saying so.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// A device that holds buffers and runs work in order. The value is a cheap handle: clones share the device.
pub trait Runtime: Clone + Send + Sync + 'static {
    /// Memory of this device.
    type Buffer: Buffer;
    /// A captured step. A backend that cannot capture uses [`std::convert::Infallible`].
    type Graph: Send;

    /// The name of this device: `cpu`, `cuda:0`, …
    fn name(&self) -> String;

    /// True if the backend computes in `dtype`.
    fn supports_dtype(&self, dtype: DType) -> bool;

    /// True if the backend computes `op` in `dtype`, which is one that it [supports](Runtime::supports_dtype). By default these
    /// are the [primitives](Op::PRIMITIVES). `kiln-nn` composes a fused op that is not here of them. A backend that lacks a
    /// primitive says so here, and its function returns [`Error::UnsupportedOp`](crate::Error::UnsupportedOp).
    fn supports(&self, op: Op, dtype: DType) -> bool {
        let _ = dtype;
        op.is_primitive()
    }

    /// The error of an op that this backend does not have.
    fn unsupported(&self, op: Op) -> Result<()> {
        Err(Error::UnsupportedOp {
            op: op.name(),
            device: self.name(),
        })
    }

    /// True if this handle, or one that it is a clone of, allocated the buffer. One that did not may be of another device, or be
    /// given back while this one still works on it.
    fn owns(&self, buffer: &Self::Buffer) -> bool {
        let _ = buffer;
        true
    }

    /// A buffer of `len` elements with unspecified contents.
    fn alloc(&self, dtype: DType, len: usize) -> Result<Self::Buffer>;

    /// Copies host bytes into a buffer of exactly that many bytes; any other number is an error.
    fn upload_bytes(&self, src: &[u8], dst: &mut Self::Buffer) -> Result<()>;

    /// Copies host bytes over a part of a buffer, from its byte `offset` on; a part that the buffer does not have is an error.
    /// Data larger than should be held on the host goes to the device piece by piece.
    fn upload_part(&self, src: &[u8], dst: &mut Self::Buffer, offset: usize) -> Result<()>;

    /// Copies a buffer into exactly as many host bytes, after all work before it; any other number is an error.
    fn download_bytes(&self, src: &Self::Buffer, dst: &mut [u8]) -> Result<()>;

    /// Copies between buffers of equal dtype and length; others are an error.
    fn copy(&self, src: &Self::Buffer, dst: &mut Self::Buffer) -> Result<()>;

    /// Waits for all work.
    fn sync(&self) -> Result<()>;

    /// True if [`capture`](Runtime::capture) can record.
    const CAPTURES: bool = true;

    /// Runs `body` once. A backend that can record the work returns a graph that repeats it on the same buffers; one
    /// that cannot returns `None`, and the caller runs the closure again for the next step.
    fn capture(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<Option<Self::Graph>>;

    /// Repeats a captured step.
    fn replay(&self, graph: &mut Self::Graph) -> Result<()>;

    /// Kernels that one replay of a captured step runs.
    fn launches(&self, graph: &Self::Graph) -> usize;

    /// Allocator statistics.
    fn memory(&self) -> MemoryStats;

    /// Who wants to know which layer asks for the work of this thread, as a profile in progress does. Where this is the
    /// default, `None`, code that would tell an observer is not compiled.
    #[inline]
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }

    /// Runs `body`, which may be given up on the way: once `interrupt` says so, what this thread asks of the device may fail
    /// with [`Error::Interrupted`](crate::Error::Interrupted) instead of being done. A device on which no call takes long
    /// need not look.
    fn interruptible(&self, interrupt: &Interrupt, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _ = interrupt;
        body()
    }

    /// Calls `f(i)` for every `i < n`, several at a time where that is how this device has several things done at once; in
    /// order where it is not. `f` may use the device. Stops at an error.
    fn each(&self, n: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
        (0..n).try_for_each(f)
    }

    /// A buffer holding `values`.
    fn upload<T: Element>(&self, values: &[T]) -> Result<Self::Buffer> {
        let mut buffer = self.alloc(T::DTYPE, values.len())?;
        self.write(values, &mut buffer)?;
        Ok(buffer)
    }

    /// Overwrites a buffer of dtype `T` and of as many elements; any other is an error.
    fn write<T: Element>(&self, values: &[T], buffer: &mut Self::Buffer) -> Result<()> {
        holds(self, "write", "buffer", buffer, T::DTYPE, values.len())?;
        self.upload_bytes(bytemuck::cast_slice(values), buffer)
    }

    /// The elements of a buffer of dtype `T`; one of another dtype is an error.
    fn download<T: Element>(&self, buffer: &Self::Buffer) -> Result<Vec<T>> {
        holds(self, "download", "buffer", buffer, T::DTYPE, buffer.len())?;
        let mut values = host::repeat(T::zeroed(), buffer.len())?;
        self.download_bytes(buffer, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }
}

/// Compares an operand of an op with what the op needs of it: memory of this device, of that dtype and length.
pub(crate) fn holds<R: Runtime>(
    on: &R,
    op: &'static str,
    operand: &'static str,
    buffer: &R::Buffer,
    dtype: DType,
    len: usize,
) -> Result<()> {
    if !on.owns(buffer) {
        let expected = format!("memory of {} from the same handle or a clone of it", on.name());
        return Err(Error::invalid(op, operand, "another device's memory", expected));
    }
    if buffer.dtype() == dtype && buffer.len() == len {
        return Ok(());
    }
    Err(Error::Operand {
        op,
        operand,
        dtype: buffer.dtype(),
        len: buffer.len(),
        expected_dtype: dtype,
        expected_len: len,
    })
}
