//! A convolution and the max pooling of its result as one op, which stores only the pooled result. Gradients of gradients are
//! taken of the two separate ops.

use super::activation::Fused;
use super::matmul::check_bias;
use super::pool::few_enough;
use crate::autograd::{Cast, Rule, RuleContext, is_grad_enabled, vjp};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Result, Shape, Tensor};
use kiln_core::ops::{Activation, ConvPoolGrads, ConvPoolParams, Op, PooledGrad, Window};

const OP: &str = "conv_max_pool";

/// The arguments of the convolution and of the pooling.
#[derive(Clone, Copy)]
struct Pair {
    window: Window,
    groups: usize,
    f: Activation,
    pool: Window,
    ceil_mode: bool,
}

impl Pair {
    /// The two separate ops; `x` holds the image, the weight and, if there is one, the bias.
    fn composed<B: Backend>(&self, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].conv(&x[1], x.get(2), &self.window, self.groups, self.f)?
            .max_pool(&self.pool, self.ceil_mode)
    }
}

struct ConvPool<B: Backend> {
    pair: Pair,
    p: ConvPoolParams,
    /// The image, the weight and, if there is one, the bias.
    inputs: Vec<Tensor<B>>,
    index: B::Buffer,
}

impl<B: Backend> Rule<B> for ConvPool<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() {
            let inputs: Vec<_> = self.inputs.iter().collect();
            return vjp(&inputs, cx.grad, |x| self.pair.composed(x));
        }
        let (p, b) = (&self.p, cx.grad.backend());
        let of = PooledGrad {
            g: cx.grad.buffer(),
            y: cx.output().buffer(),
            index: &self.index,
        };
        // Buffers for those gradients of image, weight and bias that are wanted.
        let wanted = |(i, x): (usize, &Tensor<B>)| cx.needs(i).then(|| x.alloc_like(*x.shape())).transpose();
        let mut grads: Vec<_> = self.inputs.iter().enumerate().map(wanted).collect::<Result<_>>()?;
        let mut wanted = grads.iter_mut().map(Option::as_mut);
        let mut next = || wanted.next().flatten();
        let to = ConvPoolGrads {
            dx: next(),
            dw: next(),
            db: next(),
        };
        b.conv_max_pool_grad(p, &of, self.inputs[0].buffer(), self.inputs[1].buffer(), to)?;
        let tensor = |(dx, x): (Option<B::Buffer>, &Tensor<B>)| dx.map(|dx| Tensor::from_buffer(b, dx, *x.shape()));
        Ok(grads.into_iter().zip(&self.inputs).map(tensor).collect())
    }

    fn saves_output(&self) -> bool {
        true
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// [`Tensor::max_pool`] of [`Tensor::conv`], with the same values. A backend that fuses the two needs less memory,
    /// because it never holds all of the convolution's result. `ceil_mode` belongs to the pooling.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, w) = (Tensor::ones(&cpu, &[2, 8, 8, 3], DType::F32)?, Tensor::ones(&cpu, &[16, 3, 3, 3], DType::F32)?);
    /// let (window, pool) = (Window::new([3, 3]), Window::new([2, 2]).stride([2, 2]));
    /// let y = x.conv_max_pool(&w, None, (&window, 1), Activation::Relu, (&pool, false))?;
    /// assert_eq!(y.shape().dims(), [2, 3, 3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
        if let Some(cast) = Cast::low() {
            let (x, w, bias) = (cast.of(self)?, cast.of(w)?, cast.option(bias)?);
            return x.conv_max_pool(&w, bias.as_deref(), (window, groups), f, (pool, ceil_mode));
        }
        let pair = Pair {
            window: *window,
            groups,
            f,
            pool: *pool,
            ceil_mode,
        };
        let inputs: Vec<Tensor<B>> = [Some(self), Some(w), bias].into_iter().flatten().cloned().collect();
        let fused = Fused::new(f, [Some(self), Some(w), bias]);
        // A dilated window may lie entirely in the padding of a small image; the fused op does not have that case.
        if !self.has_op(Op::ConvMaxPool) || !fused.whole() || pool.dilation != [1; 3] {
            return pair.composed(&inputs);
        }
        let (mut p, shape) = ConvPoolParams::new(OP, self.shape(), w.shape(), (window, groups), (pool, ceil_mode))?;
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, p.conv.out_channels as usize)?;
        few_enough(OP, &p.pool)?;
        p.conv.activation = fused.code();
        self.forward_pooled(p, shape, pair, inputs)
    }

    fn forward_pooled(&self, p: ConvPoolParams, shape: Shape, pair: Pair, inputs: Vec<Tensor<B>>) -> Result<Tensor<B>> {
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
            inputs: inputs.clone(),
            index,
        }))
    }
}
