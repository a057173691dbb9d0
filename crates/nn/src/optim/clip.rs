//! What is done to gradients between backward and step: scaling and clipping. Nothing is read back.

use crate::autograd::no_grad;
use crate::{Backend, DType, Error, Gradients, Result, Tensor};
use kiln_core::ops::{Reduce, ReduceParams};

impl<B: Backend> Gradients<B> {
    /// Multiplies every gradient: after accumulating `n` micro-batches by `1/n`.
    ///
    /// # Errors
    /// A factor that is not finite, memory.
    pub fn scale(&mut self, factor: f64) -> Result<()> {
        if !factor.is_finite() {
            return Err(Error::invalid("scale", "factor", factor, "a finite number"));
        }
        no_grad(|| {
            self.iter_mut().try_for_each(|(_, g)| {
                *g = g.mul_scalar(factor)?;
                Ok(())
            })
        })
    }

    /// Clips every entry to `-limit..=limit` (`torch.nn.utils.clip_grad_value_`).
    ///
    /// # Errors
    /// A limit that is negative or NaN, memory.
    pub fn clip_value(&mut self, limit: f64) -> Result<()> {
        if limit.is_nan() || limit < 0.0 {
            return Err(Error::invalid("clip_value", "limit", limit, "0 or more"));
        }
        no_grad(|| {
            self.iter_mut().try_for_each(|(_, g)| {
                *g = g.clamp(-limit, limit)?;
                Ok(())
            })
        })
    }

    /// The Euclidean norm of all gradients as one vector: a scalar of f32, or of f64 if any gradient is.
    ///
    /// # Errors
    /// No gradients, memory.
    pub fn norm(&self) -> Result<Tensor<B>> {
        no_grad(|| {
            let mut grads: Vec<_> = self.iter().collect();
            // The sum runs in the order of creation, so that it has the same bits each time.
            grads.sort_by_key(|(id, _)| *id);
            let wide = grads.iter().any(|(_, g)| g.dtype() == DType::F64);
            let dtype = if wide { DType::F64 } else { DType::F32 };
            let mut total: Option<Tensor<B>> = None;
            for (_, grad) in grads {
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
            let total = total.ok_or_else(|| Error::invalid("norm", "gradients", "none", "at least one"))?;
            total.sqrt()
        })
    }

    /// Scales all gradients by `min(1, max_norm/(norm + 1e-6))` and returns the norm before
    /// (`torch.nn.utils.clip_grad_norm_`). A norm of infinity or NaN goes through to the gradients.
    ///
    /// # Errors
    /// A limit that is negative or NaN, no gradients, memory.
    pub fn clip_norm(&mut self, max_norm: f64) -> Result<Tensor<B>> {
        if max_norm.is_nan() || max_norm < 0.0 {
            return Err(Error::invalid("clip_norm", "max_norm", max_norm, "0 or more"));
        }
        let norm = self.norm()?;
        no_grad(|| {
            let factor = norm
                .add_scalar(1e-6)?
                .reciprocal()?
                .mul_scalar(max_norm)?
                .clamp_max(1.0)?;
            self.iter_mut().try_for_each(|(_, g)| {
                *g = g.mul(&factor.to_dtype(g.dtype())?)?;
                Ok(())
            })
        })?;
        Ok(norm)
    }
}
