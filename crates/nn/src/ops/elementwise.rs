//! Elementwise functions with their gradients: of one tensor, of two tensors with broadcasting, comparisons, selection.

mod binary;
mod compare;
mod composed;
mod operators;
mod unary;

pub use operators::{Operand, Value};
pub(super) use unary::composed;

use crate::autograd::{Rule, RuleContext};
use crate::tensor::require_float;
use crate::{Backend, DType, Error, Result, Shape, Tensor};
use kiln_core::ops::{Op, Reduce, ReduceParams};

/// The rule of a cast: the gradient is cast back to `from`.
struct Cast {
    from: DType,
}

impl<B: Backend> Rule<B> for Cast {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.to_dtype(self.from)?)])
    }

    fn casts_to(&self) -> Option<DType> {
        Some(self.from)
    }
}

struct SumTo {
    from: Shape,
}

impl<B: Backend> Rule<B> for SumTo {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.broadcast_to(&self.from)?)])
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The values converted to the float `dtype` (`torch.Tensor.to`), rounded to nearest even. The gradient is converted back.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.to_dtype(DType::BF16)?.dtype(), DType::BF16);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnsupportedDType`] for an integer dtype or one that the backend lacks.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor<B>> {
        require_float("to_dtype", self.backend(), dtype)?;
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let mut y = self.backend().alloc(dtype, self.size())?;
        self.backend().cast(self.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(self.backend(), y, *self.shape()).recorded_cast(self))
    }

    /// The tensors, all of one dtype, in another: [`to_dtype`](Tensor::to_dtype) of each by one op that is not recorded.
    pub(crate) fn each_to_dtype(tensors: &[&Tensor<B>], dtype: DType) -> Result<Vec<Tensor<B>>> {
        let Some(backend) = tensors.first().map(|t| t.backend()) else {
            return Ok(Vec::new());
        };
        if !backend.supports(Op::CastEach, dtype) {
            return tensors.iter().map(|t| t.detach().to_dtype(dtype)).collect();
        }
        let made = tensors.iter().map(|t| backend.alloc(dtype, t.size()));
        let mut made = made.collect::<Result<Vec<_>>>()?;
        let from: Vec<&B::Buffer> = tensors.iter().map(|t| t.buffer()).collect();
        backend.cast_each(&from, &mut made.iter_mut().collect::<Vec<_>>())?;
        let tensors = made.into_iter().zip(tensors);
        Ok(tensors
            .map(|(y, t)| Tensor::from_buffer(backend, y, *t.shape()))
            .collect())
    }

    /// Finishes the cast of `from`, whose result `self` has.
    pub(crate) fn recorded_cast(self, from: &Tensor<B>) -> Tensor<B> {
        self.record("to_dtype", &[from], || Cast { from: from.dtype() })
    }

    /// The sum over the dimensions along which `shape` was broadcast to the shape of `self`
    /// (`torch.Tensor.sum_to_size`): the gradient of a broadcast operand is summed so.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
    /// assert_eq!(x.sum_to_size(&[3])?.to_vec::<f32>()?, [2.0, 2.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] when `shape` does not broadcast to the shape of `self`.
    pub fn sum_to_size(&self, shape: &[usize]) -> Result<Tensor<B>> {
        let (from, to) = (*self.shape(), Shape::new(shape)?);
        if from == to {
            return Ok(self.clone());
        }
        check_broadcasts("sum_to_size", &to, &from)?;
        let lead = from.rank() - to.rank();
        let axes: Vec<isize> = (0..from.rank())
            .filter(|&i| i < lead || (to[i - lead] == 1 && from[i] != 1))
            .map(|i| i as isize)
            .collect();
        let (p, _) = ReduceParams::new("sum_to_size", Reduce::Sum, &from, &axes, true)?;
        let mut y = self.alloc_like(to)?;
        self.backend().reduce(&p, self.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(self.backend(), y, to).record("sum_to_size", &[self], || SumTo { from }))
    }

    /// A scalar of this tensor's dtype and backend.
    pub(in crate::ops) fn scalar(&self, value: f64) -> Result<Tensor<B>> {
        Tensor::full(self.backend(), &[], self.dtype(), value)
    }
}

/// Refuses a shape `from` that does not broadcast to exactly `to`.
pub(super) fn check_broadcasts(op: &'static str, from: &Shape, to: &Shape) -> Result<()> {
    match from.broadcast(op, to) {
        Ok(shape) if shape == *to => Ok(()),
        _ => Err(Error::ShapeMismatch {
            op,
            lhs: *from,
            rhs: *to,
        }),
    }
}
