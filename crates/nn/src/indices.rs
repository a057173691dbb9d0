//! Integer tensors: labels, token ids, gather indices (i32) and masks (u8).

use crate::Tensor;
use crate::array::Array;
use crate::memory::Memory;
use crate::ops::index::{IntoDims, resolve};
use crate::ops::integer::IntegerValue;
use kiln_core::{Backend, DType, Element, Error, Result, Shape, host};
use std::sync::Arc;

/// A contiguous row-major tensor of integers on backend `B`. It has no gradient.
///
/// ```
/// # use kiln_nn::{DType, Indices};
/// # let cpu = kiln_cpu::Cpu::new();
/// let labels = Indices::from_slice(&cpu, &[3, 1, 4], &[3])?;
/// assert_eq!((labels.dtype(), labels.size()), (DType::I32, 3));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Indices<B: Backend>(Array<B>);

impl<B: Backend> Clone for Indices<B> {
    fn clone(&self) -> Self {
        Indices(self.0.clone())
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    pub(crate) fn from_buffer(backend: &B, buffer: B::Buffer, shape: Shape) -> Self {
        Indices(Array::new(backend, buffer, shape))
    }

    pub(crate) fn of_array(array: Array<B>) -> Self {
        Indices(array)
    }

    pub(crate) fn array(&self) -> &Array<B> {
        &self.0
    }

    /// Integers (i32, or others that fit it) or a mask (bool, or u8 of 0 and 1) in row-major order.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let labels = Indices::from_slice(&cpu, &[3, 1, 4, 1], &[2, 2])?;
    /// assert_eq!(labels.i((1, ..))?.to_vec::<i32>()?, [4, 1]);
    /// let mask = Indices::from_slice(&cpu, &[true, false], &[2])?;
    /// assert_eq!(mask.dtype(), DType::U8);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape whose size is not the number of values; an i64 or usize that does not fit i32.
    pub fn from_slice<T: IntegerValue>(backend: &B, values: &[T], shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        Ok(Indices(Array::upload("indices", backend, &T::stored(values)?, shape)?))
    }

    /// The i32 numbers `start`, `start + 1`, … up to but without `end` (`torch.arange`): the positions of a sequence.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let positions = Indices::arange(&cpu, 2, 5)?;
    /// assert_eq!(positions.to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 3)?;
    /// let mask = Indices::from_slice(ids.backend(), &[1u8, 0, 1], &[3])?;
    /// assert_eq!(mask.shape(), ids.shape());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn backend(&self) -> &B {
        &self.0.backend
    }

    /// The dimensions.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
    /// assert_eq!(ids.shape().dims(), [2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// `i32` or, for a mask, `u8`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mask = Indices::from_slice(&cpu, &[1u8, 0], &[2])?;
    /// assert_eq!(mask.dtype(), DType::U8);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    /// Number of elements.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
    /// assert_eq!(ids.size(), 6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn size(&self) -> usize {
        self.shape().size()
    }

    /// The elements, copied to the host: i32, or converted to i64 and others; of a mask u8 or bool.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 3)?;
    /// assert_eq!(ids.to_vec::<i32>()?, [0, 1, 2]);
    /// assert_eq!(ids.to_vec::<usize>()?, [0, 1, 2]);
    /// assert!(ids.to_vec::<u8>().is_err());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, a negative number as an unsigned one.
    pub fn to_vec<T: IntegerValue>(&self) -> Result<Vec<T>> {
        T::read(self.0.to_vec()?)
    }

    /// The elements where they lie, without a copy. `T` must be the dtype.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 3)?;
    /// assert_eq!(ids.as_slice::<i32>()?, [0, 1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype; a device whose memory the host cannot read in place.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.0.as_slice()
    }

    /// The same values under another shape of equal size, of which one dimension may be −1.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::arange(&cpu, 0, 6)?;
    /// assert_eq!(ids.reshape((2, -1))?.shape().dims(), [2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::reshape`].
    pub fn reshape(&self, shape: impl IntoDims) -> Result<Self> {
        Ok(Indices(self.0.with(resolve("reshape", self.shape(), shape)?)))
    }

    /// The values as untracked floats of `dtype` (`torch.Tensor.to`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mask = Indices::from_slice(&cpu, &[1u8, 0, 1], &[3])?;
    /// assert_eq!(mask.to_float(DType::F32)?.sum(&[], false)?.item()?, 2.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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

    /// The values on another device or backend, as [`Tensor::to_device`].
    ///
    /// # Errors
    /// Memory of the host or of the device.
    pub fn to_device<C: Backend>(&self, backend: &C) -> Result<Indices<C>> {
        Ok(Indices(self.0.to_device(backend)?))
    }

    /// The array as an untracked tensor, for ops that move elements of any dtype.
    pub(crate) fn elements(&self) -> Tensor<B> {
        Tensor::new(self.0.clone(), None)
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
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut labels = Indices::from_slice(&cpu, &[3, 1], &[2])?;
    /// labels.write(&[5, 9])?;
    /// assert_eq!(labels.to_vec::<i32>()?, [5, 9]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, another number of values.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.0.write(values)
    }

    /// Overwrites the elements from `start` on, row-major, with `values` from the host: data larger than should be held on the
    /// host goes to the device part by part. `T` must be the dtype.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut x = Indices::arange(&cpu, 0, 4)?;
    /// x.write_part(1, &[7, 8])?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 7, 8, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, a part that the tensor does not have.
    pub fn write_part<T: Element>(&mut self, start: usize, values: &[T]) -> Result<()> {
        self.0.write_part(start, values)
    }

    /// The same values in memory of their own. (A clone shares the memory.)
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let labels = Indices::from_slice(&cpu, &[3, 1], &[2])?;
    /// assert_eq!(labels.copy()?.to_vec::<i32>()?, labels.to_vec::<i32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The integers that an op has moved: see [`Indices::elements`].
    pub(crate) fn into_indices(self) -> Indices<B> {
        Indices(self.into_array())
    }

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
