//! Softmax and log-softmax.

use crate::autograd::{Cast, Rule, RuleContext, is_grad_enabled, no_grad};
use crate::ops::reduce::acc_dtype;
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Op, SoftmaxParams};

/// The rule of softmax and of log-softmax, from the output `y`: `y·(g − Σg·y)` and `g − e^y·Σg`.
struct SoftmaxRule {
    p: SoftmaxParams,
    axis: isize,
}

impl<B: Backend> Rule<B> for SoftmaxRule {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (g, y) = (cx.grad, cx.output());
        let dx = if !is_grad_enabled() && g.has_op(Op::Softmax) {
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
    if let Some(cast) = Cast::high() {
        return softmax(op, &*cast.of(x)?, axis, log);
    }
    let p = SoftmaxParams::new(op, x.shape(), axis, log)?;
    let y = if x.has_op(Op::Softmax) {
        let mut y = x.alloc_like(*x.shape())?;
        x.backend().softmax(&p, x.buffer(), &mut y)?;
        Tensor::from_buffer(x.backend(), y, *x.shape())
    } else {
        no_grad(|| composed(x, axis, log))?
    };
    Ok(y.record(op, &[x], || SoftmaxRule { p, axis }))
}

/// The definition in primitive ops.
fn composed<B: Backend>(x: &Tensor<B>, axis: isize, log: bool) -> Result<Tensor<B>> {
    if x.size() == 0 {
        return Ok(x.detach());
    }
    let wide = x.to_dtype(acc_dtype(x.dtype()))?;
    let below = wide.sub(&wide.max(&[axis], true)?)?;
    let powers = below.exp()?;
    let total = powers.sum(&[axis], true)?;
    let y = if log {
        below.sub(&total.log()?)?
    } else {
        powers.div(&total)?
    };
    y.to_dtype(x.dtype())
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// eˣ/Σeˣ along `axis` (`torch.softmax`), without overflow.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 4], DType::F32)?;
    /// assert_eq!(x.softmax(-1)?.to_vec::<f32>()?, [0.25; 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn softmax(&self, axis: isize) -> Result<Tensor<B>> {
        softmax("softmax", self, axis, false)
    }

    /// x − ln Σeˣ along `axis` (`torch.log_softmax`), without overflow.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2], DType::F32)?;
    /// assert!((x.log_softmax(-1)?.to_f64()?[0] + 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor<B>> {
        softmax("log_softmax", self, axis, true)
    }
}
