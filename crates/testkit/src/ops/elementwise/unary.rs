//! Functions of one tensor, each compared with its formula in f64.

use super::{erf, erfc};
use crate::{Array, Case, Reference, Rounding, check_with, shapes};
use kiln_core::ops::{Op, Unary};
use kiln_core::{Backend, Buffer, DType, Result, unary_functions};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// A function with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    f: Unary,
    a: f64,
    b: f64,
}

impl Function {
    /// A function with its parameters, some of which it may not use.
    pub(crate) fn new(f: Unary, a: f64, b: f64) -> Self {
        Function { f, a, b }
    }

    /// A function without parameters.
    pub(crate) fn plain(f: Unary) -> Self {
        Function { f, a: 0.0, b: 0.0 }
    }

    /// The function through its method of [`Tensor`].
    pub(crate) fn apply<B: Backend>(self, x: &Tensor<B>) -> Result<Tensor<B>> {
        apply(self, x)
    }

    /// Its row of the table.
    pub(crate) fn row(self) -> &'static kiln_core::ops::UnaryFunction {
        self.f.function()
    }

    /// The function's value at x in f64.
    pub(crate) fn exact(self, x: f64) -> f64 {
        exact(self, x)
    }
}

/// Every function with the parameters to try and the interval of x, both from the table of functions.
pub(crate) fn functions() -> impl Iterator<Item = (Function, (f64, f64))> {
    let tried = Unary::ALL
        .iter()
        .flat_map(|&f| f.function().tried.iter().map(move |t| (f, t)));
    tried.map(|(f, &(a, b, low, high))| (Function { f, a, b }, (low, high)))
}

#[derive(Clone, Debug)]
struct Apply {
    f: Function,
    x: Array,
}

macro_rules! apply {
    ($($(#[$doc:meta])* $name:ident {
        $kind:ident $method:ident($($parameter:ident = $default:expr),*), $($rest:tt)*
    })*) => {
        /// Calls the tensor's method for a function, with the number of parameters that it has.
        fn apply<B: Backend>(Function { f, a, b }: Function, x: &Tensor<B>) -> Result<Tensor<B>> {
            let mut parameters = [a, b].into_iter();
            match f {
                $(Unary::$name => x.$method($(parameters.next().unwrap_or($default)),*)),*
            }
        }
    };
}
unary_functions!(apply);

impl Case for Apply {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        apply(self.f, &x[0])
    }

    fn oracle(&self, x: &[Array]) -> Array {
        x[0].map(|x| exact(self.f, x))
    }

    /// A unit in the last place counts as two roundings, and parameters are rounded.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let row = self.f.f.function();
        if row.ulps == 0.0 {
            return Rounding::exact(want);
        }
        let terms = x[0].data.iter().zip(&want.data);
        let magnitude = terms.map(|(&x, &y)| terms_of(self.f, x, y)).collect();
        let steps = 2.0 * row.ulps + row.parameters.len() as f64;
        // The table's units are those of f32. In f64 the formulas do not correct the rounding of an exponential's argument,
        // which can be as large as x², so its few roundings count that many times.
        let square = x[0].data.iter().fold(0.0, |m: f64, x| m.max(x * x));
        Rounding::terms(steps, Array::new(&want.shape, magnitude)).oracle(steps + 4.0 * square)
    }

    /// Derivatives of bounded functions have terms of up to 1, or of the size of their parameters, which cancel in the tails.
    fn slope_terms(&self, _: &[Array]) -> f64 {
        1.5 * self.f.a.abs().max(1.0) * 2.0
    }
}

