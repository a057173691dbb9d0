//! Average pooling over windows, and adaptive average pooling over cells.

use crate::autograd::{Rule, RuleContext};
use crate::ops::reduce::acc_dtype;
use crate::{Backend, Indices, Result, Shape, Tensor};
use kiln_core::ops::{AdaptivePoolParams, Op, PoolParams};

/// A mean over boxes of elements. It is linear, so it is the gradient of its gradient.
#[derive(Clone, Copy)]
pub(super) enum Average {
    Windows(PoolParams),
    Cells(AdaptivePoolParams),
}

impl Average {
    pub(super) fn forward<B: Backend>(self, op: &'static str, x: &Tensor<B>, shape: Shape) -> Result<Tensor<B>> {
        if !x.has_op(self.op()) {
            return self.composed(x)?.reshape(&shape);
        }
        let mut y = x.alloc_like(shape)?;
        match &self {
            Average::Windows(p) => x.backend().avg_pool(p, x.buffer(), &mut y)?,
            Average::Cells(p) => x.backend().adaptive_avg_pool(p, x.buffer(), &mut y)?,
        }
        let input = *x.shape();
        Ok(Tensor::from_buffer(x.backend(), y, shape).record(op, &[x], || Mean(self, input)))
    }

    fn spread<B: Backend>(self, op: &'static str, g: &Tensor<B>, shape: Shape) -> Result<Tensor<B>> {
        let mut x = g.alloc_like(shape)?;
        match &self {
            Average::Windows(p) => g.backend().avg_pool_grad(p, g.buffer(), &mut x)?,
            Average::Cells(p) => g.backend().adaptive_avg_pool_grad(p, g.buffer(), &mut x)?,
        }
        let output = *g.shape();
        Ok(Tensor::from_buffer(g.backend(), x, shape).record(op, &[g], || Spread(self, output)))
    }

    fn op(&self) -> Op {
        match self {
            Average::Windows(_) => Op::AvgPool,
            Average::Cells(_) => Op::AdaptiveAvgPool,
        }
    }

    /// The definition: a box is a range along every axis, so its mean is a product with a matrix `[output, input]` along each.
    fn composed<B: Backend>(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (input, output) = match self {
            Average::Windows(p) => (p.window.input, p.window.output),
            Average::Cells(p) => (p.input, p.output),
        };
        let (input, output) = (input.map(|d| d as usize), output.map(|d| d as usize));
        let [batch, channels] = [x.shape()[0], x.shape()[x.rank() - 1]];
        let mut y = x.to_dtype(acc_dtype(x.dtype()))?;
        for i in 0..3 {
            // The axes before i are already pooled, those after it are not.
            let before = batch * output[..i].iter().product::<usize>();
            let behind = input[i + 1..].iter().product::<usize>() * channels;
            y = y.reshape(&[before, input[i], behind])?;
            if !self.is_whole(i, input[i], output[i]) {
                y = self.matrix(&y, i, input[i], output[i])?.matmul(&y)?;
            }
        }
        y.to_dtype(x.dtype())
    }

    /// True if each box along dimension `i` is one element, as in dimensions that do not exist.
    fn is_whole(&self, i: usize, input: usize, output: usize) -> bool {
        match self {
            Average::Windows(p) => input == output && p.window.kernel[i] == 1,
            Average::Cells(_) => input == output,
        }
    }

    /// The matrix `[output, input]` of the means along dimension `i`, on the device and in the dtype of `like`.
    fn matrix<B: Backend>(&self, like: &Tensor<B>, i: usize, input: usize, output: usize) -> Result<Tensor<B>> {
        let count = |n: usize| {
            let ones = Tensor::ones(like.backend(), &[n], like.dtype())?;
            ones.cumsum(0)?.sub_scalar(1.0)
        };
        let (at, o) = (
            count(input)?.reshape(&[1, input])?,
            count(output)?.reshape(&[output, 1])?,
        );
        let (from, to) = match self {
            Average::Windows(p) => {
                let from = o.affine(f64::from(p.window.stride[i]), -f64::from(p.window.padding[i]))?;
                let to = from.add_scalar(f64::from(p.window.kernel[i]))?;
                (from, to)
            }
            Average::Cells(_) => {
                let ratio = |o: &Tensor<B>| o.mul_scalar(input as f64)?.div(&o.full_like(output as f64)?);
                (ratio(&o)?.floor()?, ratio(&o.add_scalar(1.0)?)?.ceil()?)
            }
        };
        let inside = |mask: Indices<B>| mask.to_float(like.dtype());
        let seen = inside(at.ge(&from)?)?.mul(&inside(at.lt(&to)?)?)?;
        let divisor = match self {
            Average::Windows(p) if p.count_include_pad == 1 => to
                .clamp_max((input + p.window.padding[i] as usize) as f64)?
                .sub(&from)?,
            _ => seen.sum(&[1], true)?,
        };
        seen.div(&divisor)
    }
}

/// The rule of the mean, with the shape of its input.
struct Mean(Average, Shape);

impl<B: Backend> Rule<B> for Mean {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(self.0.spread("avg_pool_grad", cx.grad, self.1)?)])
    }
}

/// The rule of the mean's gradient, with the shape of the mean's output.
struct Spread(Average, Shape);

impl<B: Backend> Rule<B> for Spread {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(self.0.forward("avg_pool", cx.grad, self.1)?)])
    }
}
