//! The table of elementwise functions of one tensor. All lists of them, in Rust and in CUDA C, are generated from it.

/// Calls the macro `$then` with the table of functions of one tensor, a row for each function:
///
/// ```text
/// /// Formula and source.
/// Variant {
///     function method(parameter = default, …), torch: "PyTorch's function", layer: "PyTorch's module",
///     reads: Input | Output | Neither, work: [value, slope], ulps: bound, tried: [(a, b) in (low, high), …]
/// }
/// ```
///
/// - For a `function`, the method of [`kiln_nn::Tensor`](https://docs.rs/kiln-nn) is generated from the row; that of a
///   `custom` one is written by hand, because it checks its parameters. A row with `layer` also generates a layer of the
///   variant's name.
/// - `reads` says whether the gradient is computed from the input, from the output, or from neither.
/// - `work` is the time of the value and of the slope, in multiplications.
/// - `ulps` bounds the error of a value in f32, in units in the last place.
/// - `tried` gives parameters, and intervals of x, on which tests compare values and gradients: away from poles and
///   overflow. The whole range is tested for values.
#[macro_export]
macro_rules! unary_functions {
    ($then:ident) => {
        $then! {
            /// a·x + b.
            Affine {
                function affine(a = 1.0, b = 0.0), torch: "torch.add",
                reads: Neither, work: [1, 1], ulps: 1.0, tried: [(1.5, -0.25) in (-2.0, 2.0)]
            }
            /// −x.
            Neg {
                function neg(), torch: "torch.neg",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-2.0, 2.0)]
            }
            /// |x|, with gradient 0 at 0.
            Abs {
                function abs(), torch: "torch.abs",
                reads: Input, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-2.0, 2.0)]
            }
            /// −1, 0 or 1, and 0 for NaN, with gradient 0.
            Sign {
                function sign(), torch: "torch.sign",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-2.0, 2.0)]
            }
            /// The largest integer up to x, with gradient 0.
            Floor {
                function floor(), torch: "torch.floor",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// The smallest integer from x on, with gradient 0.
            Ceil {
                function ceil(), torch: "torch.ceil",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// The nearest integer, ties to even, with gradient 0.
            Round {
                function round(), torch: "torch.round",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// The integer part, with gradient 0.
            Trunc {
                function trunc(), torch: "torch.trunc",
                reads: Neither, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// eˣ.
            Exp {
                function exp(), torch: "torch.exp",
                reads: Output, work: [4, 1], ulps: 2.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// 2ˣ.
            Exp2 {
                function exp2(), torch: "torch.exp2",
                reads: Output, work: [64, 1], ulps: 2.0, tried: [(0.0, 0.0) in (-5.0, 5.0)]
            }
            /// eˣ − 1, accurate near 0.
            Expm1 {
                function expm1(), torch: "torch.expm1",
                reads: Output, work: [4, 1], ulps: 2.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// ln x.
            Log {
                function log(), torch: "torch.log",
                reads: Input, work: [4, 2], ulps: 2.0, tried: [(0.0, 0.0) in (0.1, 5.0)]
            }
            /// The logarithm to base 2.
            Log2 {
                function log2(), torch: "torch.log2",
                reads: Input, work: [64, 2], ulps: 2.0, tried: [(0.0, 0.0) in (0.1, 5.0)]
            }
            /// The logarithm to base 10.
            Log10 {
                function log10(), torch: "torch.log10",
                reads: Input, work: [64, 2], ulps: 2.0, tried: [(0.0, 0.0) in (0.1, 5.0)]
            }
            /// ln(1 + x), accurate near 0.
            Log1p {
                function log1p(), torch: "torch.log1p",
                reads: Input, work: [8, 2], ulps: 3.0, tried: [(0.0, 0.0) in (-0.9, 5.0)]
            }
            /// √x.
            Sqrt {
                function sqrt(), torch: "torch.sqrt",
                reads: Output, work: [2, 2], ulps: 0.5, tried: [(0.0, 0.0) in (0.1, 5.0)]
            }
            /// 1/√x.
            Rsqrt {
                function rsqrt(), torch: "torch.rsqrt",
                reads: Output, work: [2, 1], ulps: 1.5, tried: [(0.0, 0.0) in (0.2, 5.0)]
            }
            /// x².
            Square {
                function square(), torch: "torch.square",
                reads: Input, work: [1, 1], ulps: 0.5, tried: [(0.0, 0.0) in (-2.0, 2.0)]
            }
            /// 1/x.
            Reciprocal {
                function reciprocal(), torch: "torch.reciprocal",
                reads: Output, work: [2, 1], ulps: 0.5, tried: [(0.0, 0.0) in (0.3, 3.0), (0.0, 0.0) in (-3.0, -0.3)]
            }
            /// xᵃ for a constant exponent, by IEEE 754's `pow`.
            Powf {
                custom powf(exponent = 2.0), torch: "torch.pow",
                reads: Input, work: [64, 64], ulps: 2.0, tried: [(2.5, 0.0) in (0.1, 3.0), (-1.5, 0.0) in (0.3, 3.0), (3.0, 0.0) in (-2.0, 2.0), (1.0, 0.0) in (-2.0, 2.0), (0.0, 0.0) in (-2.0, 2.0)]
            }
            /// sin x.
            Sin {
                function sin(), torch: "torch.sin",
                reads: Input, work: [64, 64], ulps: 2.0, tried: [(0.0, 0.0) in (-7.0, 7.0)]
            }
            /// cos x.
            Cos {
                function cos(), torch: "torch.cos",
                reads: Input, work: [64, 64], ulps: 2.0, tried: [(0.0, 0.0) in (-7.0, 7.0)]
            }
            /// tan x.
            Tan {
                function tan(), torch: "torch.tan",
                reads: Output, work: [64, 1], ulps: 4.0, tried: [(0.0, 0.0) in (-1.3, 1.3)]
            }
            /// The angle in [−π/2, π/2] whose sine is x.
            Asin {
                function asin(), torch: "torch.asin",
                reads: Input, work: [64, 2], ulps: 4.0, tried: [(0.0, 0.0) in (-0.9, 0.9)]
            }
            /// The angle in [0, π] whose cosine is x.
            Acos {
                function acos(), torch: "torch.acos",
                reads: Input, work: [64, 2], ulps: 4.0, tried: [(0.0, 0.0) in (-0.9, 0.9)]
            }
            /// The angle in (−π/2, π/2) whose tangent is x.
            Atan {
                function atan(), torch: "torch.atan",
                reads: Input, work: [64, 2], ulps: 3.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// sinh x.
            Sinh {
                function sinh(), torch: "torch.sinh",
                reads: Input, work: [64, 64], ulps: 3.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// cosh x.
            Cosh {
                function cosh(), torch: "torch.cosh",
                reads: Input, work: [64, 64], ulps: 3.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// tanh x.
            Tanh {
                function tanh(), torch: "torch.tanh", layer: "torch.nn.Tanh",
                reads: Output, work: [4, 1], ulps: 2.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// The inverse of sinh.
            Asinh {
                function asinh(), torch: "torch.asinh",
                reads: Input, work: [64, 2], ulps: 4.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// The inverse of cosh, for x ≥ 1.
            Acosh {
                function acosh(), torch: "torch.acosh",
                reads: Input, work: [64, 2], ulps: 4.0, tried: [(0.0, 0.0) in (1.2, 5.0)]
            }
            /// The inverse of tanh.
            Atanh {
                function atanh(), torch: "torch.atanh",
                reads: Input, work: [64, 2], ulps: 4.0, tried: [(0.0, 0.0) in (-0.9, 0.9)]
            }
            /// The error function.
            Erf {
                function erf(), torch: "torch.erf",
                reads: Input, work: [8, 4], ulps: 3.0, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// 1 − erf x, accurate in the upper tail.
            Erfc {
                function erfc(), torch: "torch.erfc",
                reads: Input, work: [8, 4], ulps: 6.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// 1/(1 + e⁻ˣ).
            Sigmoid {
                function sigmoid(), torch: "torch.sigmoid", layer: "torch.nn.Sigmoid",
                reads: Output, work: [4, 1], ulps: 4.0, tried: [(0.0, 0.0) in (-9.0, 9.0)]
            }
            /// ln(1/(1 + e⁻ˣ)).
            LogSigmoid {
                function log_sigmoid(), torch: "torch.nn.functional.logsigmoid", layer: "torch.nn.LogSigmoid",
                reads: Input, work: [16, 4], ulps: 4.0, tried: [(0.0, 0.0) in (-6.0, 6.0)]
            }
            /// max(x, 0), with gradient 0 at 0.
            Relu {
                function relu(), torch: "torch.relu", layer: "torch.nn.ReLU",
                reads: Output, work: [1, 1], ulps: 0.0, tried: [(0.0, 0.0) in (-2.0, 2.0)]
            }
            /// x for x > 0, else `negative_slope`·x.
            LeakyRelu {
                function leaky_relu(negative_slope = 0.01), torch: "torch.nn.functional.leaky_relu", layer: "torch.nn.LeakyReLU",
                reads: Input, work: [1, 1], ulps: 1.0, tried: [(0.1, 0.0) in (-2.0, 2.0), (-0.5, 0.0) in (-2.0, 2.0)]
            }
            /// x for x > 0, else `alpha`·(eˣ − 1) (Clevert et al. 2015).
            Elu {
                function elu(alpha = 1.0), torch: "torch.nn.functional.elu", layer: "torch.nn.ELU",
                reads: Input, work: [4, 4], ulps: 3.0, tried: [(1.3, 0.0) in (-3.0, 3.0)]
            }
            /// λ·x for x > 0, else λα·(eˣ − 1), the constants of Klambauer et al. 2017.
            Selu {
                function selu(), torch: "torch.nn.functional.selu", layer: "torch.nn.SELU",
                reads: Input, work: [4, 4], ulps: 3.0, tried: [(0.0, 0.0) in (-3.0, 3.0)]
            }
            /// x for x > 0, else `alpha`·(e^(x/`alpha`) − 1) (Barron 2017).
            Celu {
                custom celu(alpha = 1.0), torch: "torch.nn.functional.celu", layer: "torch.nn.CELU",
                reads: Input, work: [4, 4], ulps: 3.0, tried: [(1.3, 0.0) in (-3.0, 3.0)]
            }
            /// x·Φ(x) by the error function (Hendrycks & Gimpel 2016).
            Gelu {
                function gelu(), torch: "torch.nn.functional.gelu", layer: "torch.nn.GELU",
                reads: Input, work: [8, 8], ulps: 6.0, tried: [(0.0, 0.0) in (-5.0, 5.0)]
            }
            /// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))): GELU with `approximate="tanh"`.
            GeluTanh {
                function gelu_tanh(), torch: "torch.nn.functional.gelu", layer: "torch.nn.GELU",
                reads: Input, work: [6, 4], ulps: 5.0, tried: [(0.0, 0.0) in (-5.0, 5.0)]
            }
            /// x·sigmoid(x).
            Silu {
                function silu(), torch: "torch.nn.functional.silu", layer: "torch.nn.SiLU",
                reads: Input, work: [4, 4], ulps: 5.0, tried: [(0.0, 0.0) in (-6.0, 6.0)]
            }
            /// x·tanh(softplus(x)) (Misra 2019).
            Mish {
                function mish(), torch: "torch.nn.functional.mish", layer: "torch.nn.Mish",
                reads: Input, work: [6, 6], ulps: 5.0, tried: [(0.0, 0.0) in (-6.0, 6.0)]
            }
            /// ln(1 + e^(`beta`·x))/`beta`, and x itself where `beta`·x > `threshold`.
            Softplus {
                custom softplus(beta = 1.0, threshold = 20.0), torch: "torch.nn.functional.softplus", layer: "torch.nn.Softplus",
                reads: Input, work: [12, 4], ulps: 4.0, tried: [(1.0, 20.0) in (-6.0, 6.0), (2.5, 3.000_123) in (-3.0, 3.0)]
            }
            /// x/(1 + |x|).
            Softsign {
                function softsign(), torch: "torch.nn.functional.softsign", layer: "torch.nn.Softsign",
                reads: Input, work: [2, 2], ulps: 1.5, tried: [(0.0, 0.0) in (-4.0, 4.0)]
            }
            /// min(max(x + 3, 0), 6)/6, with gradient 0 at both ends.
            Hardsigmoid {
                function hardsigmoid(), torch: "torch.nn.functional.hardsigmoid", layer: "torch.nn.Hardsigmoid",
                reads: Input, work: [1, 1], ulps: 1.0, tried: [(0.0, 0.0) in (-5.0, 5.0)]
            }
            /// x·min(max(x + 3, 0), 6)/6 (Howard et al. 2019).
            Hardswish {
                function hardswish(), torch: "torch.nn.functional.hardswish", layer: "torch.nn.Hardswish",
                reads: Input, work: [1, 1], ulps: 2.0, tried: [(0.0, 0.0) in (-5.0, 5.0)]
            }
            /// x where |x| > `lambda`, else 0.
            Hardshrink {
                function hardshrink(lambda = 0.5), torch: "torch.nn.functional.hardshrink", layer: "torch.nn.Hardshrink",
                reads: Input, work: [1, 1], ulps: 0.0, tried: [(0.500_123, 0.0) in (-2.0, 2.0)]
            }
            /// x drawn to 0 by `lambda`: x − `lambda` above it, x + `lambda` below −`lambda`, else 0.
            Softshrink {
                function softshrink(lambda = 0.5), torch: "torch.nn.functional.softshrink", layer: "torch.nn.Softshrink",
                reads: Input, work: [1, 1], ulps: 1.0, tried: [(0.500_123, 0.0) in (-2.0, 2.0)]
            }
            /// min(max(x, `min`), `max`), with gradient 1 between the bounds and 0 on them; an infinite bound is none.
            Clamp {
                function clamp(min = -1.0, max = 1.0), torch: "torch.clamp",
                reads: Input, work: [1, 1], ulps: 0.5, tried: [(-0.700_123, 1.100_321) in (-2.0, 2.0)]
            }
        }
    };
}

/// Calls the macro `$then` with the names of the functions that products and convolutions can apply to their results:
/// functions of the table without parameters.
#[macro_export]
macro_rules! fused_functions {
    ($then:ident) => {
        $then! { Relu, Gelu, GeluTanh, Silu, Sigmoid, Tanh, Hardswish }
    };
}

/// The value that the gradient of a function is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradReads {
    /// Neither input nor output: the slope is constant.
    Neither,
    /// The input.
    Input,
    /// The output, so that the input need not be kept.
    Output,
}

/// A row of the table; see [`unary_functions`](crate::unary_functions).
#[derive(Debug)]
pub struct UnaryFunction {
    /// The name of the tensor's method.
    pub name: &'static str,
    /// The name of PyTorch's function.
    pub torch: &'static str,
    /// The names of the parameters with their defaults, at most two.
    pub parameters: &'static [(&'static str, f64)],
    /// The value that the gradient is computed from.
    pub reads: GradReads,
    /// The time of the value and of the slope, in multiplications.
    pub work: [usize; 2],
    /// The bound of the error of a value in f32, in units in the last place.
    pub ulps: f64,
    /// The parameters and intervals of x for tests: `(a, b, low, high)`.
    pub tried: &'static [(f64, f64, f64, f64)],
}

macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident {
            $kind:ident $method:ident($($parameter:ident = $default:expr),*), torch: $torch:literal, $(layer: $layer:literal,)?
            reads: $reads:ident, work: [$value:literal, $slope:literal], ulps: $ulps:literal,
            tried: [$(($a:expr, $b:expr) in ($low:expr, $high:expr)),+]
        }
    )*) => {
        crate::ops::coded! {
            /// An elementwise function of one tensor: the rows of [`unary_functions`](crate::unary_functions).
            Unary {
                $($(#[$doc])* $variant),*
            }
        }

        impl Unary {
            /// The function's row of the table.
            pub const fn function(self) -> &'static UnaryFunction {
                match self {
                    $(Unary::$variant => &UnaryFunction {
                        name: stringify!($method),
                        torch: $torch,
                        parameters: &[$((stringify!($parameter), $default)),*],
                        reads: GradReads::$reads,
                        work: [$value, $slope],
                        ulps: $ulps,
                        tried: &[$(($a, $b, $low, $high)),+],
                    }),*
                }
            }
        }
    };
}
unary_functions!(declare);

macro_rules! fused {
    ($($variant:ident),*) => {
        crate::ops::coded! {
            /// A function that a product or convolution applies to its result (its epilogue).
            Activation {
                /// The identity.
                None,
                $(#[doc = concat!("[`Unary::", stringify!($variant), "`].")] $variant),*
            }
        }

        impl Activation {
            /// The elementwise function; `None` for the identity.
            pub const fn function(self) -> Option<Unary> {
                match self {
                    Activation::None => None,
                    $(Activation::$variant => Some(Unary::$variant)),*
                }
            }

            /// The activation of this function, if there is one.
            pub const fn of(f: Unary) -> Option<Self> {
                match f {
                    $(Unary::$variant => Some(Activation::$variant),)*
                    _ => None,
                }
            }

            /// True if the gradient is computed from the function's input.
            pub const fn reads_input(self) -> bool {
                match self.function() {
                    Some(f) => matches!(f.function().reads, GradReads::Input),
                    None => false,
                }
            }
        }
    };
}
fused_functions!(fused);
