//! Kernels of the caller's own.

use super::mode::no_grad;
use crate::module::Value;
use crate::{Backend, DType, Error, Result, Shape, Tensor};
use kiln_core::Buffer;

/// A tensor that a kernel reads.
///
/// See the example of [`kernel`].
#[derive(Debug)]
pub struct KernelInput<'a, B: Backend> {
    op: &'static str,
    shape: &'a Shape,
    buffer: &'a B::Buffer,
}

impl<'a, B: Backend> KernelInput<'a, B> {
    /// The dimensions.
    ///
    /// See the example of [`kernel`].
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The memory, whose elements are in row-major order.
    ///
    /// See the example of [`kernel`].
    pub fn buffer(&self) -> &'a B::Buffer {
        self.buffer
    }

    /// The memory, if its elements are of this type.
    ///
    /// See the example of [`kernel`].
    ///
    /// # Errors
    /// [`Error::DTypeMismatch`].
    pub fn of(&self, dtype: DType) -> Result<&'a B::Buffer> {
        match self.buffer.dtype() {
            found if found == dtype => Ok(self.buffer),
            found => Err(Error::DTypeMismatch {
                op: self.op,
                lhs: dtype,
                rhs: found,
            }),
        }
    }
}

/// A tensor of floats of the given shape that `run` fills, from the memory of `inputs`: the forward pass of an op whose kernel is the
/// caller's own, such as a loop over the slices of the CPU's buffers, or a launch of a CUDA kernel (`Cuda::launch_kernel`). `run` has to
/// write every element. There is no gradient: [`function`](super::function) adds one.
///
/// ```
/// use kiln_nn::autograd::{function, kernel};
/// use kiln_nn::{DType, Tensor};
/// # fn main() -> kiln_nn::Result<()> {
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?.requires_grad();
/// let cube = || {
///     kernel("cube", &[(&x).into()], x.shape(), DType::F32, |_, inputs, y| {
///         let x = inputs[0].of(DType::F32)?.as_slice::<f32>();
///         y.as_mut_slice::<f32>().iter_mut().zip(x).for_each(|(y, x)| *y = x * x * x);
///         Ok(())
///     })
/// };
/// let saved = x.clone();
/// let y = function("cube", &[&x], cube, move |cx| Ok(vec![Some((3.0 * saved.square()?)?.mul(cx.grad)?)]))?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 8.0, 27.0]);
/// assert_eq!(y.sum(&[], false)?.backward()?.get(&x).unwrap().to_vec::<f32>()?, [3.0, 12.0, 27.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// No inputs, a dtype that is not of floats, those of `run`, memory.
pub fn kernel<B: Backend>(
    op: &'static str,
    inputs: &[Value<B>],
    shape: &[usize],
    dtype: DType,
    run: impl FnOnce(&B, &[KernelInput<'_, B>], &mut B::Buffer) -> Result<()>,
) -> Result<Tensor<B>> {
    let Some(first) = inputs.first() else {
        return Err(Error::invalid(op, "inputs", "none", "at least one tensor"));
    };
    if !dtype.is_float() {
        return Err(Error::invalid(op, "dtype", dtype, "a float dtype"));
    }
    let (backend, shape) = (first.backend().clone(), Shape::new(shape)?);
    let views: Vec<KernelInput<'_, B>> = inputs
        .iter()
        .map(|input| KernelInput {
            op,
            shape: input.shape(),
            buffer: input.buffer(),
        })
        .collect();
    let mut buffer = backend.alloc(dtype, shape.size())?;
    no_grad(|| run(&backend, &views, &mut buffer))?;
    Ok(Tensor::from_buffer(&backend, buffer, shape))
}
