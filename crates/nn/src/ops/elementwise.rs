//! Elementwise functions with their gradients.

use crate::autograd::{Rule, RuleContext};
use crate::tensor::same_dtype;
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Binary, BroadcastParams};

fn binary<B: Backend>(op: &'static str, f: Binary, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    same_dtype(op, a, b)?;
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut y = a.alloc_like(shape)?;
    a.backend().binary(&p, a.buffer(), b.buffer(), &mut y)?;
    Ok(Tensor::from_buffer(a.backend(), y, shape))
}

struct Add;

impl<B: Backend> Rule<B> for Add {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.clone()), Some(cx.grad.clone())])
    }
}

impl<B: Backend> Tensor<B> {
    /// `self + other` with broadcasting (`torch.add`).
    ///
    /// # Errors
    /// Shapes that do not broadcast, dtypes that differ.
    pub fn add(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(binary("add", Binary::Add, self, other)?.record("add", &[self, other], || Add))
    }
}
