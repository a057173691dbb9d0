//! Convolution and transposed convolution in one to three spatial dimensions, channels-last.
//!
//! The convolution `y(x, w)`, its data gradient `dx(g, w)` and its weight gradient `dw(g, x)` are the derivatives of
//! one trilinear form `Σ g·x·w` with respect to g, x and w, so the gradients of each are the other two.

use super::activation::{Fused, activate, activation_grad};
use super::matmul::check_bias;
use super::reduce::acc_dtype;
use crate::autograd::{Cast, NormOfInput, NormSums, Rule, RuleContext, SavedInput, Slope, is_grad_enabled};
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{Activation, ConvNormGrads, ConvParams, Op, Window};
use std::borrow::Cow;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `f(self ⋆ w + bias)` (`torch.nn.functional.conv1d`, `conv2d`, `conv3d` with the activation, channels-last):
    /// `self [N, (D, H,) W, C]`, `w [O, (kD, kH,) kW, C/groups]`, `bias [O]`, result `[N, …, O]`. The window gives
    /// kernel size, stride, padding and dilation; its kernel size must be that of the weight. If `self` and `w` have no input
    /// channels, the result has no channels, as in PyTorch.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, w) = (Tensor::ones(&cpu, &[2, 8, 8, 3], DType::F32)?, Tensor::ones(&cpu, &[16, 3, 3, 3], DType::F32)?);
    /// let y = x.conv(&w, None, &Window::new([3, 3]).stride([2, 2]), 1, Activation::Relu)?;
    /// assert_eq!(y.shape().dims(), [2, 3, 3, 16]);
    /// assert_eq!(y.to_f64()?[0], 27.0); // 3·3 pixels of 3 channels
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Wrong ranks, a zero stride or dilation, a kernel larger than the padded input, groups that do not divide the
    /// channels, a weight or bias that does not fit, dtypes that differ.
    pub fn conv(
        &self,
        w: &Tensor<B>,
        bias: Option<&Tensor<B>>,
        window: &Window,
        groups: usize,
        f: Activation,
    ) -> Result<Tensor<B>> {
        const OP: &str = "conv";
        if let Some(cast) = Cast::low() {
            let bias = cast.option(bias)?;
            return cast.of(self)?.conv(&*cast.of(w)?, bias.as_deref(), window, groups, f);
        }
        if let ([.., 0], [.., 0]) = (self.shape().dims(), w.shape().dims()) {
            return self.conv_of_nothing(w, bias, window, groups);
        }
        let (mut p, shape) = ConvParams::new(OP, self.shape(), w.shape(), window, groups)?;
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, p.out_channels as usize)?;
        let form = Form {
            p,
            x: *self.shape(),
            w: *w.shape(),
            y: shape,
        };
        let fused = Fused::new(f, [Some(self), Some(w), bias]);
        p.activation = fused.code();
        let mut y = self.alloc_like(shape)?;
        self.backend()
            .conv(&p, self.buffer(), w.buffer(), bias.map(Tensor::buffer), &mut y)?;
        let y = Tensor::from_buffer(self.backend(), y, shape);
        let inputs = [self, w, bias.unwrap_or(w)];
        let y = y.record(OP, &inputs[..2 + usize::from(bias.is_some())], || Conv {
            form,
            x: SavedInput::new(self),
            w: w.clone(),
            bias: bias.is_some(),
            fused,
        });
        fused.rest(y)
    }

    /// [`Tensor::conv`] without bias and activation, and the moments of its channels where the backend gives them with it: `[2, O]` of
    /// the accumulation dtype, the mean of each channel and the sum of squared deviations from it.
    pub(crate) fn conv_with_moments(
        &self,
        w: &Tensor<B>,
        window: &Window,
        groups: usize,
    ) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let cast = Cast::low();
        let (x, w) = match &cast {
            Some(cast) => (cast.of(self)?, cast.of(w)?),
            None => (Cow::Borrowed(self), Cow::Borrowed(w)),
        };
        x.conv_moments_of(self, &w, window, groups)
    }

    /// [`Tensor::conv_with_moments`] of a tensor that is `uncast`, or its cast.
    fn conv_moments_of(
        &self,
        uncast: &Tensor<B>,
        w: &Tensor<B>,
        window: &Window,
        groups: usize,
    ) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        const OP: &str = "conv";
        let empty = self.size() == 0 || w.size() == 0;
        if empty || !self.has_op(Op::ConvMoments) {
            return Ok((self.conv(w, None, window, groups, Activation::None)?, None));
        }
        let (p, y) = ConvParams::new(OP, self.shape(), w.shape(), window, groups)?;
        same_dtype(OP, self, w)?;
        let (x, w_shape) = (*self.shape(), *w.shape());
        let form = Form { p, x, w: w_shape, y };
        form.conv_moments(OP, (self, uncast), w)
    }

    /// The convolution of images without channels with a weight without input channels: `[N, …, 0]`.
    fn conv_of_nothing(
        &self,
        w: &Tensor<B>,
        bias: Option<&Tensor<B>>,
        window: &Window,
        groups: usize,
    ) -> Result<Tensor<B>> {
        const OP: &str = "conv";
        // The other arguments are checked, and the output's shape computed, as if there were one channel in each group.
        let channels = |t: &Tensor<B>, n: usize| t.shape().with(t.rank() - 1, n);
        let (p, shape) = ConvParams::new(OP, &channels(self, groups)?, &channels(w, 1)?, window, groups)?;
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, p.out_channels as usize)?;
        let shape = shape.with(shape.rank() - 1, 0)?;
        let inputs: Vec<&Tensor<B>> = [Some(self), Some(w), bias].into_iter().flatten().collect();
        let shapes = inputs.iter().map(|t| *t.shape()).collect();
        Ok(Tensor::from_buffer(self.backend(), self.alloc_like(shape)?, shape).record(OP, &inputs, || Nothing(shapes)))
    }

    /// `f(self ⋆ᵀ w + bias)` (`torch.nn.functional.conv_transpose1d`, `conv_transpose2d`, `conv_transpose3d` with the
    /// activation, channels-last): `self [N, (D, H,) W, C]`, `w [C, (kD, kH,) kW, O/groups]`, `bias [O]`, result
    /// `[N, …, O]` of size `(size − 1)·stride − 2·padding + dilation·(kernel − 1) + 1 + output_padding`. `output_padding`
    /// has three entries as the window has; with fewer than three spatial dimensions the first ones are unused and must be 0.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, w) = (Tensor::ones(&cpu, &[2, 4, 4, 3], DType::F32)?, Tensor::ones(&cpu, &[3, 2, 2, 8], DType::F32)?);
    /// let y = x.conv_transpose(&w, None, &Window::new([2, 2]).stride([2, 2]), [0; 3], 1, Activation::None)?;
    /// assert_eq!(y.shape().dims(), [2, 8, 8, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::conv`]; "same" padding; an output padding that is not smaller than stride or dilation; a padding
    /// that leaves no output.
    pub fn conv_transpose(
        &self,
        w: &Tensor<B>,
        bias: Option<&Tensor<B>>,
        window: &Window,
        output_padding: [usize; 3],
        groups: usize,
        f: Activation,
    ) -> Result<Tensor<B>> {
        const OP: &str = "conv_transpose";
        if let Some(cast) = Cast::low() {
            let (x, w, bias) = (cast.of(self)?, cast.of(w)?, cast.option(bias)?);
            return x.conv_transpose(&w, bias.as_deref(), window, output_padding, groups, f);
        }
        let missing = 3usize.saturating_sub(window.rank);
        if let Some(&p) = output_padding[..missing].iter().find(|&&p| p != 0) {
            return Err(Error::invalid(
                OP,
                "output_padding",
                p,
                "0 in dimensions that do not exist",
            ));
        }
        let (p, shape) = ConvParams::transposed(OP, self.shape(), w.shape(), window, output_padding, groups)?;
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, p.in_channels as usize)?;
        let form = Form {
            p,
            x: shape,
            w: *w.shape(),
            y: *self.shape(),
        };
        let mut y = form.data_grad(OP, self, w)?;
        if let Some(bias) = bias {
            y = y.add(bias)?;
        }
        activate(f, y)
    }
}

