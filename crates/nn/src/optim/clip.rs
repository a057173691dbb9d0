//! What is done to gradients between backward and step: scaling and clipping. Nothing is read back.
//!
//! A graph may lead to more leaves than an optimizer changes: another net's parameters, an input whose gradient is wanted.
//! Clipping is told which parameters it is about, as `torch.nn.utils.clip_grad_norm_` is; the others' gradients stay.

use crate::autograd::{NodeId, no_grad};
use crate::ops::acc_dtype;
use crate::{Backend, DType, Error, Gradients, Indices, Result, Shape, Tensor};
use kiln_core::ops::{GradNormParams, Op, Reduce, ReduceParams};
use std::collections::BTreeSet;

/// Each of the parameters that has a place in graphs, once, in the order in which those places were made: sums over them have
/// the same bits each time.
fn ids<B: Backend>(parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>) -> BTreeSet<NodeId> {
    parameters.into_iter().filter_map(|p| p.as_ref().id()).collect()
}

/// 1 if a number of the tensor is infinite or NaN, else 0: i32 `[1]`.
pub(super) fn not_finite<B: Backend>(x: &Tensor<B>) -> Result<Indices<B>> {
    // Infinity and NaN less themselves are NaN.
    let finite = x.sub(x)?.eq_scalar(0.0)?;
    finite.all(&[], false)?.logical_not()?.to_i32()?.reshape(&[1usize])
}

/// Multiplies the gradients of `ids` by a factor, one number, in place; `found`, i32 `[1]`, becomes 1 if one of them is not finite then.
pub(super) fn multiply<B: Backend>(
    grads: &mut Gradients<B>,
    ids: &BTreeSet<NodeId>,
    factor: &Tensor<B>,
    found: &mut Indices<B>,
) -> Result<()> {
    let backend = factor.backend();
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut list = grads.of_dtype(ids, dtype);
        if list.is_empty() {
            continue;
        }
        let factor = factor.to_dtype(wide)?;
        if backend.supports(Op::Unscale, dtype) {
            let buffers: Result<Vec<_>> = list.iter_mut().map(|(_, g)| g.buffer_mut()).collect();
            backend.unscale(factor.buffer(), &mut buffers?, found.buffer_mut()?)?;
            continue;
        }
        for (_, grad) in list {
            let product = grad.to_dtype(wide)?.mul(&factor)?;
            *grad = product.reshape(grad.shape())?.to_dtype(dtype)?;
            *found = found.maximum(&not_finite(grad)?)?;
        }
    }
    Ok(())
}

#[compiled_once]
impl<B: Backend> Gradients<B> {
    /// Multiplies every gradient: after accumulating `n` micro-batches by `1/n`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::ones(&cpu, &[], DType::F32)?.requires_grad();
    /// let mut grads = w.mul_scalar(3.0)?.backward()?;
    /// grads.accumulate(w.mul_scalar(5.0)?.backward()?)?;
    /// grads.scale(1.0 / 2.0)?;
    /// assert_eq!(grads.get(&w).unwrap().item()?, 4.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A factor that is not finite, memory.
    pub fn scale(&mut self, factor: f64) -> Result<()> {
        if !factor.is_finite() {
            return Err(Error::invalid("scale", "factor", factor, "a finite number"));
        }
        let all: Vec<NodeId> = self.iter().map(|(id, _)| id).collect();
        no_grad(|| self.change(all, |g| g.mul_scalar(factor)))
    }

    /// Clips every entry of the parameters' gradients to `-limit..=limit` (`torch.nn.utils.clip_grad_value_`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::from_slice(&cpu, &[0.25f32, -3.0], &[2])?.requires_grad();
    /// let mut grads = w.square()?.sum(&[], false)?.backward()?;
    /// grads.clip_value([&w], 1.0)?;
    /// assert_eq!(grads.get(&w).unwrap().to_vec::<f32>()?, [0.5, -1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A limit that is negative or NaN, memory.
    pub fn clip_value(
        &mut self,
        parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>,
        limit: f64,
    ) -> Result<()> {
        if limit.is_nan() || limit < 0.0 {
            return Err(Error::invalid("clip_value", "limit", limit, "0 or more"));
        }
        no_grad(|| self.change(ids(parameters), |g| g.clamp(-limit, limit)))
    }

