//! Pooling layers in one to three dimensions. They have no parameters and need no builder context.

use super::{Extents, Layer, unit_module};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Padding, Window};

/// The largest value of each window (`torch.nn.MaxPool2d` and its siblings): `[N, spatial…, C]` to `[N, spatial'…, C]`.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool<const R: usize> {
    window: Window,
    ceil_mode: bool,
}

/// Max pooling over sequences `[N, L, C]`.
pub type MaxPool1d = MaxPool<1>;
/// Max pooling over images `[N, H, W, C]`.
pub type MaxPool2d = MaxPool<2>;
/// Max pooling over volumes `[N, D, H, W, C]`.
pub type MaxPool3d = MaxPool<3>;

/// The mean of each window (`torch.nn.AvgPool2d` and its siblings): `[N, spatial…, C]` to `[N, spatial'…, C]`.
#[derive(Clone, Copy, Debug)]
pub struct AvgPool<const R: usize> {
    window: Window,
    ceil_mode: bool,
    count_include_pad: bool,
}

/// Average pooling over sequences `[N, L, C]`.
pub type AvgPool1d = AvgPool<1>;
/// Average pooling over images `[N, H, W, C]`.
pub type AvgPool2d = AvgPool<2>;
/// Average pooling over volumes `[N, D, H, W, C]`.
pub type AvgPool3d = AvgPool<3>;

macro_rules! window_options {
    ($name:ident) => {
        /// The step between windows; the kernel size by default.
        pub fn stride(mut self, stride: impl Extents<R>) -> Self {
            self.window = self.window.stride(stride.extents());
            self
        }

        /// Padding before and after the input along each dimension, at most half of the kernel size; 0 by default.
        pub fn padding(mut self, padding: impl Extents<R>) -> Self {
            self.window = self.window.padding(padding.extents());
            self
        }

        /// Pads so that the output has `ceil(input / stride)` positions.
        pub fn same(mut self) -> Self {
            self.window.padding = Padding::Same;
            self
        }

        /// With true, the last window may extend past the end of the padded input as long as it starts inside; false by
        /// default.
        pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
            self.ceil_mode = ceil_mode;
            self
        }
    };
}

impl<const R: usize> MaxPool<R> {
    /// Pooling with windows of size `kernel` that do not overlap: the stride is the kernel size.
    pub fn new(kernel: impl Extents<R>) -> Self {
        let kernel = kernel.extents();
        MaxPool {
            window: Window::new(kernel).stride(kernel),
            ceil_mode: false,
        }
    }

    window_options!(MaxPool);

    /// The distance between the elements of one window; 1 by default.
    pub fn dilation(mut self, dilation: impl Extents<R>) -> Self {
        self.window = self.window.dilation(dilation.extents());
        self
    }
}

impl<const R: usize> MaxPool<R> {
    /// The window, and `ceil_mode`.
    pub(super) fn parts(&self) -> (&Window, bool) {
        (&self.window, self.ceil_mode)
    }
}

impl<const R: usize> AvgPool<R> {
    /// Pooling with windows of size `kernel` that do not overlap: the stride is the kernel size.
    pub fn new(kernel: impl Extents<R>) -> Self {
        let kernel = kernel.extents();
        AvgPool {
            window: Window::new(kernel).stride(kernel),
            ceil_mode: false,
            count_include_pad: true,
        }
    }

    window_options!(AvgPool);

    /// Sets if the zeros of the padding count in the divisor; true by default, as in PyTorch.
    pub fn count_include_pad(mut self, count: bool) -> Self {
        self.count_include_pad = count;
        self
    }
}

unit_module!([const R: usize] MaxPool<R>, ["MaxPool", "MaxPool1d", "MaxPool2d", "MaxPool3d"][R]);
unit_module!([const R: usize] AvgPool<R>, ["AvgPool", "AvgPool1d", "AvgPool2d", "AvgPool3d"][R]);

impl<B: Backend, const R: usize> Layer<B> for MaxPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.max_pool(&self.window, self.ceil_mode)
    }
}

impl<B: Backend, const R: usize> Layer<B> for AvgPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.avg_pool(&self.window, self.ceil_mode, self.count_include_pad)
    }
}

/// Average pooling to a fixed output size (`torch.nn.AdaptiveAvgPool2d` and its siblings): `[N, spatial…, C]` to
/// `[N, output…, C]`.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveAvgPool<const R: usize> {
    output: [usize; R],
}

/// Adaptive average pooling over sequences `[N, L, C]`.
pub type AdaptiveAvgPool1d = AdaptiveAvgPool<1>;
/// Adaptive average pooling over images `[N, H, W, C]`.
pub type AdaptiveAvgPool2d = AdaptiveAvgPool<2>;
/// Adaptive average pooling over volumes `[N, D, H, W, C]`.
pub type AdaptiveAvgPool3d = AdaptiveAvgPool<3>;

impl<const R: usize> AdaptiveAvgPool<R> {
    /// Pooling to `output` positions per dimension.
    pub fn new(output: impl Extents<R>) -> Self {
        AdaptiveAvgPool {
            output: output.extents(),
        }
    }
}

unit_module!(
    [const R: usize] AdaptiveAvgPool<R>,
    ["AdaptiveAvgPool", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d"][R]
);

impl<B: Backend, const R: usize> Layer<B> for AdaptiveAvgPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.adaptive_avg_pool(&self.output)
    }
}

/// The mean over all positions (Keras's `GlobalAveragePooling2D` and its siblings): `[N, spatial…, C]` to `[N, C]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalAvgPool<const R: usize>;

/// Global average pooling over sequences `[N, L, C]`.
pub type GlobalAvgPool1d = GlobalAvgPool<1>;
/// Global average pooling over images `[N, H, W, C]`.
pub type GlobalAvgPool2d = GlobalAvgPool<2>;
/// Global average pooling over volumes `[N, D, H, W, C]`.
pub type GlobalAvgPool3d = GlobalAvgPool<3>;

unit_module!(
    [const R: usize] GlobalAvgPool<R>,
    const { ["", "GlobalAvgPool1d", "GlobalAvgPool2d", "GlobalAvgPool3d"][R] }
);

impl<B: Backend, const R: usize> Layer<B> for GlobalAvgPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        // Unlike `Tensor::global_avg_pool`, this refuses an input whose rank is not R + 2.
        let pooled = x.adaptive_avg_pool(&[1; R])?;
        pooled.reshape(&[x.shape()[0], x.shape()[R + 1]])
    }
}
