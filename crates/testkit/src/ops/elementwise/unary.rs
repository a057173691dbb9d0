//! Functions of one tensor: each against its formula in f64.

use super::{erf, erfc};
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
                    a * x.exp_m1()
                }
            }
            Unary::Gelu => x * 0.5 * erfc(-x / 2f64.sqrt()),
            // 1/2·(1 + tanh u) = 1/(1 + e⁻²ᵘ), which keeps its lower tail.
            Unary::GeluTanh => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                x / (1.0 + (-2.0 * u).exp())
            }
            Unary::Silu => x / (1.0 + (-x).exp()),
            Unary::Softplus => {
                if a * x > b {
                    x
                } else {
                    (a * x).exp().ln_1p() / a
                }
            }
            Unary::Clamp => x.max(a).min(b),
            Unary::Powf => x.powf(a),
            Unary::Erf => erf(x),
            Unary::Sign if x == 0.0 => 0.0,
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

/// Every function over the whole range of f32: values are within some units in the last place of the exact ones, each function's
/// own number, wherever these are at least 1e-36. Below, sigmoid and functions made of it reach 0 a little early.
///
/// # Panics
/// Naming function, argument and error where one is further off, or when an op returns an error.
pub fn unary_accuracy<B: Backend>(backend: &B) {
    let mut values: Vec<f32> = (-2560..=2560).map(|i| i as f32 / 64.0).collect();
    let powers = (-149..=127).flat_map(|e| [1.0, 1.37, 1.9].map(|m: f32| m * 2f32.powi(e / 2) * 2f32.powi(e - e / 2)));
    values.extend(powers.flat_map(|x| [x, -x]));
    let largest = f64::from(f32::MAX) * (1.0 - 1e-6);
    for &f in FUNCTIONS {
        let x = Array::new(&[values.len()], values.iter().map(|&x| f64::from(x)).collect());
        let case = Apply { f, x: x.clone() };
        let apply = || {
            let x = Tensor::from_slice(backend, &values, &[values.len()])?;
            case.call(backend, &[x])?.to_f64()
        };
        let got = apply().unwrap_or_else(|e| panic!("{:?}: {e}", f.0));
        let exact = case.oracle(&[x]).data;
        for ((&x, &got), &want) in values.iter().zip(&got).zip(&exact) {
            let holds = if want.is_nan() {
                got.is_nan()
            } else if want.abs() >= largest {
                got.abs() >= largest && got.signum() == want.signum()
            } else {
                let (bound, of) = ulps(f, f64::from(x), want);
                // A unit in the last place of `of` in f32.
                let unit = 2f64.powi(of.abs().log2().floor().max(-126.0) as i32 - 23);
                (got - want).abs() <= bound * unit || got.abs().max(want.abs()) < 1e-36
            };
            assert!(holds, "{f:?} of {x:e}: {got:e}, expected {want:e}");
        }
    }
}

/// The largest error of a function's value in f32, in units in the last place of the second number: `want`, the exact value, where
/// nothing cancels. An exponential's relative error is that of its argument times the argument.
fn ulps((f, a, b, _): Function, x: f64, want: f64) -> (f64, f64) {
    let bound = match f {
        Unary::Affine => return (1.5, (a * x).abs() + b.abs()),
        Unary::Neg | Unary::Abs | Unary::Relu | Unary::Sign => 0.0,
        // The results that need rounding alone; parameters are rounded to f32 as well.
        Unary::Sqrt | Unary::Square | Unary::Reciprocal | Unary::Clamp => 0.5,
        Unary::LeakyRelu => 1.0,
        Unary::Exp | Unary::Log | Unary::Rsqrt | Unary::Powf => 1.5,
        Unary::Sin | Unary::Cos | Unary::Tanh => 2.0,
        Unary::Sigmoid | Unary::Silu | Unary::Elu | Unary::Erf => 2.5,
        Unary::Softplus => 2.5 + (a * x).abs(),
        Unary::Gelu => 5.0 + 2.5 * x * x / 2.0,
        Unary::GeluTanh => 5.0 + 2.5 * 1.6 * (x + 0.044_715 * x.powi(3)).abs(),
    };
    (bound, want)
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