/// The function in f64, in forms that do not cancel near 0 or in the tails.
fn exact(Function { f, a, b }: Function, x: f64) -> f64 {
    let sigmoid = |x: f64| {
        if x < 0.0 {
            x.exp() / (1.0 + x.exp())
        } else {
            1.0 / (1.0 + (-x).exp())
        }
    };
    match f {
        Unary::Affine => a * x + b,
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign if x == 0.0 || x.is_nan() => 0.0,
        Unary::Sign => x.signum(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Expm1 => x.exp_m1(),
        Unary::Log => x.ln(),
        Unary::Log2 => x.log2(),
        Unary::Log10 => x.log10(),
        Unary::Log1p => x.ln_1p(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Square => x * x,
        Unary::Reciprocal => 1.0 / x,
        Unary::Powf => x.powf(a),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        // The square of the largest f32 is finite in f64, and x is exact there.
        Unary::Asinh => (x.abs() + x * x / (1.0 + (x * x + 1.0).sqrt())).ln_1p().copysign(x),
        Unary::Acosh if x < 1.0 => f64::NAN,
        Unary::Acosh => {
            let over = x - 1.0;
            (over + (over * (x + 1.0)).sqrt()).ln_1p()
        }
        Unary::Atanh => (2.0 * x / (1.0 - x)).ln_1p() / 2.0,
        Unary::Erf => erf(x),
        Unary::Erfc => erfc(x),
        Unary::Sigmoid => sigmoid(x),
        Unary::LogSigmoid => x.min(0.0) - (-x.abs()).exp().ln_1p(),
        Unary::Relu if x.is_nan() => x,
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
        Unary::Selu => {
            1.050_700_987_355_480_5
                * if x > 0.0 {
                    x
                } else {
                    1.673_263_242_354_377_2 * x.exp_m1()
                }
        }
        Unary::Celu => {
            if x > 0.0 {
                x
            } else {
                a * (x / a).exp_m1()
            }
        }
        Unary::Gelu => x * 0.5 * erfc(-x / 2f64.sqrt()),
        // 1/2·(1 + tanh u) = 1/(1 + e⁻²ᵘ), which keeps its lower tail.
        Unary::GeluTanh => x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))),
        Unary::Silu => x * sigmoid(x),
        Unary::Mish if x > 40.0 => x,
        Unary::Mish => {
            let n = x.exp() * (x.exp() + 2.0);
            x * n / (n + 2.0)
        }
        Unary::Softplus => {
            if a * x > b {
                x
            } else {
                (a * x).exp().ln_1p() / a
            }
        }
        Unary::Softsign => x / (1.0 + x.abs()),
        Unary::Hardsigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::Hardswish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Unary::Hardshrink => {
            if x.abs() > a {
                x
            } else {
                0.0
            }
        }
        Unary::Softshrink => (x.abs() - a).max(0.0).copysign(x),
        Unary::Clamp => x.max(a).min(b),
    }
}

/// Every function of one tensor.
pub fn unary<B: Backend>(backend: &B) {
    for (f, (low, high)) in functions() {
        let x = shapes::shape(3).prop_flat_map(move |s| shapes::values(&s, low, high));
        check_with(16, backend, x.prop_map(move |x| Apply { f, x }));
    }
}

/// Results below this lose digits, because intermediate results are below the normal numbers of f32.
const TINY: f64 = 1e-37;
/// The absolute error that results below [`TINY`] may have.
const TINY_ERROR: f64 = 1e-43;

/// Every function over the whole range of f32: values are within the table's units in the last place of the exact ones
/// if these are at least 1e-37, and within 1e-43 of smaller ones.
///
/// # Panics
/// With function, argument and error, when an error is larger, or when an op returns an error.
pub fn unary_accuracy<B: Backend>(backend: &B) {
    let values = every_magnitude();
    for (f, _) in functions() {
        let x = Array::new(&[values.len()], values.iter().map(|&x| f64::from(x)).collect());
        // A backend computes the function of parameters rounded to f32.
        let f = Function {
            a: f64::from(f.a as f32),
            b: f64::from(f.b as f32),
            ..f
        };
        let case = Apply { f, x };
        let apply = || {
            let x = Tensor::from_slice(backend, &values, &[values.len()])?;
            case.call(backend, &[x])?.to_f64()
        };
        let got = apply().unwrap_or_else(|e| panic!("{:?}: {e}", f.f));
        let mut worst = (0.0, 0.0, 0.0, 0.0);
        for (&x, &got) in values.iter().zip(&got) {
            let want = exact(f, f64::from(x));
            let error = error_in_ulps(terms_of(f, f64::from(x), want), got, want);
            if error > worst.0 {
                worst = (error, x, got, want);
            }
        }
        let (error, x, got, want) = worst;
        let bound = f.f.function().ulps;
        assert!(
            error <= bound,
            "{f:?} of {x:e}: {got:e}, expected {want:e}, {error:.1} units in the last place where {bound} are allowed"
        );
    }
}

