//! The values of a tensor: creation from host values, reading, and overwriting in place.

use super::Tensor;
use crate::array::Array;
use kiln_core::{Backend, DType, Element, Error, Float, Result, Shape, host};
use std::fmt;
use std::sync::Arc;

impl<B: Backend> Tensor<B> {
    /// A tensor of `values` in row-major order (`torch.tensor`), in their dtype.
    ///
    /// # Errors
    /// A shape whose size is not the number of values; an integer element type.
    pub fn from_slice<T: Element>(backend: &B, values: &[T], shape: &[usize]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        require_float("from_slice", backend, T::DTYPE)?;
        Ok(Tensor::new(Array::upload("from_slice", backend, values, shape)?, None))
    }

    /// A tensor of `values` in row-major order, rounded to `dtype`.
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    pub fn from_f64(backend: &B, values: &[f64], shape: &[usize], dtype: DType) -> Result<Self> {
        fn to<T: Float>(v: &[f64]) -> Result<Vec<T>> {
            host::collect(v.iter().map(|&x| T::of(x)))
        }
        match dtype {
            DType::F64 => Self::from_slice(backend, values, shape),
            DType::F32 => Self::from_slice(backend, &to::<f32>(values)?, shape),
            DType::BF16 => Self::from_slice(backend, &to::<half::bf16>(values)?, shape),
            DType::F16 => Self::from_slice(backend, &to::<half::f16>(values)?, shape),
            other => Err(not_float("from_f64", other)),
        }
    }

    /// A tensor filled with `value` (`torch.full`).
    ///
    /// # Errors
    /// A shape that overflows, an integer dtype, memory.
    pub fn full(backend: &B, shape: &[usize], dtype: DType, value: f64) -> Result<Self> {
        let shape = Shape::new(shape)?;
        require_float("full", backend, dtype)?;
        let mut buffer = backend.alloc(dtype, shape.size())?;
        backend.fill(value, &mut buffer)?;
        Ok(Self::from_buffer(backend, buffer, shape))
    }

    /// A tensor of zeros (`torch.zeros`).
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn zeros(backend: &B, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::full(backend, shape, dtype, 0.0)
    }

    /// A tensor of ones (`torch.ones`).
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn ones(backend: &B, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::full(backend, shape, dtype, 1.0)
    }

    /// Zeros of the shape, dtype and backend of `self`, untracked (`torch.zeros_like`).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(0.0)
    }

    /// A tensor filled with `value`, of the shape, dtype and backend of `self`, untracked (`torch.full_like`).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn full_like(&self, value: f64) -> Result<Self> {
        let mut buffer = self.alloc_like(*self.shape())?;
        self.backend().fill(value, &mut buffer)?;
        Ok(Self::from_buffer(self.backend(), buffer, *self.shape()))
    }

    /// The elements, copied to the host. `T` must be the tensor's dtype.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.array.to_vec()
    }

    /// The elements as f64, whatever the dtype.
    ///
    /// # Errors
    /// A device error.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        fn from<T: Float>(v: Vec<T>) -> Result<Vec<f64>> {
            host::collect(v.into_iter().map(Float::f64))
        }
        match self.dtype() {
            DType::F64 => self.to_vec(),
            DType::F32 => from(self.to_vec::<f32>()?),
            DType::BF16 => from(self.to_vec::<half::bf16>()?),
            DType::F16 => from(self.to_vec::<half::f16>()?),
            other => Err(not_float("to_f64", other)),
        }
    }

    /// The value of a tensor with one element (`torch.Tensor.item`).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there is not exactly one element.
    pub fn item(&self) -> Result<f64> {
        if self.size() != 1 {
            return Err(Error::invalid("item", "shape", self.shape(), "one element"));
        }
        Ok(self.to_f64()?[0])
    }

    /// The memory for writing in place. If other tensors share it, this one first moves to a copy and they keep the old values.
    pub(crate) fn buffer_mut(&mut self) -> Result<&mut B::Buffer> {
        if let Some(node) = &self.node {
            node.hold_output();
        }
        self.array.buffer_mut()
    }

    /// A buffer of this tensor's dtype for an output of `shape`.
    pub(crate) fn alloc_like(&self, shape: Shape) -> Result<B::Buffer> {
        self.backend().alloc(self.dtype(), shape.size())
    }

    /// Overwrites the values in place with those of `source` (`torch.Tensor.copy_`); the tensor's node in the graph stays.
    ///
    /// # Errors
    /// Shapes or dtypes that differ.
    pub fn assign(&mut self, source: &Tensor<B>) -> Result<()> {
        if self.shape() != source.shape() {
            return Err(Error::ShapeMismatch {
                op: "assign",
                lhs: *self.shape(),
                rhs: *source.shape(),
            });
        }
        same_dtype("assign", self, source)?;
        if Arc::ptr_eq(self.memory(), source.memory()) {
            return Ok(());
        }
        source.backend().copy(source.buffer(), self.buffer_mut()?)
    }

    /// Overwrites the values in place with `values` from the host, row-major; the tensor's node in the graph stays. `T` must be
    /// the tensor's dtype. New inputs reach a captured step in this way.
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, another number of values.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        if let Some(node) = &self.node {
            node.hold_output();
        }
        self.array.write(values)
    }

    /// The same values in memory of their own, untracked (`x.detach().clone()` in PyTorch). A clone in Rust shares the memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn copy(&self) -> Result<Self> {
        Ok(Tensor::new(self.array.copy()?, None))
    }
}

pub(crate) fn require_float<B: Backend>(op: &'static str, backend: &B, dtype: DType) -> Result<()> {
    if !dtype.is_float() || !backend.supports_dtype(dtype) {
        return Err(not_float(op, dtype));
    }
    Ok(())
}

fn not_float(op: &'static str, dtype: DType) -> Error {
    Error::UnsupportedDType {
        op,
        dtype,
        expected: "a float dtype that the backend computes in",
    }
}

/// Refuses two tensors of different dtypes.
pub(crate) fn same_dtype<B: Backend>(op: &'static str, a: &Tensor<B>, b: &Tensor<B>) -> Result<()> {
    if a.dtype() != b.dtype() {
        return Err(Error::DTypeMismatch {
            op,
            lhs: a.dtype(),
            rhs: b.dtype(),
        });
    }
    Ok(())
}

impl<B: Backend> fmt::Debug for Tensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}, {}", self.shape(), self.dtype())?;
        match self.to_f64() {
            Ok(values) if values.len() <= 16 => write!(f, ", {values:?})"),
            _ => write!(f, ")"),
        }
    }
}
