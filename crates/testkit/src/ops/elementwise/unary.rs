//! Functions of one tensor: each against its formula in f64.

use super::erf;
use crate::{Array, Case, check_with, shapes};
use kiln_core::ops::Unary;
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// A function with its parameters, and where its argument is drawn from.
type Function = (Unary, f64, f64, (f64, f64));

/// Every function. Intervals keep f32 and central differences meaningful: away from poles and overflow.
const FUNCTIONS: &[Function] = &[
    (Unary::Affine, 1.5, -0.25, (-2.0, 2.0)),
    (Unary::Neg, 0.0, 0.0, (-2.0, 2.0)),
    (Unary::Abs, 0.0, 0.0, (-2.0, 2.0)),
    (Unary::Exp, 0.0, 0.0, (-4.0, 4.0)),
    (Unary::Log, 0.0, 0.0, (0.1, 5.0)),
    (Unary::Sqrt, 0.0, 0.0, (0.1, 5.0)),
    (Unary::Rsqrt, 0.0, 0.0, (0.2, 5.0)),
    (Unary::Square, 0.0, 0.0, (-2.0, 2.0)),
    (Unary::Reciprocal, 0.0, 0.0, (0.3, 3.0)),
    (Unary::Reciprocal, 0.0, 0.0, (-3.0, -0.3)),
    (Unary::Sin, 0.0, 0.0, (-7.0, 7.0)),
    (Unary::Cos, 0.0, 0.0, (-7.0, 7.0)),
    (Unary::Tanh, 0.0, 0.0, (-4.0, 4.0)),
    (Unary::Sigmoid, 0.0, 0.0, (-9.0, 9.0)),
    (Unary::Relu, 0.0, 0.0, (-2.0, 2.0)),
    (Unary::LeakyRelu, 0.1, 0.0, (-2.0, 2.0)),
    (Unary::LeakyRelu, -0.5, 0.0, (-2.0, 2.0)),
    (Unary::Elu, 1.3, 0.0, (-3.0, 3.0)),
    (Unary::Gelu, 0.0, 0.0, (-5.0, 5.0)),
    (Unary::GeluTanh, 0.0, 0.0, (-5.0, 5.0)),
    (Unary::Silu, 0.0, 0.0, (-6.0, 6.0)),
    (Unary::Softplus, 1.0, 20.0, (-6.0, 6.0)),
    (Unary::Softplus, 2.5, 3.000_123, (-3.0, 3.0)),
    (Unary::Clamp, -0.700_123, 1.100_321, (-2.0, 2.0)),
    (Unary::Powf, 2.5, 0.0, (0.1, 3.0)),
    (Unary::Powf, -1.5, 0.0, (0.3, 3.0)),
    (Unary::Powf, 3.0, 0.0, (-2.0, 2.0)),
    (Unary::Powf, 1.0, 0.0, (-2.0, 2.0)),
    (Unary::Powf, 0.0, 0.0, (-2.0, 2.0)),
    (Unary::Erf, 0.0, 0.0, (-4.0, 4.0)),
    (Unary::Sign, 0.0, 0.0, (-2.0, 2.0)),
];

#[derive(Clone, Debug)]
struct Apply {
    f: Function,
    x: Array,
}

impl Case for Apply {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (f, a, b, _) = self.f;
        let x = &x[0];
        match f {
            Unary::Affine => x.affine(a, b),
            Unary::Neg => x.neg(),
            Unary::Abs => x.abs(),
            Unary::Exp => x.exp(),
            Unary::Log => x.log(),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => x.rsqrt(),
            Unary::Square => x.square(),
            Unary::Reciprocal => x.reciprocal(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            Unary::Sigmoid => x.sigmoid(),
            Unary::Relu => x.relu(),
            Unary::LeakyRelu => x.leaky_relu(a),
            Unary::Elu => x.elu(a),
            Unary::Gelu => x.gelu(),
            Unary::GeluTanh => x.gelu_tanh(),
            Unary::Silu => x.silu(),
            Unary::Softplus => x.softplus(a, b),
            Unary::Clamp => x.clamp(a, b),
            Unary::Powf => x.powf(a),
            Unary::Erf => x.erf(),
            Unary::Sign => x.sign(),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (f, a, b, _) = self.f;
        x[0].map(|x| match f {
            Unary::Affine => a * x + b,
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Square => x * x,
            Unary::Reciprocal => 1.0 / x,
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Unary::Relu => x.max(0.0),
            Unary::LeakyRelu => {
                if x > 0.0 {
                    x
                } else {
                    a * x
                }
            }
            Unary::Elu => {
                if x > 0.0 {
                    x
                } else {
                    a * (x.exp() - 1.0)
                }
            }
            Unary::Gelu => x * 0.5 * (1.0 + erf(x / 2f64.sqrt())),
            Unary::GeluTanh => {
                x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
            }
            Unary::Silu => x / (1.0 + (-x).exp()),
            Unary::Softplus => {
                if a * x > b {
                    x
                } else {
                    (1.0 + (a * x).exp()).ln() / a
                }
            }
            Unary::Clamp => x.max(a).min(b),
            Unary::Powf => x.powf(a),
            Unary::Erf => erf(x),
            Unary::Sign => x.signum(),
        })
    }
}

/// Every function of one tensor.
pub fn unary<B: Backend>(backend: &B) {
    for &f in FUNCTIONS {
        let (low, high) = f.3;
        let x = shapes::shape(3).prop_flat_map(move |s| shapes::values(&s, low, high));
        check_with(16, backend, x.prop_map(move |x| Apply { f, x }));
    }
}

/// Arithmetic with numbers, and conversion with its gradient.
#[derive(Clone, Debug)]
struct Scalars {
    which: usize,
    x: Array,
}

impl Case for Scalars {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let x = &x[0];
        match self.which {
            0 => x.add_scalar(1.25),
            1 => x.sub_scalar(1.25),
            2 => x.rsub_scalar(1.25),
            3 => x.mul_scalar(-3.0),
            4 => x.div_scalar(3.0),
            5 => x.rdiv_scalar(3.0),
            6 => x.clamp_min(1.500_1),
            7 => x.clamp_max(1.500_1),
            // There and back through f64, which loses nothing.
            _ => x.to_dtype(DType::F64)?.square()?.to_dtype(x.dtype()),
        }
    }

    /// A number divided by a tensor is a reciprocal, then a product.
    fn roundings(&self) -> f64 {
        if self.which == 5 { 2.0 } else { 1.0 }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|x| match self.which {
            0 => x + 1.25,
            1 => x - 1.25,
            2 => 1.25 - x,
            3 => x * -3.0,
            4 => x / 3.0,
            5 => 3.0 / x,
            6 => x.max(1.500_1),
            7 => x.min(1.500_1),
            _ => x * x,
        })
    }
}

/// Arithmetic with scalars, and conversion between dtypes.
pub fn casts<B: Backend>(backend: &B) {
    let most = if backend.supports(DType::F64) { 9 } else { 8 };
    for which in 0..most {
        let x = shapes::shape(2).prop_flat_map(|s| shapes::values(&s, 0.5, 3.0));
        check_with(16, backend, x.prop_map(move |x| Scalars { which, x }));
    }
}
