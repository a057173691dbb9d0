//! Pooling layers in one to three dimensions. They have no parameters and need no builder context.

use super::{Extents, Layer, unit_module};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Padding, Window};

/// The largest value of each window (`torch.nn.MaxPool2d` and its siblings): `[N, spatial…, C]` to `[N, spatial'…, C]`.
///
/// ```
/// use kiln_nn::{Layer, Tensor, layers::MaxPool2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
/// assert_eq!(MaxPool2d::new(2).forward(&x)?.to_vec::<f32>()?, [4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MaxPool<const R: usize> {
    window: Window,
    ceil_mode: bool,
}

/// Max pooling over sequences `[N, L, C]`.
///
/// ```
/// # use kiln_nn::{Layer, Tensor, layers::MaxPool1d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 4.0, 3.0], &[1, 4, 1])?;
/// assert_eq!(MaxPool1d::new(2).forward(&x)?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type MaxPool1d = MaxPool<1>;
/// Max pooling over images `[N, H, W, C]`.
///
/// See the example of [`MaxPool`].
pub type MaxPool2d = MaxPool<2>;
/// Max pooling over volumes `[N, D, H, W, C]`.
///
/// ```
/// # use kiln_nn::{DType, Layer, Tensor, layers::MaxPool3d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[1, 8, 16, 16, 3], DType::F32)?;
/// assert_eq!(MaxPool3d::new([1, 2, 2]).forward(&x)?.shape().dims(), [1, 8, 8, 8, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type MaxPool3d = MaxPool<3>;

/// The mean of each window (`torch.nn.AvgPool2d` and its siblings): `[N, spatial…, C]` to `[N, spatial'…, C]`.
///
/// ```
/// use kiln_nn::{Layer, Tensor, layers::AvgPool2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
/// assert_eq!(AvgPool2d::new(2).forward(&x)?.to_vec::<f32>()?, [2.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AvgPool<const R: usize> {
    window: Window,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Option<isize>,
}

/// Average pooling over sequences `[N, L, C]`.
///
/// ```
/// # use kiln_nn::{Layer, Tensor, layers::AvgPool1d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 4.0, 3.0], &[1, 4, 1])?;
/// assert_eq!(AvgPool1d::new(2).forward(&x)?.to_vec::<f32>()?, [1.5, 3.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type AvgPool1d = AvgPool<1>;
/// Average pooling over images `[N, H, W, C]`.
///
/// See the example of [`AvgPool`].
pub type AvgPool2d = AvgPool<2>;
/// Average pooling over volumes `[N, D, H, W, C]`.
///
/// ```
/// # use kiln_nn::{DType, Layer, Tensor, layers::AvgPool3d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[1, 8, 16, 16, 3], DType::F32)?;
/// assert_eq!(AvgPool3d::new(2).forward(&x)?.shape().dims(), [1, 4, 8, 8, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type AvgPool3d = AvgPool<3>;

macro_rules! window_options {
    ($name:ident) => {
        /// The step between windows; the kernel size by default.
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{DType, Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::zeros(&cpu, &[1, 9, 9, 3], DType::F32)?;
        #[doc = concat!("let pool = ", stringify!($name), "::<2>::new(3).stride(2);")]
        /// assert_eq!(pool.forward(&x)?.shape().dims(), [1, 4, 4, 3]);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub fn stride(mut self, stride: impl Extents<R>) -> Self {
            self.window = self.window.stride(stride.extents());
            self
        }

        /// Padding before and after the input along each dimension, at most half of the kernel size; 0 by default.
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{DType, Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::zeros(&cpu, &[1, 8, 8, 3], DType::F32)?;
        #[doc = concat!("let pool = ", stringify!($name), "::<2>::new(3).stride(2).padding(1);")]
        /// assert_eq!(pool.forward(&x)?.shape().dims(), [1, 4, 4, 3]);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub fn padding(mut self, padding: impl Extents<R>) -> Self {
            self.window = self.window.padding(padding.extents());
            self
        }

        /// Pads so that the output has `ceil(input / stride)` positions.
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{DType, Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::zeros(&cpu, &[1, 9, 9, 3], DType::F32)?;
        #[doc = concat!("let pool = ", stringify!($name), "::<2>::new(2).same();")]
        /// assert_eq!(pool.forward(&x)?.shape().dims(), [1, 5, 5, 3]);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub fn same(mut self) -> Self {
            self.window.padding = Padding::Same;
            self
        }

        /// With true, the last window may extend past the end of the padded input as long as it starts inside; false by
        /// default.
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{DType, Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::zeros(&cpu, &[1, 9, 9, 3], DType::F32)?;
        #[doc = concat!("let pool = ", stringify!($name), "::<2>::new(2).ceil_mode(true);")]
        /// assert_eq!(pool.forward(&x)?.shape().dims(), [1, 5, 5, 3]);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub fn ceil_mode(mut self, ceil_mode: bool) -> Self {
            self.ceil_mode = ceil_mode;
            self
        }
    };
}

