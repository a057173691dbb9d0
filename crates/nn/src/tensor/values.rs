//! The values of a tensor: creation from host values, reading, and overwriting in place.

use super::Tensor;
use crate::array::Array;
use crate::autograd::forget_cast;
use kiln_core::{Backend, DType, Element, Error, Float, Result, Shape, host};
use std::sync::Arc;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// A tensor of `values` in row-major order (`torch.tensor`), in their dtype.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(x.i((1, ..))?.to_vec::<f32>()?, [4.0, 5.0, 6.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_f64(&cpu, &[0.1, 1.5], &[2], DType::BF16)?;
    /// assert_eq!(x.to_f64()?, [0.10009765625, 1.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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

    /// The values on another device or backend (`torch.Tensor.to` with a device), through the host. The result is untracked.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let (cpu, other) = (kiln_cpu::Cpu::new(), kiln_cpu::Cpu::new());
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.to_device(&other)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype that the other backend does not have, memory of the host or of the device.
    pub fn to_device<C: Backend>(&self, backend: &C) -> Result<Tensor<C>> {
        require_float("to_device", backend, self.dtype())?;
        Ok(Tensor::new(self.array.to_device(backend)?, None))
    }

    /// A tensor filled with `value` (`torch.full`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::full(&cpu, &[2], DType::F32, 7.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [7.0, 7.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn zeros(backend: &B, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::full(backend, shape, dtype, 0.0)
    }

    /// A tensor of ones (`torch.ones`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::full`].
    pub fn ones(backend: &B, shape: &[usize], dtype: DType) -> Result<Self> {
        Self::full(backend, shape, dtype, 1.0)
    }

    /// `start`, `start + step`, … up to but without `end` (`torch.arange`), each rounded from f64. Computed on the host.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// let x = Tensor::arange(&kiln_cpu::Cpu::new(), 1.0, 2.0, 0.25, DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.25, 1.5, 1.75]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A step of 0 or that leads away from `end`, numbers that are not finite, an integer dtype, memory.
    pub fn arange(backend: &B, start: f64, end: f64, step: f64, dtype: DType) -> Result<Self> {
        const OP: &str = "arange";
        let count = ((end - start) / step).ceil();
        if !(count >= 0.0 && start.is_finite() && step.is_finite()) {
            let found = format!("{start}, {end}, {step}");
            return Err(Error::invalid(
                OP,
                "start, end, step",
                found,
                "a step that leads from start to end",
            ));
        }
        // A number that saturates is refused for its size.
        let values = host::collect((0..count as usize).map(|i| start + i as f64 * step))?;
        Self::from_f64(backend, &values, &[values.len()], dtype)
    }

    /// `steps` numbers at equal distances, the first `start` and the last `end` (`torch.linspace`), each rounded from f64.
    /// Computed on the host.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::linspace(&cpu, 0.0, 1.0, 5, DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Numbers that are not finite, an integer dtype, memory.
    pub fn linspace(backend: &B, start: f64, end: f64, steps: usize, dtype: DType) -> Result<Self> {
        if !start.is_finite() || !end.is_finite() {
            return Err(Error::invalid(
                "linspace",
                "start, end",
                format!("{start}, {end}"),
                "finite numbers",
            ));
        }
        let step = (end - start) / steps.saturating_sub(1).max(1) as f64;
        // From both ends, so that the last number is the end itself.
        let at = |i: usize| match i < steps / 2 || steps == 1 {
            true => start + i as f64 * step,
            false => end - (steps - 1 - i) as f64 * step,
        };
        let values = host::collect((0..steps).map(at))?;
        Self::from_f64(backend, &values, &[steps], dtype)
    }

    /// Zeros of the shape, dtype and backend of `self`, untracked (`torch.zeros_like`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F16)?;
    /// assert_eq!(x.zeros_like()?.dtype(), DType::F16);
    /// assert_eq!(x.zeros_like()?.to_f64()?, [0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeros_like(&self) -> Result<Self> {
        self.full_like(0.0)
    }

    /// A tensor filled with `value`, of the shape, dtype and backend of `self`, untracked (`torch.full_like`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.full_like(3.0)?.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(x.to_vec::<f64>().is_err());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.array.to_vec()
    }

    /// The elements where they lie, without a copy. `T` must be the tensor's dtype.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.as_slice::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype; a device whose memory the host cannot read in place.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.array.as_slice()
    }

    /// The elements as f64, whatever the dtype.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::full(&cpu, &[2], DType::F16, 0.5)?;
    /// assert_eq!(x.to_f64()?, [0.5, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.sum(&[], false)?.item()?, 3.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
        self.about_to_change();
        self.array.buffer_mut()
    }

    /// Keeps what gradients read of this tensor, and drops its cast of mixed precision.
    pub(super) fn about_to_change(&self) {
        if let Some(node) = &self.node {
            node.hold_output();
            forget_cast(node.id());
        }
    }

    /// A buffer of this tensor's dtype for an output of `shape`.
    pub(crate) fn alloc_like(&self, shape: Shape) -> Result<B::Buffer> {
        self.backend().alloc(self.dtype(), shape.size())
    }

    /// Overwrites the values in place with those of `source` (`torch.Tensor.copy_`); the tensor's node in the graph stays.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut x = Tensor::zeros(&cpu, &[2], DType::F32)?;
    /// x.assign(&Tensor::ones(&cpu, &[2], DType::F32)?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut x = Tensor::zeros(&cpu, &[2], DType::F32)?;
    /// x.write(&[1f32, 2.0])?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`] for another dtype, another number of values.
    pub fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.about_to_change();
        self.array.write(values)
    }

    /// The same values in memory of their own, untracked (`x.detach().clone()` in PyTorch). A clone in Rust shares the memory.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?.requires_grad();
    /// let y = x.copy()?;
    /// assert_eq!((y.to_f64()?, y.is_tracked()), (vec![1.0, 1.0], false));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
