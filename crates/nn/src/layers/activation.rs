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
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        activations!(@forward $name $method());
    };
    (@layer [$layer:literal] $(#[$doc:meta])* $name:ident $method:ident($($parameter:ident = $default:expr),+)) => {
        $(#[$doc])*
        #[doc = concat!("\n`", $layer, "`, as [`Tensor::", stringify!($method), "`].")]
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
    Hardtanh {
        /// The lower bound.
        min: f64 = -1.0,
        /// The upper bound.
        max: f64 = 1.0
    } => clamp;
    /// Softmax along an axis (`torch.nn.Softmax`).
    Softmax {
        /// The axis; −1 is the last.
        axis: isize = -1
    } => softmax;
    /// The logarithm of softmax along an axis (`torch.nn.LogSoftmax`).
    LogSoftmax {
        /// The axis; −1 is the last.
        axis: isize = -1
    } => log_softmax;
    /// Joins the dimensions `start..=end` into one (`torch.nn.Flatten`), by default all but the first.
    ///
    /// Images are channels-last, so an image flattens to (H, W, C) order where PyTorch has (C, H, W): the columns of a
    /// following Linear from PyTorch are reordered by [`columns_from_torch`](crate::weights::columns_from_torch).
    Flatten {
        /// The first dimension joined.
        start: isize = 1,
        /// The last dimension joined; −1 is the last.
        end: isize = -1
    } => flatten;
}

/// min(max(x, 0), 6) (`torch.nn.ReLU6`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Relu6;

unit_module!([] Relu6, "Relu6");

impl<B: Backend> Layer<B> for Relu6 {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        x.clamp(0.0, 6.0)
    }
}

/// Returns its input (`torch.nn.Identity`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

unit_module!([] Identity, "Identity");

impl<B: Backend> Layer<B> for Identity {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(x.clone())
    }
}
