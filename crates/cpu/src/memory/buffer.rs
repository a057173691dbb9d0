//! Host memory with a dtype, aligned to cache lines and returned to the pool when dropped.

use crate::memory::aligned::Block;
use crate::memory::allocator::Pool;
use kiln_core::{Buffer, DType, Element, Result};
use std::fmt;
use std::sync::Arc;

/// A buffer of the CPU backend.
pub struct CpuBuffer {
    block: Block,
    dtype: DType,
    len: usize,
    pool: Arc<Pool>,
}

impl CpuBuffer {
    pub(crate) fn new(pool: &Arc<Pool>, dtype: DType, len: usize) -> Result<Self> {
        Ok(CpuBuffer {
            block: pool.take(len.saturating_mul(dtype.size()))?,
            dtype,
            len,
            pool: pool.clone(),
        })
    }

    /// The elements.
    ///
    /// # Panics
    /// If `T` is not the buffer's dtype: a bug in the op, which dispatches on it.
    #[inline]
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(self.dtype, T::DTYPE, "buffer read as another dtype");
        &bytemuck::cast_slice(self.block.lines())[..self.len]
    }

    /// The elements, for writing.
    ///
    /// # Panics
    /// As [`CpuBuffer::as_slice`].
    #[inline]
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE, "buffer written as another dtype");
        &mut bytemuck::cast_slice_mut(self.block.lines_mut())[..self.len]
    }

    /// The bytes of the elements.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(self.block.lines())[..self.len * self.dtype.size()]
    }

    /// The bytes of the elements, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let size = self.len * self.dtype.size();
        &mut bytemuck::cast_slice_mut(self.block.lines_mut())[..size]
    }
}

impl Buffer for CpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn len(&self) -> usize {
        self.len
    }
    fn host_bytes(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}

impl Drop for CpuBuffer {
    fn drop(&mut self) {
        self.pool.give(std::mem::replace(&mut self.block, Block::EMPTY));
    }
}

impl fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuBuffer({}, {})", self.dtype, self.len)
    }
}
