//! Convolution in one to three dimensions.

use super::{BatchNorm, Extents, Layer, MaxPool};
use crate::autograd::recompute;
use crate::ops::Behind;
use crate::{Backend, Error, Init, Module, Param, Result, Shape, Tensor, Walk, WalkMut, Walkable, trace};
use kiln_core::ops::{Activation, ConvParams, Padding, Window};
use std::marker::PhantomData;

/// Convolution in `R` dimensions, channels-last (`torch.nn.Conv2d` and its siblings, fused with an activation if one is
/// set).
///
/// Input `[N, spatial…, C]`, output `[N, spatial'…, O]`; `weight` is `[O, kernel…, C/groups]` (PyTorch's is
/// `[O, C/groups, kernel…]`), `bias` is `[O]`.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let conv = Conv2d::new(&mut Init::new(&cpu, 0), 3, 8, 5)?;
/// let x = Tensor::zeros(&cpu, &[1, 32, 32, 3], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 28, 28, 8]);
/// assert_eq!(conv.weight.shape().dims(), [8, 5, 5, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
#[module(kind = KINDS[R])]
pub struct Conv<B: Backend, const R: usize> {
    /// The kernel `[O, kernel…, C/groups]`.
    pub weight: Param<B>,
    /// The bias `[O]`.
    pub bias: Option<Param<B>>,
    window: Window,
    groups: usize,
    activation: Activation,
}

const KINDS: [&str; 4] = ["Conv", "Conv1d", "Conv2d", "Conv3d"];
const POOLED: [&str; 4] = [
    "Conv+MaxPool",
    "Conv1d+MaxPool1d",
    "Conv2d+MaxPool2d",
    "Conv3d+MaxPool3d",
];
const OPS: [&str; 4] = ["conv", "conv1d", "conv2d", "conv3d"];

/// Convolution over sequences `[N, L, C]`.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv1d};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let conv = Conv1d::builder(4, 8, 3).same().build(init)?;
/// let x = Tensor::zeros(&cpu, &[1, 100, 4], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 100, 8]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Conv1d<B> = Conv<B, 1>;
/// Convolution over images `[N, H, W, C]`.
///
/// See the example of [`Conv`].
pub type Conv2d<B> = Conv<B, 2>;
/// Convolution over volumes or videos `[N, D, H, W, C]`.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv3d};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let conv = Conv3d::new(init, 1, 4, [1, 3, 3])?;
/// let x = Tensor::zeros(&cpu, &[1, 10, 16, 16, 1], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 10, 14, 14, 4]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type Conv3d<B> = Conv<B, 3>;

/// The options of a [`Conv`].
///
/// See the example of [`Conv::builder`].
#[derive(Clone, Copy, Debug)]
pub struct ConvBuilder<B, const R: usize> {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) window: Window,
    pub(super) groups: usize,
    pub(super) bias: bool,
    pub(super) activation: Activation,
    backend: PhantomData<fn() -> B>,
}

