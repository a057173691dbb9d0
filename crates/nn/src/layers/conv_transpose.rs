//! Transposed convolution in one to three dimensions.

use super::conv::ConvBuilder;
use super::{Extents, Layer};
use crate::{Backend, Init, Module, Param, Result, Shape, Tensor};
use kiln_core::ops::{Activation, Window, spatial};

/// Transposed convolution in `R` dimensions, channels-last (`torch.nn.ConvTranspose2d` and its siblings).
///
/// Input `[N, spatial…, C]`, output `[N, spatial'…, O]` with
/// `spatial' = (spatial − 1)·stride − 2·padding + dilation·(kernel − 1) + 1 + output_padding`; `weight` is
/// `[C, kernel…, O/groups]` (PyTorch's is `[C, O/groups, kernel…]`), `bias` is `[O]`.
#[derive(Debug, Module)]
#[module(kind = TRANSPOSED_KINDS[R])]
pub struct ConvTranspose<B: Backend, const R: usize> {
    /// The kernel `[C, kernel…, O/groups]`.
    pub weight: Param<B>,
    /// The bias `[O]`.
    pub bias: Option<Param<B>>,
    window: Window,
    #[module(skip)]
    output_padding: [usize; 3],
    groups: usize,
    activation: Activation,
}

const TRANSPOSED_KINDS: [&str; 4] = ["ConvTranspose", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"];
const TRANSPOSED_OPS: [&str; 4] = [
    "conv_transpose",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
];

/// Transposed convolution over sequences `[N, L, C]`.
pub type ConvTranspose1d<B> = ConvTranspose<B, 1>;
/// Transposed convolution over images `[N, H, W, C]`.
pub type ConvTranspose2d<B> = ConvTranspose<B, 2>;
/// Transposed convolution over volumes `[N, D, H, W, C]`.
pub type ConvTranspose3d<B> = ConvTranspose<B, 3>;

/// The options of a [`ConvTranspose`].
#[derive(Clone, Copy, Debug)]
pub struct ConvTransposeBuilder<B, const R: usize> {
    conv: ConvBuilder<B, R>,
    output_padding: [usize; R],
}

impl<B: Backend, const R: usize> ConvTranspose<B, R> {
    /// A transposed convolution from `inputs` to `outputs` channels with stride 1, no padding, and a bias. The kernel
    /// size is one number for all dimensions or one per dimension.
    ///
    /// # Errors
    /// A channel count or kernel size of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize, kernel: impl Extents<R>) -> Result<Self> {
        Self::builder(inputs, outputs, kernel).build(init)
    }

    /// A transposed convolution with options.
    pub fn builder(inputs: usize, outputs: usize, kernel: impl Extents<R>) -> ConvTransposeBuilder<B, R> {
        ConvTransposeBuilder {
            conv: ConvBuilder::new(inputs, outputs, kernel),
            output_padding: [0; R],
        }
    }
}

impl<B: Backend, const R: usize> ConvTransposeBuilder<B, R> {
    /// The stride, 1 by default: the output is about this many times as large as the input.
    pub fn stride(mut self, stride: impl Extents<R>) -> Self {
        self.conv = self.conv.stride(stride);
        self
    }

    /// The number of positions cut off before and after the output along each dimension; 0 by default.
    pub fn padding(mut self, padding: impl Extents<R>) -> Self {
        self.conv = self.conv.padding(padding);
        self
    }

    /// The number of positions added at the end of the output along each dimension, 0 by default: it chooses among the
    /// input sizes for which a strided convolution gives the same output size.
    pub fn output_padding(mut self, padding: impl Extents<R>) -> Self {
        self.output_padding = padding.extents();
        self
    }

    /// The distance between the elements of one window; 1 by default.
    pub fn dilation(mut self, dilation: impl Extents<R>) -> Self {
        self.conv = self.conv.dilation(dilation);
        self
    }

    /// Splits the channels into groups that are convolved separately; 1 by default.
    pub fn groups(mut self, groups: usize) -> Self {
        self.conv = self.conv.groups(groups);
        self
    }

    /// With or without a bias; with by default.
    pub fn bias(mut self, bias: bool) -> Self {
        self.conv = self.conv.bias(bias);
        self
    }

    /// Applies an activation to the result.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.conv = self.conv.activation(activation);
        self
    }

    /// Makes the layer.
    ///
    /// # Errors
    /// A kernel, stride, dilation, channel or group count of 0, groups that do not divide the channels, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<ConvTranspose<B, R>> {
        let conv = self.conv;
        conv.check(TRANSPOSED_OPS[R])?;
        let shape = conv.weight_shape(conv.inputs, conv.outputs / conv.groups);
        Ok(ConvTranspose {
            weight: init.kernel(&shape)?,
            bias: conv.bias.then(|| init.bias(conv.outputs, &shape)).transpose()?,
            window: conv.window,
            output_padding: spatial(self.output_padding, 0),
            groups: conv.groups,
            activation: conv.activation,
        })
    }
}

impl<B: Backend, const R: usize> Layer<B> for ConvTranspose<B, R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let bias = self.bias.as_deref();
        x.conv_transpose(
            &self.weight,
            bias,
            &self.window,
            self.output_padding,
            self.groups,
            self.activation,
        )
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let products = self.weight.shape()[1..].iter().product::<usize>();
        2 * input.size() as u64 * products as u64
    }
}
