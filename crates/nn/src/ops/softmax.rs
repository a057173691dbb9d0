//! Softmax and log-softmax.

use crate::autograd::{Rule, RuleContext, is_grad_enabled};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::SoftmaxParams;

/// Both gradients are functions of the output `y`: `y·(g − Σg·y)` and, of the logarithm, `g − e^y·Σg`.
struct SoftmaxRule {
    p: SoftmaxParams,
    axis: isize,
}

impl<B: Backend> Rule<B> for SoftmaxRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (g, y) = (cx.grad, cx.output());
        let dx = if !is_grad_enabled() {
            let mut dx = g.alloc_like(*g.shape())?;
            g.backend().softmax_grad(&self.p, y.buffer(), g.buffer(), &mut dx)?;
            Tensor::from_buffer(g.backend(), dx, *g.shape())
        } else if self.p.log == 1 {
            g.sub(&y.exp()?.mul(&g.sum(&[self.axis], true)?)?)?
        } else {
            y.mul(&g.sub(&g.mul(y)?.sum(&[self.axis], true)?)?)?
        };
        Ok(vec![Some(dx)])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

fn softmax<B: Backend>(op: &'static str, x: &Tensor<B>, axis: isize, log: bool) -> Result<Tensor<B>> {
    let p = SoftmaxParams::new(op, x.shape(), axis, log)?;
    let mut y = x.alloc_like(*x.shape())?;
    x.backend().softmax(&p, x.buffer(), &mut y)?;
    Ok(Tensor::from_buffer(x.backend(), y, *x.shape()).record(op, &[x], || SoftmaxRule { p, axis }))
}

impl<B: Backend> Tensor<B> {
    /// eˣ/Σeˣ along `axis` (`torch.softmax`), without overflow.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn softmax(&self, axis: isize) -> Result<Tensor<B>> {
        softmax("softmax", self, axis, false)
    }

    /// x − ln Σeˣ along `axis` (`torch.log_softmax`), without overflow.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor<B>> {
        softmax("log_softmax", self, axis, true)
    }
}