/// Numbers of every binade of f32 with both signs, and small ones 1/64 apart.
pub(crate) fn every_magnitude() -> Vec<f32> {
    let mut values: Vec<f32> = (-2560..=2560).map(|i| i as f32 / 64.0).collect();
    let powers = (-149..=127).flat_map(|e| [1.0, 1.37, 1.9].map(|m: f32| m * 2f32.powi(e / 2) * 2f32.powi(e - e / 2)));
    values.extend(powers.flat_map(|x| [x, -x]));
    values
}

/// The error of a value in f32, in units in the last place of `of`, the magnitude of its terms; infinite if only one of
/// `got` and `want` is NaN or infinite.
fn error_in_ulps(of: f64, got: f64, want: f64) -> f64 {
    let largest = f64::from(f32::MAX) * (1.0 - 1e-6);
    let right = |right: bool| if right { 0.0 } else { f64::INFINITY };
    if want.is_nan() || got.is_nan() {
        return right(want.is_nan() && got.is_nan());
    }
    if want.abs() >= largest {
        return right(got.abs() >= largest && got.signum() == want.signum());
    }
    if want.abs() < TINY {
        return right((got - want).abs() <= TINY_ERROR.max(want.abs() * 1e-5));
    }
    let unit = 2f64.powi((of.log2().floor().max(-126.0)) as i32 - 23);
    (got - want).abs() / unit
}

/// The magnitude of the terms of the result `want` at x, for functions whose parameters cause cancellation or magnify an error.
fn terms_of(Function { f, a, b }: Function, x: f64, want: f64) -> f64 {
    match f {
        Unary::Affine => (a * x).abs() + b.abs(),
        Unary::Softplus => want.abs() * (1.0 + (a * x).abs()),
        Unary::Celu if x < 0.0 => want.abs() * (1.0 + (x / a).abs() * (x / a).exp()),
        Unary::Softshrink => x.abs() + a,
        // The sum with 3 is rounded.
        Unary::Hardsigmoid => 0.5,
        Unary::Hardswish => x.abs() * 0.5,
        _ => want.abs(),
    }
}