impl<const R: usize> MaxPool<R> {
    /// Pooling with windows of size `kernel` that do not overlap: the stride is the kernel size.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::MaxPool2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[1, 8, 12, 3], DType::F32)?;
    /// assert_eq!(MaxPool2d::new([2, 3]).forward(&x)?.shape().dims(), [1, 4, 4, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn new(kernel: impl Extents<R>) -> Self {
        let kernel = kernel.extents();
        MaxPool {
            window: Window::new(kernel).stride(kernel),
            ceil_mode: false,
        }
    }

    window_options!(MaxPool);

    /// The distance between the elements of one window; 1 by default.
    ///
    /// ```
    /// # use kiln_nn::{Layer, Tensor, layers::MaxPool1d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[5.0f32, 9.0, 1.0], &[1, 3, 1])?;
    /// assert_eq!(MaxPool1d::new(2).dilation(2).forward(&x)?.to_vec::<f32>()?, [5.0]); // of the first and third
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::AvgPool2d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[1, 8, 12, 3], DType::F32)?;
    /// assert_eq!(AvgPool2d::new([2, 3]).forward(&x)?.shape().dims(), [1, 4, 4, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn new(kernel: impl Extents<R>) -> Self {
        let kernel = kernel.extents();
        AvgPool {
            window: Window::new(kernel).stride(kernel),
            ceil_mode: false,
            count_include_pad: true,
            divisor: None,
        }
    }

    window_options!(AvgPool);

    /// Sets if the zeros of the padding count in the divisor; true by default, as in PyTorch.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::AvgPool1d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[1, 2, 1], DType::F32)?;
    /// let pool = AvgPool1d::new(2).padding(1);
    /// assert_eq!(pool.forward(&x)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// assert_eq!(pool.count_include_pad(false).forward(&x)?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn count_include_pad(mut self, count: bool) -> Self {
        self.count_include_pad = count;
        self
    }

    /// Divides the sum of every window by this number, whatever it contains.
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::AvgPool1d};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[1, 4, 1], DType::F32)?;
    /// assert_eq!(AvgPool1d::new(2).divisor_override(1).forward(&x)?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn divisor_override(mut self, divisor: isize) -> Self {
        self.divisor = Some(divisor);
        self
    }
}

unit_module!([const R: usize] MaxPool<R>, ["MaxPool", "MaxPool1d", "MaxPool2d", "MaxPool3d"][R]);
unit_module!([const R: usize] AvgPool<R>, ["AvgPool", "AvgPool1d", "AvgPool2d", "AvgPool3d"][R]);

#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for MaxPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.max_pool(&self.window, self.ceil_mode)
    }
}

#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for AvgPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        match self.divisor {
            Some(divisor) => x.avg_pool_by(&self.window, self.ceil_mode, divisor),
            None => x.avg_pool(&self.window, self.ceil_mode, self.count_include_pad),
        }
    }
}