/// The rule of an op whose result has no elements: the gradients are zeros of the inputs' shapes.
struct Nothing(Vec<Shape>);

impl<B: Backend> Rule<B> for Nothing {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let zeros = |shape: &Shape| Tensor::zeros(cx.grad.backend(), shape, cx.grad.dtype());
        self.0.iter().map(|shape| zeros(shape).map(Some)).collect()
    }
}

/// Bytes of an input for each element of the weight, from which on the input is written with its gradient.
const LARGE_BESIDE_WEIGHT: usize = 32;

/// A convolution's parameters (no activation) with the shapes of input, weight and output.
#[derive(Clone, Copy)]
struct Form {
    p: ConvParams,
    x: Shape,
    w: Shape,
    y: Shape,
}

impl Form {
    fn conv<B: Backend>(self, op: &'static str, x: &Tensor<B>, w: &Tensor<B>) -> Result<Tensor<B>> {
        let mut y = x.alloc_like(self.y)?;
        x.backend().conv(&self.p, x.buffer(), w.buffer(), None, &mut y)?;
        Ok(self.recorded(op, (x, x), w, y))
    }

    /// The convolution and the moments of its channels, of `x`, which is `uncast` or its cast.
    fn conv_moments<B: Backend>(
        self,
        op: &'static str,
        (x, uncast): (&Tensor<B>, &Tensor<B>),
        w: &Tensor<B>,
    ) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let (backend, mut y) = (x.backend(), x.alloc_like(self.y)?);
        let moments = Shape::new(&[2, self.p.out_channels as usize])?;
        let mut to = backend.alloc(acc_dtype(x.dtype()), moments.size())?;
        backend.conv_moments(&self.p, x.buffer(), w.buffer(), &mut y, &mut to)?;
        let moments = Tensor::from_buffer(backend, to, moments);
        Ok((self.recorded(op, (x, uncast), w, y), Some(moments)))
    }

    fn recorded<B: Backend>(
        self,
        op: &'static str,
        (x, uncast): (&Tensor<B>, &Tensor<B>),
        w: &Tensor<B>,
        y: B::Buffer,
    ) -> Tensor<B> {
        Tensor::from_buffer(x.backend(), y, self.y).record(op, &[x, w], || Conv {
            form: self,
            x: SavedInput::of_cast(x, uncast),
            w: w.clone(),
            bias: false,
            fused: Fused::new(Activation::None, [Some(x), Some(w), None]),
        })
    }

    fn data_grad<B: Backend>(self, op: &'static str, g: &Tensor<B>, w: &Tensor<B>) -> Result<Tensor<B>> {
        let mut dx = g.alloc_like(self.x)?;
        g.backend().conv_data_grad(&self.p, g.buffer(), w.buffer(), &mut dx)?;
        Ok(
            Tensor::from_buffer(g.backend(), dx, self.x).record(op, &[g, w], || DataGrad {
                form: self,
                g: g.clone(),
                w: w.clone(),
            }),
        )
    }

    /// The gradient with respect to an input that is the result of `norm`, with the other terms of that gradient, `more`: before residual and
    /// ReLU of the norm, with the sums of the norm's gradient and, if it is wanted `again`, the input itself. Unrecorded.
    fn norm_grad<B: Backend>(
        self,
        g: &Tensor<B>,
        w: &Tensor<B>,
        norm: &NormOfInput<B>,
        more: Option<&Tensor<B>>,
        again: bool,
    ) -> Result<NormGrad<B>> {
        let (backend, channels) = (g.backend(), *norm.mean.shape());
        let behind = if norm.relu { Activation::Relu } else { Activation::None };
        let p = ConvParams {
            activation: behind as u32,
            ..self.p
        };
        let sum = || backend.alloc(acc_dtype(g.dtype()), channels.size());
        let (mut d, mut dscale, mut dshift) = (g.alloc_like(self.x)?, sum()?, sum()?);
        let mut y = again.then(|| g.alloc_like(self.x)).transpose()?;
        let to = ConvNormGrads {
            d: &mut d,
            dscale: &mut dscale,
            dshift: &mut dshift,
            y: y.as_mut(),
        };
        let more = more.map(Tensor::buffer);
        backend.conv_norm_grad(&p, g.buffer(), w.buffer(), &norm.inputs(), more, to)?;
        let [dscale, dshift] = [dscale, dshift].map(|sum| Tensor::from_buffer(backend, sum, channels));
        let y = y.map(|y| Tensor::from_buffer(backend, y, self.x));
        Ok((Tensor::from_buffer(backend, d, self.x), NormSums { dscale, dshift }, y))
    }

    fn weight_grad<B: Backend>(self, op: &'static str, g: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        let mut dw = g.alloc_like(self.w)?;
        g.backend().conv_weight_grad(&self.p, g.buffer(), x.buffer(), &mut dw)?;
        Ok(
            Tensor::from_buffer(g.backend(), dw, self.w).record(op, &[g, x], || WeightGrad {
                form: self,
                g: g.clone(),
                x: x.clone(),
            }),
        )
    }
}