/// The derivative of every function over the whole range of f32 is compared with that of [`Reference`] in f64, which composes
/// it of other functions: it is within twice the table's units in the last place, and 4 more, of the magnitude of its terms.
/// Derivatives below 1e-37, where f32 loses digits, need only be as small.
///
/// # Panics
/// With functions, arguments and errors, when an error is larger, or when an op returns an error.
pub fn unary_slope_accuracy<B: Backend>(backend: &B) {
    let values = every_magnitude();
    let wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    let mut wrong = String::new();
    for (f, _) in functions() {
        let f = Function {
            a: f64::from(f.a as f32),
            b: f64::from(f.b as f32),
            ..f
        };
        let got = Tensor::from_slice(backend, &values, &[values.len()]).and_then(|x| slopes(f, &x));
        let want = Tensor::from_slice(&Reference, &wide, &[wide.len()]).and_then(|x| slopes(f, &x));
        let [got, want] = [got, want].map(|slopes| slopes.unwrap_or_else(|e| panic!("{:?}: {e}", f.f)));
        let bound = 2.0 * f.f.function().ulps + 4.0;
        let mut worst = (0.0, 0.0, 0.0, 0.0);
        for ((&x, &got), &want) in wide.iter().zip(&got).zip(&want) {
            // Derivatives outside of the domain, or where the value overflows f32, are not compared.
            let value = exact(f, x);
            let defined = !value.is_nan() && value.abs() < f64::from(f32::MAX);
            let tiny = got.abs() <= TINY && want.abs() <= 2.0 * TINY;
            if !defined || tiny {
                continue;
            }
            let error = error_in_ulps(slope_terms_of(f, x, value, want), got, want);
            if error > worst.0 {
                worst = (error, x, got, want);
            }
        }
        let (error, x, got, want) = worst;
        if error > bound {
            wrong += &format!(
                "\nslope of {f:?} at {x:e}: {got:e}, expected {want:e}, {error:.1} units in the last place where {bound} are allowed"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The derivative of a function at each element.
pub(crate) fn slopes<B: Backend>(f: Function, x: &Tensor<B>) -> Result<Vec<f64>> {
    let x = x.requires_grad();
    let y = apply(f, &x)?;
    let gradients = y.backward_with(&y.detach().full_like(1.0)?)?;
    gradients
        .get(&x)
        .map_or_else(|| Ok(vec![0.0; x.size()]), Tensor::to_f64)
}

/// The magnitude of the terms of the derivative `want` at x, where the function has the value `value`.
fn slope_terms_of(Function { f, a, b: _ }: Function, x: f64, value: f64, want: f64) -> f64 {
    match f {
        // The derivative is computed from the output, which rounds to 1.
        Unary::Tanh => 1.0,
        Unary::Sigmoid => value,
        Unary::Expm1 => 1.0 + want,
        // The rounded argument of an exponential.
        Unary::Erf | Unary::Erfc => want.abs() * (1.0 + x * x),
        Unary::Softplus => want.abs() * (1.0 + (a * x).abs()),
        Unary::Celu => want.abs() * (1.0 + (x / a).abs()),
        // x·c(x) has the derivative c + x·c′.
        Unary::Silu | Unary::Mish | Unary::Hardswish if x != 0.0 => product_terms(x, value, want),
        Unary::Gelu if x != 0.0 => product_terms(x, value, want) * (1.0 + x * x / 2.0),
        Unary::GeluTanh if x != 0.0 => product_terms(x, value, want) * (1.0 + (1.6 * x + 0.072 * x.powi(3)).abs()),
        _ => want.abs(),
    }
}

/// The magnitude of the terms of the derivative of x·c(x): c and x·c′.
fn product_terms(x: f64, value: f64, want: f64) -> f64 {
    let factor = value / x;
    factor.abs() + (want - factor).abs()
}

/// Arithmetic with a scalar, or a conversion to another dtype and back.
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
            // Conversion to f64 and back, which is exact.
            _ => x.to_dtype(DType::F64)?.square()?.to_dtype(x.dtype()),
        }
    }

    /// The scalar and its reciprocal are rounded. A scalar divided by a tensor is computed as a reciprocal, which is
    /// stored, and a product.
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        let stored = if self.which == 5 { 1.0 } else { 0.0 };
        Rounding::relative(3.0, want).stored(stored)
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
    let most = if backend.supports_dtype(DType::F64) { 9 } else { 8 };
    for which in 0..most {
        let x = shapes::shape(2).prop_flat_map(|s| shapes::values(&s, 0.5, 3.0));
        check_with(16, backend, x.prop_map(move |x| Scalars { which, x }));
    }
    for dtype in [DType::BF16, DType::F16]
        .into_iter()
        .filter(|&d| backend.supports_dtype(d) && backend.supports(Op::CastEach, DType::F32))
    {
        casts_of_many(backend, dtype).unwrap_or_else(|e| panic!("casts of many tensors of {dtype}: {e}"));
    }
}

/// Casts many tensors by one op, more than one list of a device holds, and each by itself.
fn casts_of_many<B: Backend>(backend: &B, dtype: DType) -> Result<()> {
    let lengths = [0, 1, 7, 8, 31, 4095, 4096, 4097, 9000]
        .into_iter()
        .chain((0..140).map(|i| 3 * i));
    let halves = lengths.map(|n| {
        let values: Vec<f32> = (0..n).map(|i| (i as f32 - 40.0) * 1.37).collect();
        let mut half = backend.alloc(dtype, n)?;
        backend.cast(&backend.upload(&values)?, &mut half)?;
        Ok(half)
    });
    let halves = halves.collect::<Result<Vec<_>>>()?;
    let wide = halves.iter().map(|half| backend.alloc(DType::F32, half.len()));
    let mut wide = wide.collect::<Result<Vec<_>>>()?;
    backend.cast_each(
        &halves.iter().collect::<Vec<_>>(),
        &mut wide.iter_mut().collect::<Vec<_>>(),
    )?;
    for (half, got) in halves.iter().zip(&wide) {
        let mut want = backend.alloc(DType::F32, half.len())?;
        backend.cast(half, &mut want)?;
        assert_eq!(backend.download::<f32>(got)?, backend.download::<f32>(&want)?);
    }
    Ok(())
}
