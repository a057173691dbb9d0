//! A convolution and the max pooling of its result as one op, which keeps no more than what is pooled. Beside it stand the
//! two ops that it is made of: what gradients of gradients are taken of.

use super::activation::{Fused, activation_grad};
use super::matmul::check_bias;
use super::pool::few_enough;
use crate::autograd::{Rule, RuleContext, is_grad_enabled, vjp};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Result, Shape, Tensor};
use kiln_core::ops::{Activation, ConvPoolParams, Window};

const OP: &str = "conv_max_pool";

/// What the op is made of.
#[derive(Clone, Copy)]
struct Pair {
    window: Window,
    groups: usize,
    f: Activation,
    pool: Window,
    ceil_mode: bool,
}

impl Pair {
    /// The two ops; `x` are the image, the weight and perhaps a bias.
    fn composed<B: Backend>(&self, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].conv(&x[1], x.get(2), &self.window, self.groups, self.f)?
            .max_pool(&self.pool, self.ceil_mode)
    }
}

struct ConvPool<B: Backend> {
    pair: Pair,
    p: ConvPoolParams,
    fused: Fused,
    /// The image, the weight and perhaps a bias.
    inputs: Vec<Tensor<B>>,
    index: B::Buffer,
}

impl<B: Backend> ConvPool<B> {
    /// The gradients of image and weight, for the gradient `g` before the activation.
    fn grads(&self, g: &Tensor<B>, needs: [bool; 2]) -> Result<[Option<Tensor<B>>; 2]> {
        let ([x, w], b) = ([&self.inputs[0], &self.inputs[1]], g.backend());
        let mut grads = [None, None];
        if !needs[0] {
            if needs[1] {
                let mut dw = w.alloc_like(*w.shape())?;
                b.conv_max_pool_weight_grad(&self.p, g.buffer(), &self.index, x.buffer(), &mut dw)?;
                grads[1] = Some(Tensor::from_buffer(b, dw, *w.shape()));
            }
            return Ok(grads);
        }
        let mut between = b.alloc(g.dtype(), self.p.between())?;
        b.max_pool_grad(&self.p.pool, g.buffer(), &self.index, &mut between)?;
        let mut dx = x.alloc_like(*x.shape())?;
        b.conv_data_grad(&self.p.conv, &between, w.buffer(), &mut dx)?;
        grads[0] = Some(Tensor::from_buffer(b, dx, *x.shape()));
        if needs[1] {
            let mut dw = w.alloc_like(*w.shape())?;
            b.conv_weight_grad(&self.p.conv, &between, x.buffer(), &mut dw)?;
            grads[1] = Some(Tensor::from_buffer(b, dw, *w.shape()));
        }
        Ok(grads)
    }
}

impl<B: Backend> Rule<B> for ConvPool<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() {
            let inputs: Vec<_> = self.inputs.iter().collect();
            return vjp(&inputs, cx.grad, |x| self.pair.composed(x));
        }
        // The activation's derivative follows from its result: only those of the largest elements are wanted.
        let g = activation_grad(self.fused, cx)?;
        let mut grads = self.grads(&g, [cx.needs(0), cx.needs(1)])?.to_vec();
        if let Some(bias) = self.inputs.get(2) {
            // Every window has given its gradient to one element.
            let db = || g.sum_to_size(bias.shape().dims());
            grads.push(cx.needs(2).then(db).transpose()?);
        }
        Ok(grads)
    }

    fn saves_output(&self) -> bool {
        self.fused.needs_output()
    }

    fn rectifies(&self) -> bool {
        self.fused.rectifies()
    }
}

impl<B: Backend> Tensor<B> {
    /// [`Tensor::max_pool`] of [`Tensor::conv`]: the same values, with less memory. What the convolution gives is not kept for
    /// the backward pass, and a backend may never have all of it at once. The pooling's flag is `ceil_mode`.
    ///
    /// # Errors
    /// As the two ops.
    pub fn conv_max_pool(
        &self,
        w: &Tensor<B>,
        bias: Option<&Tensor<B>>,
        (window, groups): (&Window, usize),
        f: Activation,
        (pool, ceil_mode): (&Window, bool),
    ) -> Result<Tensor<B>> {
        let pair = Pair {
            window: *window,
            groups,
            f,
            pool: *pool,
            ceil_mode,
        };
        let inputs: Vec<Tensor<B>> = [Some(self), Some(w), bias].into_iter().flatten().cloned().collect();
        let fused = Fused::new(f, [Some(self), Some(w), bias]);
        // A dilated window may step over a small image, and then gives its gradient to nobody.
        if !fused.whole() || pool.dilation != [1; 3] {
            return pair.composed(&inputs);
        }
        let (mut p, shape) = ConvPoolParams::new(OP, self.shape(), w.shape(), (window, groups), (pool, ceil_mode))?;
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, p.conv.out_channels as usize)?;
        few_enough(OP, &p.pool)?;
        p.conv.activation = fused.code();
        self.forward_pooled(p, shape, pair, fused, inputs)
    }

    fn forward_pooled(
        &self,
        p: ConvPoolParams,
        shape: Shape,
        pair: Pair,
        fused: Fused,
        inputs: Vec<Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let b = self.backend();
        let mut y = self.alloc_like(shape)?;
        let mut index = b.alloc(DType::I32, shape.size())?;
        let bias = inputs.get(2).map(Tensor::buffer);
        b.conv_max_pool(&p, inputs[0].buffer(), inputs[1].buffer(), bias, &mut y, &mut index)?;
        let y = Tensor::from_buffer(b, y, shape);
        let tracked: Vec<_> = inputs.iter().collect();
        Ok(y.record(OP, &tracked, || ConvPool {
            pair,
            p,
            fused,
            inputs: inputs.clone(),
            index,
        }))
    }
}
