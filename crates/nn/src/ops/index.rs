//! Shapes and indices: everything that moves elements, with gradients that move them back.
//!
//! Two ops carry the family: reading a strided view, and writing through one into zeros. Each is the other's gradient.

mod gather;
mod join;
mod shape;
mod slice;

pub use join::Pad;

use crate::autograd::{Rule, RuleContext};
use crate::{Backend, Result, Shape, Tensor};
use kiln_core::ops::ViewParams;

struct Read {
    p: ViewParams,
    from: Shape,
}

impl<B: Backend> Rule<B> for Read {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(write_view("view_write", cx.grad, &self.p, self.from)?)])
    }
}

struct Write {
    p: ViewParams,
    from: Shape,
}

impl<B: Backend> Rule<B> for Write {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(read_view("view_read", cx.grad, &self.p, self.from)?)])
    }
}

/// The elements of a view of `x` that does not overlap itself, as a tensor of shape `to`.
fn read_view<B: Backend>(op: &'static str, x: &Tensor<B>, p: &ViewParams, to: Shape) -> Result<Tensor<B>> {
    let mut y = x.alloc_like(to)?;
    x.backend().view_read(p, x.buffer(), &mut y)?;
    let (p, from) = (*p, *x.shape());
    Ok(Tensor::from_buffer(x.backend(), y, to).record(op, &[x], || Read { p, from }))
}

/// Zeros of shape `to` with the elements of `x` written through a view that does not overlap itself.
fn write_view<B: Backend>(op: &'static str, x: &Tensor<B>, p: &ViewParams, to: Shape) -> Result<Tensor<B>> {
    let mut y = x.alloc_like(to)?;
    if x.size() < to.size() {
        x.backend().fill(0.0, &mut y)?;
    }
    x.backend().view_write(p, x.buffer(), &mut y)?;
    let (p, from) = (*p, *x.shape());
    Ok(Tensor::from_buffer(x.backend(), y, to).record(op, &[x], || Write { p, from }))
}
