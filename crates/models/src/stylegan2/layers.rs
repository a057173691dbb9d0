//! Layers with equalised learning rates: weights are drawn from N(0, 1) and scaled each time that they are used. In mixed precision their products
//! are of halves, and their results have the dtype of their inputs: styles, slopes and path lengths need its range.

use kiln_core::ops::{Activation, Window};
use kiln_core::{Backend, Result};
use kiln_nn::{Init, Initializer, Layer, Module, Param, Tensor};

/// The slope of activations below 0, and what keeps the variance behind them.
pub(crate) const SLOPE: f64 = 0.2;
pub(crate) const GAIN: f64 = std::f64::consts::SQRT_2;

/// A parameter drawn from N(0, 1/`by`²).
pub(crate) fn normal<B: Backend>(init: &mut Init<B>, shape: &[usize], by: f64) -> Result<Tensor<B>> {
    let initializer = Initializer::Normal {
        mean: 0.0,
        std: 1.0 / by,
    };
    init.tensor(shape, &initializer)
}

/// A dense layer whose weights are scaled by `lr/√inputs` and its biases by `lr` when they are used (`FullyConnectedLayer` of the
/// original): `[N, inputs]` to `[N, outputs]`.
#[derive(Clone, Debug, Module)]
pub struct EqualLinear<B: Backend> {
    /// The weight `[outputs, inputs]`.
    pub weight: Param<B>,
    /// The bias `[outputs]`.
    pub bias: Param<B>,
    lr: f64,
    leaky: bool,
}

impl<B: Backend> EqualLinear<B> {
    /// A layer with a leaky ReLU behind it, or without.
    pub(crate) fn new(init: &mut Init<B>, [inputs, outputs]: [usize; 2], leaky: bool) -> Result<Self> {
        EqualLinear::with(init, [inputs, outputs], leaky, 1.0, 0.0)
    }

    /// A layer with this multiplier of the learning rate, whose biases begin at a value.
    pub(crate) fn with(
        init: &mut Init<B>,
        [inputs, outputs]: [usize; 2],
        leaky: bool,
        lr: f64,
        bias: f64,
    ) -> Result<Self> {
        Ok(EqualLinear {
            weight: Param::new(normal(init, &[outputs, inputs], lr)?),
            bias: init.constant(&[outputs], bias)?,
            lr,
            leaky,
        })
    }
}

impl<B: Backend> Layer<B> for EqualLinear<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        // The gain of the activation is that of its input: it is a factor of what is positive and of what is negative.
        let gain = if self.leaky { GAIN } else { 1.0 };
        let inputs = self.weight.shape()[1] as f64;
        let weight = self.weight.mul_scalar(self.lr / inputs.sqrt() * gain)?;
        let bias = self.bias.mul_scalar(self.lr * gain)?;
        let y = x.linear(&weight, Some(&bias), Activation::None)?.to_dtype(x.dtype())?;
        if self.leaky { y.leaky_relu(SLOPE) } else { Ok(y) }
    }

    fn flops(&self, x: &kiln_nn::Shape, _: &kiln_nn::Shape) -> u64 {
        2 * x.size() as u64 * self.weight.shape()[0] as u64
    }
}

/// A convolution whose weights are scaled by `1/√(inputs·k²)` when they are used (`Conv2dLayer` of the original): `[N, H, W, inputs]` to
/// `[N, H, W, outputs]`, or to half the size with a filter.
#[derive(Clone, Debug, Module)]
pub struct EqualConv<B: Backend> {
    /// The kernel `[outputs, k, k, inputs]`.
    pub weight: Param<B>,
    /// The bias `[outputs]`.
    pub bias: Option<Param<B>>,
    resample_filter: Option<kiln_nn::State<B>>,
    leaky: bool,
    gain: f64,
}

impl<B: Backend> EqualConv<B> {
    /// A convolution with a leaky ReLU and a bias.
    pub(crate) fn new(init: &mut Init<B>, [inputs, outputs]: [usize; 2], k: usize) -> Result<Self> {
        Ok(EqualConv {
            weight: Param::kernel(normal(init, &[outputs, k, k, inputs], 1.0)?),
            bias: Some(init.constant(&[outputs], 0.0)?),
            resample_filter: None,
            leaky: true,
            gain: 1.0,
        })
    }

    /// One that halves the images, whose results are multiplied by √½: half of a residual block.
    pub(crate) fn halving(init: &mut Init<B>, channels: [usize; 2], k: usize) -> Result<Self> {
        Ok(EqualConv {
            resample_filter: Some(kiln_nn::State::new(filter(init)?)),
            gain: std::f64::consts::FRAC_1_SQRT_2,
            ..EqualConv::new(init, channels, k)?
        })
    }

    /// The same without bias and activation.
    pub(crate) fn skip(self) -> Self {
        EqualConv {
            bias: None,
            leaky: false,
            ..self
        }
    }
}

impl<B: Backend> Layer<B> for EqualConv<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let (k, size) = (self.weight.shape()[1], self.weight.size() / self.weight.shape()[0]);
        let gain = if self.leaky { GAIN * self.gain } else { self.gain };
        let weight = self.weight.mul_scalar(gain / (size as f64).sqrt())?;
        let bias = self.bias.as_ref().map(|bias| bias.mul_scalar(gain)).transpose()?;
        let convolve = |x: &Tensor<B>, window: &Window| x.conv(&weight, bias.as_ref(), window, 1, Activation::None);
        let window = Window::new([k, k]);
        let y = match &self.resample_filter {
            None => convolve(x, &window.padding([k / 2, k / 2]))?,
            // A kernel of one pixel sees no more of the image before it is thinned out than behind.
            Some(filter) if k == 1 => convolve(&x.upfirdn2d(&filter.get(), (1, 2), [(1, 1), (1, 1)], 1.0)?, &window)?,
            Some(filter) => {
                let side = k as isize / 2 + 1;
                let wide = x.upfirdn2d(&filter.get(), (1, 1), [(side, side), (side, side)], 1.0)?;
                convolve(&wide, &window.stride([2, 2]))?
            }
        };
        let y = y.to_dtype(x.dtype())?;
        if self.leaky { y.leaky_relu(SLOPE) } else { Ok(y) }
    }

    fn flops(&self, _: &kiln_nn::Shape, y: &kiln_nn::Shape) -> u64 {
        2 * y.size() as u64 * (self.weight.size() / self.weight.shape()[0]) as u64
    }
}

/// The filter `[4, 4]` that images are resampled with, the outer product of `[1, 3, 3, 1]/8` with itself.
pub(crate) fn filter<B: Backend>(init: &Init<B>) -> Result<Tensor<B>> {
    let row = [1.0, 3.0, 3.0, 1.0];
    let values: Vec<f64> = row.iter().flat_map(|a| row.map(|b| a * b / 64.0)).collect();
    Tensor::from_f64(init.backend(), &values, &[4, 4], init.param_dtype())
}
