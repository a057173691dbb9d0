//! Activations and reshaping as layers, for [`Sequential`](super::Sequential). They have no parameters.

use super::{Layer, unit_module};
use crate::{Backend, Result, Tensor};

/// Declares layers that call one method of [`Tensor`].
macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        unit_module!([] $name, stringify!($name));
        impl<B: Backend> Layer<B> for $name {
            fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
                x.$method()
            }
        }
    )*};
}

activations! {
    /// max(x, 0) (`torch.nn.ReLU`).
    Relu => relu;
    /// x·Φ(x) by erf (`torch.nn.GELU`).
    Gelu => gelu;
    /// GELU's tanh form (`torch.nn.GELU(approximate="tanh")`).
    GeluTanh => gelu_tanh;
    /// x·sigmoid(x) (`torch.nn.SiLU`).
    Silu => silu;
    /// 1/(1+e⁻ˣ) (`torch.nn.Sigmoid`).
    Sigmoid => sigmoid;
    /// tanh x (`torch.nn.Tanh`).
    Tanh => tanh;
}

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
    /// x for x > 0, else slope·x (`torch.nn.LeakyReLU`).
    LeakyRelu {
        /// The slope of the negative side.
        slope: f64 = 0.01
    } => leaky_relu;
    /// x for x > 0, else α·(eˣ − 1) (`torch.nn.ELU`).
    Elu {
        /// The limit of the negative side.
        alpha: f64 = 1.0
    } => elu;
    /// ln(1 + e^(βx))/β, linear where βx is over the threshold (`torch.nn.Softplus`).
    Softplus {
        /// The sharpness.
        beta: f64 = 1.0,
        /// The point at which the linear part begins.
        threshold: f64 = 20.0
    } => softplus;
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

/// Returns its input (`torch.nn.Identity`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

unit_module!([] Identity, "Identity");

impl<B: Backend> Layer<B> for Identity {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        Ok(x.clone())
    }
}