#[compiled_once]
impl<B: Backend, const R: usize> Conv<B, R> {
    /// A convolution from `inputs` to `outputs` channels with stride 1, no padding, and a bias. The kernel size is one
    /// number for all dimensions or one per dimension.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::new(init, 3, 8, [1, 7])?;
    /// let x = Tensor::zeros(&cpu, &[1, 16, 16, 3], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 16, 10, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A channel count or kernel size of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize, kernel: impl Extents<R>) -> Result<Self> {
        Self::builder(inputs, outputs, kernel).build(init)
    }

    /// A convolution with options.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Tensor, layers::{Conv2d, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = Conv2d::builder(8, 16, [3, 5]).stride(2).padding([1, 2]).dilation(1).groups(4).bias(false);
    /// let conv = options.activation(Activation::Relu).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 32, 32, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 16, 16, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(inputs: usize, outputs: usize, kernel: impl Extents<R>) -> ConvBuilder<B, R> {
        ConvBuilder::new(inputs, outputs, kernel)
    }

    /// The window: kernel, stride, padding and dilation.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, [3, 5]).stride(2).build(init)?;
    /// assert_eq!(conv.window().kernel[1..], [3, 5]);
    /// assert_eq!(conv.window().stride[1..], [2, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// `pool.forward(&self.forward(x)?)` as one op, [`Tensor::conv_max_pool`]: the same values and gradients, with less
    /// memory. Errors and profiles name both fields, `conv1+pool1`; [`mod@crate::trace`] reports two layers.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::{Conv2d, MaxPool2d}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (conv, pool) = (Conv2d::builder(3, 8, 3).same().build(init)?, MaxPool2d::new(2));
    /// let x = Tensor::rand(&cpu, &[1, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
    /// let y = conv.forward_pooled(&pool, &x)?;
    /// assert_eq!(y.shape().dims(), [1, 4, 4, 8]);
    /// assert_eq!(y.to_f64()?, pool.forward(&conv.forward(&x)?)?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of the two layers.
    pub fn forward_pooled(&self, pool: &MaxPool<R>, x: &Tensor<B>) -> Result<Tensor<B>> {
        if trace::is_on() {
            return pool.forward(&self.forward(x)?);
        }
        let id = Walkable::<B>::module_id(pool);
        let both = || self.pooled(pool, x);
        let body = || match recompute::is_on() {
            false => both(),
            true => {
                let copy = || Pooled {
                    conv: self.clone(),
                    pool: *pool,
                };
                recompute::fused(self, id, || Box::new(copy()), x, &both)
            }
        };
        trace::run(self, Some((id, POOLED[R])), x, |_, _| 0, body)
    }

    /// `norm.forward(&self.forward(x)?)`. In training, where this layer has neither bias nor activation and a backend can do so, the
    /// convolution also gives the statistics of its channels, and the norm need not read its result for them.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::{BatchNorm, Conv2d}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (conv, norm) = (Conv2d::builder(3, 8, 3).bias(false).build(init)?, BatchNorm::new(init, 8)?);
    /// let x = Tensor::rand(&cpu, &[2, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
    /// let y = conv.forward_norm(&norm, &x)?;
    /// assert_eq!(y.to_f64()?, norm.forward(&conv.forward(&x)?)?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of the two layers.
    pub fn forward_norm(&self, norm: &BatchNorm<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        match self.with_moments(norm, x)? {
            (y, Some(moments)) => norm.forward_of_moments(&y, &moments, Behind::default()),
            (y, None) => norm.forward(&y),
        }
    }

    /// `norm.forward_relu(&self.forward(x)?, residual)` ([`BatchNorm::forward_relu`]), as [`forward_norm`](Self::forward_norm).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::{BatchNorm, Conv2d}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (conv, norm) = (Conv2d::builder(3, 3, 1).bias(false).build(init)?, BatchNorm::new(init, 3)?);
    /// let x = Tensor::rand(&cpu, &[2, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
    /// let y = conv.forward_norm_relu(&norm, &x, Some(&x))?;
    /// assert_eq!(y.to_f64()?, norm.forward_relu(&conv.forward(&x)?, Some(&x))?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of the two layers.
    pub fn forward_norm_relu(
        &self,
        norm: &BatchNorm<B>,
        x: &Tensor<B>,
        residual: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        match self.with_moments(norm, x)? {
            (y, Some(moments)) => norm.forward_of_moments(&y, &moments, Behind { residual, relu: true }),
            (y, None) => norm.forward_relu(&y, residual),
        }
    }

    /// The layer's output, and the moments of its channels where `norm` takes them and there are any.
    fn with_moments(&self, norm: &BatchNorm<B>, x: &Tensor<B>) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let ids = [Walkable::<B>::module_id(self), Walkable::<B>::module_id(norm)];
        let plain = self.bias.is_none() && self.activation == Activation::None;
        // Traces and checkpoints have each layer by itself.
        if !plain || !norm.takes_moments() || trace::is_on() || recompute::selects(&ids) {
            return Ok((self.forward(x)?, None));
        }
        let mut moments = None;
        let body = || {
            let (y, found) = x.conv_with_moments(&self.weight, &self.window, self.groups)?;
            moments = found;
            Ok(y)
        };
        let y = trace::run(self, None, x, |x, y| self.flops(x, y), body)?;
        Ok((y, moments))
    }

    /// The function of this layer and the pooling behind it.
    fn pooled(&self, pool: &MaxPool<R>, x: &Tensor<B>) -> Result<Tensor<B>> {
        let conv = (&self.window, self.groups);
        x.conv_max_pool(&self.weight, self.bias.as_deref(), conv, self.activation, pool.parts())
    }
}