/// Declares the layer of an adaptive pooling, its names by dimensions, and the result of its first example.
macro_rules! adaptive {
    ($(
        $(#[$about:meta])* pub struct $layer:ident;
        $one:ident, $two:ident, $three:ident => $method:ident, $pooling:literal, $example:literal;
    )*) => {$(
        $(#[$about])*
        ///
        /// ```
        #[doc = concat!("use kiln_nn::{DType, Layer, Tensor, layers::", stringify!($two), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::zeros(&cpu, &[1, 13, 17, 3], DType::F32)?;
        #[doc = concat!("assert_eq!(", stringify!($two), "::new(7).forward(&x)?.shape().dims(), [1, 7, 7, 3]);")]
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug)]
        pub struct $layer<const R: usize> {
            output: [usize; R],
        }

        #[doc = concat!($pooling, " over sequences `[N, L, C]`.")]
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{Layer, Tensor, layers::", stringify!($one), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0, 4.0], &[1, 4, 1])?;
        #[doc = concat!("assert_eq!(", stringify!($one), "::new(2).forward(&x)?.to_vec::<f32>()?, ", $example, ");")]
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        pub type $one = $layer<1>;
        #[doc = concat!($pooling, " over images `[N, H, W, C]`.")]
        ///
        #[doc = concat!("See the example of [`", stringify!($layer), "`].")]
        pub type $two = $layer<2>;
        #[doc = concat!($pooling, " over volumes `[N, D, H, W, C]`.")]
        ///
        #[doc = concat!("See the example of [`", stringify!($layer), "`].")]
        pub type $three = $layer<3>;

        impl<const R: usize> $layer<R> {
            /// Pooling to `output` positions per dimension.
            ///
            #[doc = concat!("See the example of [`", stringify!($layer), "`].")]
            pub fn new(output: impl Extents<R>) -> Self {
                $layer {
                    output: output.extents(),
                }
            }
        }

        unit_module!(
            [const R: usize] $layer<R>,
            [stringify!($layer), stringify!($one), stringify!($two), stringify!($three)][R]
        );

        impl<B: Backend, const R: usize> Layer<B> for $layer<R> {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                x.$method(&self.output)
            }
        }
    )*};
}

adaptive! {
    /// Average pooling to a fixed output size (`torch.nn.AdaptiveAvgPool2d` and its siblings): `[N, spatial…, C]` to
    /// `[N, output…, C]`.
    pub struct AdaptiveAvgPool;
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d => adaptive_avg_pool,
        "Adaptive average pooling", "[1.5, 3.5]";
    /// Max pooling to a fixed output size (`torch.nn.AdaptiveMaxPool2d` and its siblings): `[N, spatial…, C]` to
    /// `[N, output…, C]`.
    pub struct AdaptiveMaxPool;
    AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d => adaptive_max_pool,
        "Adaptive max pooling", "[2.0, 4.0]";
}

/// The mean over all positions (Keras's `GlobalAveragePooling2D` and its siblings): `[N, spatial…, C]` to `[N, C]`.
///
/// ```
/// use kiln_nn::{Layer, Tensor, layers::GlobalAvgPool2d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1.0f32, 2.0, 3.0, 4.0], &[1, 2, 2, 1])?;
/// let y = GlobalAvgPool2d::default().forward(&x)?;
/// assert_eq!(y.shape().dims(), [1, 1]);
/// assert_eq!(y.to_vec::<f32>()?, [2.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalAvgPool<const R: usize>;

/// Global average pooling over sequences `[N, L, C]`.
///
/// ```
/// # use kiln_nn::{DType, Layer, Tensor, layers::GlobalAvgPool1d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[1, 100, 8], DType::F32)?;
/// assert_eq!(GlobalAvgPool1d::default().forward(&x)?.shape().dims(), [1, 8]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type GlobalAvgPool1d = GlobalAvgPool<1>;
/// Global average pooling over images `[N, H, W, C]`.
///
/// See the example of [`GlobalAvgPool`].
pub type GlobalAvgPool2d = GlobalAvgPool<2>;
/// Global average pooling over volumes `[N, D, H, W, C]`.
///
/// ```
/// # use kiln_nn::{DType, Layer, Tensor, layers::GlobalAvgPool3d};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[1, 8, 16, 16, 3], DType::F32)?;
/// assert_eq!(GlobalAvgPool3d::default().forward(&x)?.shape().dims(), [1, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub type GlobalAvgPool3d = GlobalAvgPool<3>;

unit_module!(
    [const R: usize] GlobalAvgPool<R>,
    const { ["", "GlobalAvgPool1d", "GlobalAvgPool2d", "GlobalAvgPool3d"][R] }
);

#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for GlobalAvgPool<R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        // Unlike `Tensor::global_avg_pool`, this refuses an input whose rank is not R + 2.
        let pooled = x.adaptive_avg_pool(&[1; R])?;
        pooled.reshape(&[x.shape()[0], x.shape()[R + 1]])
    }
}
