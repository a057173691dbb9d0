//! Integer tensors: labels, token ids, gather indices (i32) and masks (u8).

use crate::Tensor;
use crate::array::Array;
use crate::memory::Memory;
use crate::ops::index::{IntoDims, resolve};
use kiln_core::{Backend, DType, Element, Error, Result, Shape, host};
use std::sync::Arc;

/// A contiguous row-major tensor of integers on backend `B`. It has no gradient.
pub struct Indices<B: Backend>(Array<B>);

impl<B: Backend> Clone for Indices<B> {
    fn clone(&self) -> Self {
        Indices(self.0.clone())
    }
}

impl<B: Backend> Indices<B> {
    pub(crate) fn from_buffer(backend: &B, buffer: B::Buffer, shape: Shape) -> Self {
        Indices(Array::new(backend, buffer, shape))
    }

    /// Integers (i32) or a mask (u8, 0 or 1) in row-major order.
    ///
    /// # Errors
    /// A shape whose size is not the number of values; a float element type.
    pub fn from_slice<T: Element>(backend: &B, values: &[T], shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        if T::DTYPE.is_float() {
            return Err(Error::UnsupportedDType {
                op: "indices",
                dtype: T::DTYPE,
                expected: "i32 or u8",
            });
        }
        Ok(Indices(Array::upload("indices", backend, values, shape)?))
    }

    /// The i32 numbers `start`, `start + 1`, … up to but without `end` (`torch.arange`): the positions of a sequence.
    ///
    /// # Errors
    /// An `end` below `start`, memory.
    pub fn arange(backend: &B, start: i32, end: i32) -> Result<Self> {
        if end < start {
            return Err(Error::invalid("arange", "end", end, format!("{start} or more")));
        }
        let values = host::collect(start..end)?;
        Self::from_slice(backend, &values, &[values.len()])
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.0.backend
    }

    /// The dimensions.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// `i32` or, for a mask, `u8`.
    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.shape().size()
    }

    /// The elements, copied to the host. `T` must be the dtype.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.0.to_vec()
    }

    /// The elements where they lie, without a copy. `T` must be the dtype.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype; a device whose memory the host cannot read in place.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.0.as_slice()
    }

    /// The same values under another shape of equal size, of which one dimension may be −1.
    ///
    /// # Errors
    /// Those of [`Tensor::reshape`].
    pub fn reshape(&self, shape: impl IntoDims) -> Result<Self> {
        Ok(Indices(self.0.with(resolve("reshape", self.shape(), shape)?)))
    }

    /// The values as untracked floats of `dtype` (`torch.Tensor.to`).
    ///
    /// # Errors
    /// An integer dtype.
    pub fn to_float(&self, dtype: DType) -> Result<Tensor<B>> {
        let backend = self.backend();
        crate::tensor::require_float("to_float", backend, dtype)?;
        let mut out = backend.alloc(dtype, self.size())?;
        backend.cast(self.buffer(), &mut out)?;
        Ok(Tensor::from_buffer(backend, out, *self.shape()))
    }

    pub(crate) fn buffer(&self) -> &B::Buffer {
        &self.0.memory
    }

    /// The memory for writing in place; others that share it keep the old values.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut B::Buffer> {
        self.0.buffer_mut()
    }

    /// The memory with its id.
    pub(crate) fn memory(&self) -> &Arc<Memory<B::Buffer>> {
        &self.0.memory
    }

    /// Overwrites the values in place with `values` from the host, row-major. `T` must be the dtype. This is how new
    /// labels reach a captured step.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, another number of values.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.0.write(values)
    }

    /// The same values in memory of their own. (A clone shares the memory.)
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn copy(&self) -> Result<Self> {
        Ok(Indices(self.0.copy()?))
    }

    /// Refuses a dtype other than `dtype`.
    pub(crate) fn require(&self, op: &'static str, dtype: DType) -> Result<()> {
        if self.dtype() != dtype {
            return Err(Error::UnsupportedDType {
                op,
                dtype: self.dtype(),
                expected: dtype.name(),
            });
        }
        Ok(())
    }
}

impl<B: Backend> Tensor<B> {
    /// The values as i32, rounded towards zero, without gradient (`torch.Tensor.int`): turns token ids that a data loader
    /// delivers as floats into ids for a model. Values outside the range of i32 become its smallest or largest number,
    /// NaN becomes 0.
    ///
    /// ```
    /// let x = kiln_nn::Tensor::from_slice(&kiln_cpu::Cpu::new(), &[2.0f32, -1.9, f32::NAN], &[3])?;
    /// assert_eq!(x.to_indices()?.to_vec::<i32>()?, [2, -1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn to_indices(&self) -> Result<Indices<B>> {
        let mut out = self.backend().alloc(DType::I32, self.size())?;
        self.backend().cast(self.buffer(), &mut out)?;
        Ok(Indices::from_buffer(self.backend(), out, *self.shape()))
    }
}