/// The gradient of a convolution's input that is the result of a norm, the sums of the norm's gradient, and the input made again.
type NormGrad<B> = (Tensor<B>, NormSums<B>, Option<Tensor<B>>);

struct Conv<B: Backend> {
    form: Form,
    x: SavedInput<B>,
    w: Tensor<B>,
    bias: bool,
    fused: Fused,
}

impl<B: Backend> Rule<B> for Conv<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let g = activation_grad(self.fused, cx)?;
        let weight_grad = |x: &Tensor<B>| self.form.weight_grad("conv_weight_grad", &g, x);
        let norm = cx.norm_of_input();
        // A norm's result that nobody has is written with its gradient, by the kernel that has read all that it is made of.
        // A large weight's gradient has parts in memory, beside which a small result is better computed by itself.
        let large = self.form.x.size() * g.dtype().size() >= LARGE_BESIDE_WEIGHT * self.form.w.size();
        let again = large && cx.needs(1) && norm.is_some_and(NormOfInput::makes_result) && self.x.absent().is_some();
        // Otherwise an input that was computed again does not lie beside its gradient.
        let first = cx.needs(1) && !again && !is_grad_enabled();
        let mut dw = first.then(|| weight_grad(&self.x.tensor()?)).transpose()?;
        let (mut dx, mut x) = (None, None);
        if let Some(norm) = norm {
            let (d, sums, y) = self.form.norm_grad(&g, &self.w, norm, cx.sum(), again)?;
            cx.put_norm_sums(sums);
            (dx, x) = (Some(d), y);
        } else if cx.needs(0) {
            dx = Some(self.form.data_grad("conv_data_grad", &g, &self.w)?);
        }
        if cx.needs(1) && dw.is_none() {
            let x = x.map_or_else(|| self.x.tensor(), Ok)?;
            dw = Some(weight_grad(&x)?);
        }
        let mut grads = vec![dx, dw];
        if self.bias {
            grads.push(cx.needs(2).then(|| g.sum_to_size(&self.form.w[..1])).transpose()?);
        }
        Ok(grads)
    }

    fn saves_output(&self) -> bool {
        self.fused.needs_output()
    }

    fn activation(&self) -> Option<Slope<B>> {
        self.fused.slope()
    }

    fn gives_norm_sums(&self) -> Option<usize> {
        let (p, w) = (&self.form.p, &self.w);
        let pays = w.has_op(Op::ConvNormGrad) && w.backend().conv_norm_grad_pays(p, w.dtype());
        pays.then_some(0)
    }
}

struct DataGrad<B: Backend> {
    form: Form,
    g: Tensor<B>,
    w: Tensor<B>,
}

impl<B: Backend> Rule<B> for DataGrad<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let dg = || self.form.conv("conv", cx.grad, &self.w);
        let dw = || self.form.weight_grad("conv_weight_grad", &self.g, cx.grad);
        Ok(vec![
            cx.needs(0).then(dg).transpose()?,
            cx.needs(1).then(dw).transpose()?,
        ])
    }
}

struct WeightGrad<B: Backend> {
    form: Form,
    g: Tensor<B>,
    x: Tensor<B>,
}

impl<B: Backend> Rule<B> for WeightGrad<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let dg = || self.form.conv("conv", &self.x, cx.grad);
        let dx = || self.form.data_grad("conv_data_grad", &self.g, cx.grad);
        Ok(vec![
            cx.needs(0).then(dg).transpose()?,
            cx.needs(1).then(dx).transpose()?,
        ])
    }
}
