//! Activations and reshaping as layers, for [`Sequential`](super::Sequential). They have no parameters.

use super::{Layer, unit_module};
use crate::{Backend, Result, Tensor};
use kiln_core::unary_functions;

/// Declares a layer for every function of the table in `kiln-core` that PyTorch has as a module, with the function's parameters
/// as fields.
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident {
        $kind:ident $method:ident($($parameter:ident = $default:expr),*), torch: $torch:literal, $(layer: $layer:literal,)?
        reads: $reads:ident, $($rest:tt)*
    })*) => {
        $(activations!(@layer [$($layer)?] $(#[$doc])* $name $method($($parameter = $default),*));)*
    };
    (@layer [] $($row:tt)*) => {};
    (@layer [$layer:literal] $(#[$doc:meta])* $name:ident $method:ident()) => {
        $(#[$doc])*
        #[doc = concat!("\n`", $layer, "`, as [`Tensor::", stringify!($method), "`].")]
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::from_slice(&cpu, &[-1.5f32, 0.25, 3.0], &[3])?;
        #[doc = concat!("let (y, same) = (", stringify!($name), ".forward(&x)?, x.", stringify!($method), "()?);")]
        /// assert_eq!(y.to_vec::<f32>()?, same.to_vec::<f32>()?);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        activations!(@forward $name $method());
    };
    (@layer [$layer:literal] $(#[$doc:meta])* $name:ident $method:ident($($parameter:ident = $default:expr),+)) => {
        $(#[$doc])*
        #[doc = concat!("\n`", $layer, "`, as [`Tensor::", stringify!($method), "`].")]
        ///
        /// ```
        #[doc = concat!("# use kiln_nn::{Layer, Tensor, layers::", stringify!($name), "};")]
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::from_slice(&cpu, &[-1.5f32, 0.25, 3.0], &[3])?;
        #[doc = concat!("let layer = ", stringify!($name), " {")]
        $(#[doc = concat!("    ", stringify!($parameter), ": ", stringify!($default), ",")])+
        /// };
        #[doc = concat!("let (y, same) = (layer.forward(&x)?, x.", stringify!($method), "(", stringify!($($default),+), ")?);")]
        /// assert_eq!(y.to_vec::<f32>()?, same.to_vec::<f32>()?);
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($parameter), "` of the function, ", stringify!($default), " by default.")]
                pub $parameter: f64
            ),+
        }
        impl Default for $name {
            fn default() -> Self {
                $name { $($parameter: $default),+ }
            }
        }
        activations!(@forward $name $method($($parameter),+));
    };
    (@forward $name:ident $method:ident($($parameter:ident),*)) => {
        unit_module!([] $name, stringify!($name));
        impl<B: Backend> Layer<B> for $name {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                x.$method($(self.$parameter),*)
            }
        }
    };
}
unary_functions!(activations);

/// Declares layers with options that call one method of [`Tensor`].
macro_rules! with_options {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $t:ty = $default:expr),* } => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t),* }
        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default),* }
            }
        }
        unit_module!([] $name, stringify!($name));
        impl<B: Backend> Layer<B> for $name {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                x.$method($(self.$field),*)
            }
        }
    )*};
}

with_options! {
    /// min(max(x, `min`), `max`) (`torch.nn.Hardtanh`).
    ///
    /// ```
    /// # use kiln_nn::{Layer, Tensor, layers::Hardtanh};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[-3.0f32, 0.5, 3.0], &[3])?;
    /// assert_eq!(Hardtanh::default().forward(&x)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// assert_eq!(Hardtanh { min: 0.0, max: 2.0 }.forward(&x)?.to_vec::<f32>()?, [0.0, 0.5, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    Hardtanh {
        /// The lower bound.
        min: f64 = -1.0,
        /// The upper bound.
        max: f64 = 1.0
    } => clamp;
    /// Softmax along an axis (`torch.nn.Softmax`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::Softmax};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 4], DType::F32)?;
    /// assert_eq!(Softmax::default().forward(&x)?.to_vec::<f32>()?, [0.25; 8]);
    /// assert_eq!(Softmax { axis: 0 }.forward(&x)?.to_vec::<f32>()?, [0.5; 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    Softmax {
        /// The axis; −1 is the last.
        axis: isize = -1
    } => softmax;
    /// The logarithm of softmax along an axis (`torch.nn.LogSoftmax`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::LogSoftmax};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let y = LogSoftmax::default().forward(&Tensor::zeros(&cpu, &[2, 4], DType::F32)?)?;
    /// assert!(y.to_f64()?.iter().all(|y| (y - 0.25f64.ln()).abs() < 1e-6));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    LogSoftmax {
        /// The axis; −1 is the last.
        axis: isize = -1
    } => log_softmax;
    /// One half times the sigmoid of the other (`torch.nn.GLU`).
    Glu {
        /// The axis; −1 is the last.
        axis: isize = -1
    } => glu;
    /// Joins the dimensions `start..=end` into one (`torch.nn.Flatten`), by default all but the first.
    ///
    /// Images are channels-last, so an image flattens to (H, W, C) order where PyTorch has (C, H, W): the columns of a
    /// following Linear from PyTorch are reordered by [`columns_from_torch`](crate::weights::columns_from_torch).
    ///
    /// ```
    /// # use kiln_nn::{DType, Layer, Tensor, layers::Flatten};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[16, 4, 4, 8], DType::F32)?;
    /// assert_eq!(Flatten::default().forward(&x)?.shape().dims(), [16, 128]);
    /// assert_eq!(Flatten { start: 1, end: 2 }.forward(&x)?.shape().dims(), [16, 16, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    Flatten {
        /// The first dimension joined.
        start: isize = 1,
        /// The last dimension joined; −1 is the last.
        end: isize = -1
    } => flatten;
}

/// min(max(x, 0), 6) (`torch.nn.ReLU6`).
///
/// ```
/// # use kiln_nn::{Layer, Tensor, layers::Relu6};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[-3.0f32, 3.0, 9.0], &[3])?;
/// assert_eq!(Relu6.forward(&x)?.to_vec::<f32>()?, [0.0, 3.0, 6.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Relu6;

unit_module!([] Relu6, "Relu6");

#[compiled_once]
impl<B: Backend> Layer<B> for Relu6 {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.clamp(0.0, 6.0)
    }
}

/// Returns its input (`torch.nn.Identity`).
///
/// ```
/// # use kiln_nn::{DType, Layer, Tensor, layers::Identity};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::ones(&cpu, &[3], DType::F32)?;
/// assert_eq!(Identity.forward(&x)?.to_vec::<f32>()?, [1.0; 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

unit_module!([] Identity, "Identity");

#[compiled_once]
impl<B: Backend> Layer<B> for Identity {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(x.clone())
    }
}
