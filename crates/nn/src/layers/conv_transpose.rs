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
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let conv = ConvTranspose2d::builder(8, 3, 4).stride(2).padding(1).build(&mut Init::new(&cpu, 0))?;
/// let x = Tensor::zeros(&cpu, &[1, 16, 16, 8], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 32, 32, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
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
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose1d};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let conv = ConvTranspose1d::builder(4, 2, 2).stride(2).build(init)?;
/// let x = Tensor::zeros(&cpu, &[1, 50, 4], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 100, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type ConvTranspose1d<B> = ConvTranspose<B, 1>;
/// Transposed convolution over images `[N, H, W, C]`.
///
/// See the example of [`ConvTranspose`].
pub type ConvTranspose2d<B> = ConvTranspose<B, 2>;
/// Transposed convolution over volumes `[N, D, H, W, C]`.
///
/// ```
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose3d};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let conv = ConvTranspose3d::new(init, 4, 2, 3)?;
/// let x = Tensor::zeros(&cpu, &[1, 4, 4, 4, 4], DType::F32)?;
/// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 6, 6, 6, 2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type ConvTranspose3d<B> = ConvTranspose<B, 3>;

/// The options of a [`ConvTranspose`].
///
/// See the example of [`ConvTranspose::builder`].
#[derive(Clone, Copy, Debug)]
pub struct ConvTransposeBuilder<B, const R: usize> {
    conv: ConvBuilder<B, R>,
    output_padding: [usize; R],
}

#[compiled_once]
impl<B: Backend, const R: usize> ConvTranspose<B, R> {
    /// A transposed convolution from `inputs` to `outputs` channels with stride 1, no padding, and a bias. The kernel
    /// size is one number for all dimensions or one per dimension.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::new(init, 8, 3, 5)?;
    /// let x = Tensor::zeros(&cpu, &[1, 16, 16, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 20, 20, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A channel count or kernel size of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, outputs: usize, kernel: impl Extents<R>) -> Result<Self> {
        Self::builder(inputs, outputs, kernel).build(init)
    }

    /// A transposed convolution with options.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Tensor, layers::{ConvTranspose2d, Relu}};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = ConvTranspose2d::builder(8, 4, 3).stride(2).padding(1).output_padding(1).dilation(1).groups(2);
    /// let conv = options.bias(false).activation(Activation::Relu).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 16, 16, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 32, 32, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(inputs: usize, outputs: usize, kernel: impl Extents<R>) -> ConvTransposeBuilder<B, R> {
        ConvTransposeBuilder {
            conv: ConvBuilder::new(inputs, outputs, kernel),
            output_padding: [0; R],
        }
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> ConvTransposeBuilder<B, R> {
    /// The stride, 1 by default: the output is about this many times as large as the input.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 3, 2).stride(2).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 16, 16, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn stride(mut self, stride: impl Extents<R>) -> Self {
        self.conv = self.conv.stride(stride);
        self
    }

    /// The number of positions cut off before and after the output along each dimension; 0 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 3, 3).padding(1).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 8, 8, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn padding(mut self, padding: impl Extents<R>) -> Self {
        self.conv = self.conv.padding(padding);
        self
    }

    /// The number of positions added at the end of the output along each dimension, 0 by default: it chooses among the
    /// input sizes for which a strided convolution gives the same output size.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose1d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// // Both 15 and 16 positions give 8 under a convolution with kernel 3, stride 2 and padding 1.
    /// let conv = ConvTranspose1d::builder(4, 4, 3).stride(2).padding(1).output_padding(1).build(init)?;
    /// let x = Tensor::zeros(&cpu, &[1, 8, 4], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 16, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn output_padding(mut self, padding: impl Extents<R>) -> Self {
        self.output_padding = padding.extents();
        self
    }

    /// The distance between the elements of one window; 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 3, 3).dilation(2).build(init)?; // each input reaches 5 pixels
    /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 8], DType::F32)?;
    /// assert_eq!(conv.forward(&x)?.shape().dims(), [1, 12, 12, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn dilation(mut self, dilation: impl Extents<R>) -> Self {
        self.conv = self.conv.dilation(dilation);
        self
    }

    /// Splits the channels into groups that are convolved separately; 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 4, 3).groups(2).build(init)?;
    /// assert_eq!(conv.weight.shape().dims(), [8, 3, 3, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn groups(mut self, groups: usize) -> Self {
        self.conv = self.conv.groups(groups);
        self
    }

    /// With or without a bias; with by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 3, 2).bias(false).build(init)?;
    /// assert!(conv.bias.is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn bias(mut self, bias: bool) -> Self {
        self.conv = self.conv.bias(bias);
        self
    }

    /// Applies an activation to the result.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Init, Layer, Rng, Tensor, layers::ConvTranspose2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let conv = ConvTranspose2d::builder(8, 3, 2).activation(Activation::Sigmoid).build(init)?;
    /// let x = Tensor::randn(&cpu, &[1, 8, 8, 8], DType::F32, &mut Rng::new(0))?;
    /// assert!(conv.forward(&x)?.to_f64()?.iter().all(|y| (0.0..=1.0).contains(y)));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn activation(mut self, activation: Activation) -> Self {
        self.conv = self.conv.activation(activation);
        self
    }

    /// Makes the layer.
    ///
    /// See the example of [`ConvTranspose::builder`].
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

#[compiled_once]
impl<B: Backend, const R: usize> ConvTranspose<B, R> {
    /// The layer's function with this weight.
    pub(super) fn run(&self, weight: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
        let bias = self.bias.as_deref();
        x.conv_transpose(
            weight,
            bias,
            &self.window,
            self.output_padding,
            self.groups,
            self.activation,
        )
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for ConvTranspose<B, R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.run(&self.weight, x)
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let products = self.weight.shape()[1..].iter().product::<usize>();
        2 * input.size() as u64 * products as u64
    }
}
