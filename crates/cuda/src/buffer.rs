//! Device memory with its dtype.

use kiln_core::{Buffer, DType};
use kiln_device::{Arg, Block};

/// Memory on a CUDA device. Dropping it returns the block to the allocator it came from, in stream order.
#[derive(Debug)]
pub struct CudaBuffer {
    pub(crate) dtype: DType,
    pub(crate) len: usize,
    pub(crate) block: Block,
}

impl Buffer for CudaBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl CudaBuffer {
    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The address, as a kernel's argument.
    pub(crate) fn arg(&self) -> Arg<'_> {
        Arg::block(&self.block)
    }

    /// The address of an output.
    pub(crate) fn out(&mut self) -> Arg<'_> {
        Arg::block(&self.block)
    }
}

/// The address of an optional operand; a null pointer where there is none.
pub(crate) fn maybe(buffer: Option<&CudaBuffer>) -> Arg<'_> {
    buffer.map_or(Arg::ptr(0), CudaBuffer::arg)
}