    /// The Euclidean norm of the parameters' gradients as one vector: a scalar of f32, or of f64 if any gradient is. Parameters
    /// without a gradient do not count.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let w = Tensor::from_slice(&cpu, &[1.5f32, 2.0], &[2])?.requires_grad();
    /// let grads = w.square()?.sum(&[], false)?.backward()?;
    /// assert_eq!(grads.norm([&w])?.item()?, 5.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No gradient of any of the parameters, memory.
    pub fn norm(&self, parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>) -> Result<Tensor<B>> {
        Ok(self.norm_of(&ids(parameters), f64::INFINITY)?.0)
    }

    /// The norm, and the factor that makes it `max_norm` at most.
    fn norm_of(&self, ids: &BTreeSet<NodeId>, max_norm: f64) -> Result<(Tensor<B>, Tensor<B>)> {
        no_grad(|| {
            let grads: Vec<_> = ids.iter().filter_map(|&id| self.by_id(id)).collect();
            if let Some(fused) = fused_norm(&grads, max_norm)? {
                return Ok(fused);
            }
            let wide = grads.iter().any(|g| g.dtype() == DType::F64);
            let dtype = if wide { DType::F64 } else { DType::F32 };
            let mut total: Option<Tensor<B>> = None;
            for grad in grads {
                let grad = grad.to_dtype(dtype)?;
                let (p, shape) = ReduceParams::new("norm", Reduce::SumSquares, grad.shape(), &[], false)?;
                let mut sum = grad.alloc_like(shape)?;
                grad.backend().reduce(&p, grad.buffer(), &mut sum)?;
                let sum = Tensor::from_buffer(grad.backend(), sum, shape);
                total = Some(match total {
                    Some(t) => t.add(&sum)?,
                    None => sum,
                });
            }
            let expected = "at least one parameter with a gradient";
            let total = total.ok_or_else(|| Error::invalid("norm", "parameters", "none with a gradient", expected))?;
            let norm = total.sqrt()?;
            let factor = norm.add_scalar(1e-6)?.reciprocal()?.mul_scalar(max_norm)?;
            Ok((norm, factor.clamp_max(1.0)?))
        })
    }

    /// Scales the parameters' gradients by `min(1, max_norm/(norm + 1e-6))`, where `norm` is [their norm](Gradients::norm), and
    /// returns it as it was before (`torch.nn.utils.clip_grad_norm_`). A norm of infinity or NaN goes through to the gradients.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Linear};
    /// # fn main() -> kiln_nn::Result<()> {
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (generator, critic) = (Linear::new(init, 3, 2)?, Linear::new(init, 2, 1)?);
    /// let noise = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
    /// let mut grads = critic.forward(&generator.forward(&noise)?)?.mean(&[], false)?.backward()?;
    /// let norm = grads.clip_norm(generator.parameters(), 1.0)?;
    /// # let w = grads.get(generator.parameters()[0]).unwrap().to_f64()?;
    /// # let b = grads.get(generator.parameters()[1]).unwrap().to_f64()?;
    /// # let both: f64 = w.iter().chain(&b).map(|g| g * g).sum();
    /// # assert!((both.sqrt() - norm.item()?.min(1.0)).abs() < 1e-5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A limit that is negative or NaN, no gradient of any of the parameters, memory.
    pub fn clip_norm(
        &mut self,
        parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>,
        max_norm: f64,
    ) -> Result<Tensor<B>> {
        if max_norm.is_nan() || max_norm < 0.0 {
            return Err(Error::invalid("clip_norm", "max_norm", max_norm, "0 or more"));
        }
        let ids = ids(parameters);
        let (norm, factor) = self.norm_of(&ids, max_norm)?;
        no_grad(|| {
            let mut found = Indices::full(norm.backend(), &[1], 0i32)?;
            multiply(self, &ids, &factor, &mut found)
        })?;
        Ok(norm)
    }
}

/// The norm and the factor by the backend's own op, where it has that for all gradients at once.
fn fused_norm<B: Backend>(grads: &[&Tensor<B>], max_norm: f64) -> Result<Option<(Tensor<B>, Tensor<B>)>> {
    let Some(first) = grads.first() else { return Ok(None) };
    let (backend, dtype) = (first.backend(), first.dtype());
    if !first.has_op(Op::GradNorm) || grads.iter().any(|g| g.dtype() != dtype) {
        return Ok(None);
    }
    let scalar = Shape::new(&[])?;
    let alloc = || backend.alloc(acc_dtype(dtype), 1);
    let (mut norm, mut factor) = (alloc()?, alloc()?);
    let buffers: Vec<_> = grads.iter().map(|g| g.buffer()).collect();
    backend.grad_norm(&GradNormParams { max_norm }, &buffers, &mut norm, &mut factor)?;
    Ok(Some(
        [norm, factor].map(|b| Tensor::from_buffer(backend, b, scalar)).into(),
    ))
}
