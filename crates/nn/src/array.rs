//! The array below tensors of floats and of integers: shared memory on a device, and a shape.

use crate::memory::{Memory, own};
use kiln_core::{Backend, Buffer, DType, Element, Error, Result, Shape, host};
use std::sync::Arc;

/// A contiguous row-major array on backend `B`. Clones share the memory.
pub(crate) struct Array<B: Backend> {
    pub(crate) backend: B,
    pub(crate) memory: Arc<Memory<B::Buffer>>,
    pub(crate) shape: Shape,
}

impl<B: Backend> Clone for Array<B> {
    fn clone(&self) -> Self {
        Array {
            backend: self.backend.clone(),
            memory: self.memory.clone(),
            shape: self.shape,
        }
    }
}

impl<B: Backend> Array<B> {
    /// An array over a buffer that an op has filled.
    pub(crate) fn new(backend: &B, buffer: B::Buffer, shape: Shape) -> Self {
        debug_assert_eq!(buffer.len(), shape.size());
        Array {
            backend: backend.clone(),
            memory: Memory::new(buffer),
            shape,
        }
    }

    /// An array of `values` in row-major order.
    pub(crate) fn upload<T: Element>(op: &'static str, backend: &B, values: &[T], shape: Shape) -> Result<Self> {
        check_len(op, values.len(), &shape)?;
        Ok(Self::new(backend, backend.upload(values)?, shape))
    }

    /// The same memory under a shape of equal size.
    pub(crate) fn with(&self, shape: Shape) -> Self {
        debug_assert_eq!(self.shape.size(), shape.size());
        Array { shape, ..self.clone() }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.memory.dtype()
    }

    /// The elements, copied to the host.
    pub(crate) fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype("to_vec", T::DTYPE, self.dtype())?;
        self.backend.download(&self.memory)
    }

    /// The elements where they lie, without a copy. The memory must be the host's.
    pub(crate) fn as_slice<T: Element>(&self) -> Result<&[T]> {
        const OP: &str = "as_slice";
        check_dtype(OP, T::DTYPE, self.dtype())?;
        let bytes = self.memory.host_bytes().ok_or_else(|| {
            let expected = "memory that the host can read; `to_vec` copies from any device";
            Error::invalid(OP, "device", self.backend.name(), expected)
        })?;
        // An empty buffer may have any address.
        Ok(if bytes.is_empty() {
            &[]
        } else {
            bytemuck::cast_slice(bytes)
        })
    }

    /// The memory for writing in place. When others share it they keep the old values: this array moves to a copy.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut B::Buffer> {
        own(&self.backend, &mut self.memory)
    }

    /// Overwrites the values in place with `values` from the host.
    pub(crate) fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        check_dtype("write", T::DTYPE, self.dtype())?;
        check_len("write", values.len(), &self.shape)?;
        let backend = self.backend.clone();
        backend.write(values, self.buffer_mut()?)
    }

    /// Overwrites the elements from `start` on with `values` from the host.
    pub(crate) fn write_part<T: Element>(&mut self, start: usize, values: &[T]) -> Result<()> {
        const OP: &str = "write_part";
        check_dtype(OP, T::DTYPE, self.dtype())?;
        let size = self.shape.size();
        if start > size || values.len() > size - start {
            let found = format!("{start} and {} values", values.len());
            return Err(Error::invalid(OP, "start", found, format!("a part of {size} elements")));
        }
        let backend = self.backend.clone();
        backend.upload_part(bytemuck::cast_slice(values), self.buffer_mut()?, start * size_of::<T>())
    }

    /// The same values on another backend, through the host.
    pub(crate) fn to_device<C: Backend>(&self, backend: &C) -> Result<Array<C>> {
        let len = self.shape.size();
        let mut bytes = host::repeat(0u8, len * self.dtype().size())?;
        self.backend.download_bytes(&self.memory, &mut bytes)?;
        let mut buffer = backend.alloc(self.dtype(), len)?;
        backend.upload_bytes(&bytes, &mut buffer)?;
        Ok(Array::new(backend, buffer, self.shape))
    }

    /// The same values in memory of their own.
    pub(crate) fn copy(&self) -> Result<Self> {
        let mut buffer = self.backend.alloc(self.dtype(), self.shape.size())?;
        self.backend.copy(&self.memory, &mut buffer)?;
        Ok(Self::new(&self.backend, buffer, self.shape))
    }
}

/// Refuses host values whose dtype is not that of the array.
fn check_dtype(op: &'static str, values: DType, dtype: DType) -> Result<()> {
    match values == dtype {
        true => Ok(()),
        false => Err(Error::DTypeMismatch {
            op,
            lhs: dtype,
            rhs: values,
        }),
    }
}

/// Refuses a number of values that is not the size of the shape.
fn check_len(op: &'static str, len: usize, shape: &Shape) -> Result<()> {
    if len == shape.size() {
        return Ok(());
    }
    let expected = format!("{} for shape {shape}", shape.size());
    Err(Error::invalid(op, "values", format!("{len} values"), expected))
}