/// A convolution and the pooling behind it, to be computed again as one.
#[derive(Clone, Debug)]
struct Pooled<B: Backend, const R: usize> {
    conv: Conv<B, R>,
    pool: MaxPool<R>,
}

impl<B: Backend, const R: usize> Walkable<B> for Pooled<B, R> {
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        self.conv.walk(walk);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        self.conv.walk_mut(walk);
    }
}

impl<B: Backend, const R: usize> Layer<B> for Pooled<B, R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.conv.pooled(&self.pool, x)
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> ConvBuilder<B, R> {
    pub(super) fn new(inputs: usize, outputs: usize, kernel: impl Extents<R>) -> Self {
        ConvBuilder {
            inputs,
            outputs,
            window: Window::new(kernel.extents()),
            groups: 1,
            bias: true,
            activation: Activation::None,
            backend: PhantomData,
        }
    }

    /// The step between windows; 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, 2).stride(2).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 4, 4, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn stride(mut self, stride: impl Extents<R>) -> Self {
        self.window = self.window.stride(stride.extents());
        self
    }

    /// The number of zeros before and after the input along each dimension; 0 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, [3, 7]).padding([1, 3]).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 8, 8, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn padding(mut self, padding: impl Extents<R>) -> Self {
        self.window = self.window.padding(padding.extents());
        self
    }

    /// Pads so that the output has `ceil(input / stride)` positions.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, 5).stride(2).same().build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 9, 9, 3], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 5, 5, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn same(mut self) -> Self {
        self.window.padding = Padding::Same;
        self
    }

    /// The distance between the elements of one window; 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, 3).dilation(2).build(init)?; // each window spans 5 pixels
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 4, 4, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dilation(mut self, dilation: impl Extents<R>) -> Self {
        self.window = self.window.dilation(dilation.extents());
        self
    }

    /// Splits the channels into groups that are convolved separately; 1 by default. As many groups as input channels make the
    /// convolution depthwise.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let depthwise = Conv2d::builder(32, 32, 3).groups(32).build(init)?;
    /// assert_eq!(depthwise.weight.shape().dims(), [32, 3, 3, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// With or without a bias; with by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::Conv2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, 3).bias(false).build(init)?; // a batch norm would follow, which has a shift
    /// assert!(conv.bias.is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Applies an activation to the result, in the same kernel.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Rng, Tensor, layers::{Conv2d, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = Conv2d::builder(3, 8, 3).activation(Activation::Relu).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
    /// assert!(conv.forward(&x)?.to_f64()?.iter().all(|&y| y >= 0.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.window.check(op)?;
        for (name, value) in [
            ("in_channels", self.inputs),
            ("out_channels", self.outputs),
            ("groups", self.groups),
        ] {
            if value == 0 {
                return Err(Error::invalid(op, name, 0, "at least 1"));
            }
        }
        if !self.inputs.is_multiple_of(self.groups) || !self.outputs.is_multiple_of(self.groups) {
            let expected = format!(
                "a divisor of {} input and {} output channels",
                self.inputs, self.outputs
            );
            return Err(Error::invalid(op, "groups", self.groups, expected));
        }
        Ok(())
    }

    /// The shape `[first, kernel…, last]` of a weight.
    pub(super) fn weight_shape(&self, first: usize, last: usize) -> Vec<usize> {
        let mut shape = vec![first];
        shape.extend(&self.window.kernel[3 - R..]);
        shape.push(last);
        shape
    }

    /// Makes the layer.
    ///
    /// See the example of [`Conv::builder`].
    ///
    /// # Errors
    /// A kernel, stride, dilation, channel or group count of 0, groups that do not divide the channels, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<Conv<B, R>> {
        self.check(OPS[R])?;
        let shape = self.weight_shape(self.outputs, self.inputs / self.groups);
        Ok(Conv {
            weight: init.kernel(&shape)?,
            bias: self.bias.then(|| init.bias(self.outputs, &shape)).transpose()?,
            window: self.window,
            groups: self.groups,
            activation: self.activation,
        })
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> Conv<B, R> {
    /// The layer's function with this weight.
    pub(super) fn run(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.conv(weight, self.bias.as_deref(), &self.window, self.groups, self.activation)
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for Conv<B, R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(&self.weight, x)
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let p = ConvParams::new(OPS[R], input, self.weight.shape(), &self.window, self.groups);
        p.map_or(0, |(p, _)| p.flops())
    }
}
