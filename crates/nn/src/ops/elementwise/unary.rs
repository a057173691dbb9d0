//! Functions of one tensor. The gradient is one fused kernel, or a differentiable expression when gradients of
//! gradients are recorded.

use crate::autograd::{Cast, Recompute, Rule, RuleContext, Slope, is_grad_enabled};
use crate::{Backend, Error, Result, Tensor};
use kiln_core::ops::{Activation, GradReads, Op, Unary, UnaryParams};
use kiln_core::unary_functions;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10, PI};

/// The cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
const GELU_CUBE: f64 = 0.044_715;

/// λ and α of SELU (Klambauer et al. 2017).
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;

/// The rule of a [`Unary`] function. It keeps the input only if the derivative is not a function of the output.
struct UnaryRule<B: Backend> {
    f: Unary,
    a: f64,
    b: f64,
    x: Option<Tensor<B>>,
}

fn reads_output(f: Unary) -> bool {
    f.function().reads == GradReads::Output
}

fn reads_input(f: Unary) -> bool {
    f.function().reads == GradReads::Input
}

/// True for functions that leave the range of halves soon, or are steep: mixed precision computes them in f32.
fn wants_f32(f: Unary) -> bool {
    use Unary::*;
    matches!(
        f,
        Exp | Expm1
            | Log
            | Log2
            | Log10
            | Log1p
            | Rsqrt
            | Square
            | Reciprocal
            | Powf
            | Tan
            | Asin
            | Acos
            | Sinh
            | Cosh
            | Softplus
    )
}

impl<B: Backend> Rule<B> for UnaryRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if cx.slope_applied() {
            return Ok(vec![Some(cx.grad.clone())]);
        }
        let y = reads_output(self.f).then(|| cx.output());
        // The kernel takes both x and y. One that the derivative does not read is replaced by the other, or by the gradient.
        let x = self.x.as_ref().or(y).unwrap_or(cx.grad);
        let y = y.unwrap_or(x);
        let dx = if is_grad_enabled() || !cx.grad.has_op(Op::UnaryGrad) {
            self.composed(x, y, cx.grad)?
        } else {
            let g = cx.grad;
            let p = UnaryParams::new(self.f, g.size(), self.a, self.b);
            let mut dx = g.alloc_like(*g.shape())?;
            g.backend()
                .unary_grad(&p, x.buffer(), y.buffer(), g.buffer(), &mut dx)?;
            Tensor::from_buffer(g.backend(), dx, *g.shape())
        };
        Ok(vec![Some(dx)])
    }

    fn saves_output(&self) -> bool {
        reads_output(self.f)
    }

    fn activation(&self) -> Option<Slope<B>> {
        let f = Activation::of(self.f)?;
        let input = self.x.clone();
        Some(Slope { f, input })
    }

    fn recompute(&self) -> Option<Recompute<'_, B>> {
        let x = self.x.as_ref()?;
        Some(Box::new(|_| x.unary(self.f.function().name, self.f, &[self.a, self.b])))
    }
}

impl<B: Backend> UnaryRule<B> {
    /// g·f′(x) in differentiable ops.
    fn composed(&self, x: &Tensor<B>, y: &Tensor<B>, g: &Tensor<B>) -> Result<Tensor<B>> {
        composed(self.f, [self.a, self.b], [x, y, g])
    }
}

/// The derivative of `f` times `g` in differentiable ops, where y = f(x).
pub(in crate::ops) fn composed<B: Backend>(
    f: Unary,
    [a, b]: [f64; 2],
    [x, y, g]: [&Tensor<B>; 3],
) -> Result<Tensor<B>> {
    match f {
        Unary::Affine => g.mul_scalar(a),
        Unary::Neg => g.neg(),
        Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => g.zeros_like(),
        Unary::Abs => g.mul(&x.detach().sign()?),
        Unary::Exp => g.mul(y),
        Unary::Exp2 => g.mul(y)?.mul_scalar(LN_2),
        Unary::Expm1 => g.mul(&y.add_scalar(1.0)?),
        Unary::Log => g.div(x),
        Unary::Log2 => g.div(x)?.mul_scalar(1.0 / LN_2),
        Unary::Log10 => g.div(x)?.mul_scalar(1.0 / LN_10),
        Unary::Log1p => g.div(&x.add_scalar(1.0)?),
        Unary::Sqrt => g.div(y)?.mul_scalar(0.5),
        Unary::Rsqrt => g.mul(&y.square()?.mul(y)?)?.mul_scalar(-0.5),
        Unary::Square => g.mul(x)?.mul_scalar(2.0),
        Unary::Reciprocal => g.mul(&y.square()?)?.neg(),
        Unary::Powf if a == 0.0 => g.zeros_like(),
        Unary::Powf => g.mul(&x.powf(a - 1.0)?)?.mul_scalar(a),
        Unary::Sin => g.mul(&x.cos()?),
        Unary::Cos => g.mul(&x.sin()?)?.neg(),
        Unary::Tan => g.mul(&y.square()?.add_scalar(1.0)?),
        Unary::Asin => g.mul(&squared_rest(x)?.rsqrt()?),
        Unary::Acos => g.mul(&squared_rest(x)?.rsqrt()?)?.neg(),
        Unary::Atan => g.div(&x.square()?.add_scalar(1.0)?),
        Unary::Sinh => g.mul(&x.cosh()?),
        Unary::Cosh => g.mul(&x.sinh()?),
        Unary::Tanh => g.mul(&y.square()?.rsub_scalar(1.0)?),
        Unary::Asinh => g.mul(&x.square()?.add_scalar(1.0)?.rsqrt()?),
        // By the factors of x² − 1, which neither overflow nor lose the difference near 1.
        Unary::Acosh => g.mul(&x.sub_scalar(1.0)?.rsqrt()?.mul(&x.add_scalar(1.0)?.rsqrt()?)?),
        Unary::Atanh => g.div(&squared_rest(x)?),
        Unary::Erf => g.mul(&x.square()?.neg()?.exp()?)?.mul_scalar(FRAC_2_SQRT_PI),
        Unary::Erfc => g.mul(&x.square()?.neg()?.exp()?)?.mul_scalar(-FRAC_2_SQRT_PI),
        Unary::Sigmoid => g.mul(&y.rsub_scalar(1.0)?)?.mul(y),
        Unary::LogSigmoid => g.mul(&x.neg()?.sigmoid()?),
        Unary::Relu => g.masked_fill(&y.le_scalar(0.0)?, 0.0),
        Unary::LeakyRelu => Tensor::where_(&x.gt_scalar(0.0)?, g, &g.mul_scalar(a)?),
        Unary::Elu => below_zero(x, [g, &g.mul_scalar(a)?], 1.0),
        Unary::Selu => below_zero(
            x,
            [&g.mul_scalar(SELU_SCALE)?, &g.mul_scalar(SELU_SCALE * SELU_ALPHA)?],
            1.0,
        ),
        Unary::Celu => below_zero(x, [g, g], a),
        Unary::Gelu => {
            let cdf = x.mul_scalar(-FRAC_1_SQRT_2)?.erfc()?.mul_scalar(0.5)?;
            let pdf = x
                .square()?
                .mul_scalar(-0.5)?
                .exp()?
                .mul_scalar(1.0 / (2.0 * PI).sqrt())?;
            g.mul(&cdf.add(&x.mul(&pdf)?)?)
        }
        Unary::GeluTanh => {
            let scale = 2.0 * (2.0 / PI).sqrt();
            let square = x.square()?;
            let gate = square.affine(GELU_CUBE * scale, scale)?.mul(x)?.sigmoid()?;
            let slope = square.affine(3.0 * GELU_CUBE * scale, scale)?;
            gated(g, x, &gate, &slope.mul(x)?)
        }
        Unary::Silu => gated(g, x, &x.sigmoid()?, x),
        // t + x·(1 − t²)·sigmoid(x) for t = tanh(softplus(x)).
        Unary::Mish => {
            let t = x.softplus(1.0, 20.0)?.tanh()?;
            let bend = t.square()?.rsub_scalar(1.0)?.mul(&x.sigmoid()?)?.mul(x)?;
            g.mul(&t.add(&bend)?)
        }
        Unary::Softplus => {
            let below = g.mul(&x.mul_scalar(a)?.sigmoid()?)?;
            Tensor::where_(&x.mul_scalar(a)?.gt_scalar(b)?, g, &below)
        }
        Unary::Softsign => g.div(&x.abs()?.add_scalar(1.0)?.square()?),
        Unary::Hardsigmoid => between(x, &g.mul_scalar(1.0 / 6.0)?, -3.0, 3.0),
        Unary::Hardswish => {
            let inside = g.mul(&x.affine(1.0 / 3.0, 0.5)?)?;
            let rising = Tensor::where_(&x.lt_scalar(3.0)?, &inside, g)?;
            rising.masked_fill(&x.le_scalar(-3.0)?, 0.0)
        }
        Unary::Hardshrink | Unary::Softshrink => {
            let outside = g.masked_fill(&x.abs()?.le_scalar(a)?, 0.0)?;
            Ok(outside)
        }
        Unary::Clamp => between(x, g, a, b),
    }
}

/// 1 − x² with the value of (1 − x)(1 + x), as near ±1 the square has lost the difference, and the gradient −2x, as the factors'
/// product rule has 0·∞ where what follows is infinite.
fn squared_rest<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    let (rest, fixed) = (x.square()?.rsub_scalar(1.0)?, x.detach());
    let exact = fixed.rsub_scalar(1.0)?.mul(&fixed.add_scalar(1.0)?)?;
    rest.add(&exact.sub(&rest.detach())?)
}

/// `above` where x > 0, elsewhere `below`·e^(x/a). The exponential is taken of min(x, 0): for large x it would overflow, and
/// 0·∞ would make its gradient NaN.
fn below_zero<B: Backend>(x: &Tensor<B>, [above, below]: [&Tensor<B>; 2], a: f64) -> Result<Tensor<B>> {
    let below = below.mul(&x.clamp_max(0.0)?.mul_scalar(1.0 / a)?.exp()?)?;
    Tensor::where_(&x.le_scalar(0.0)?, &below, above)
}

/// `g` where `low` < x < `high`, else 0; for NaN, which fails every comparison, 0 as in the kernel. An infinite bound is no
/// bound: an x equal to it gets `g`.
fn between<B: Backend>(x: &Tensor<B>, g: &Tensor<B>, low: f64, high: f64) -> Result<Tensor<B>> {
    let zero = g.zeros_like()?;
    let above = match low {
        f64::NEG_INFINITY => x.ge_scalar(low)?,
        _ => x.gt_scalar(low)?,
    };
    let below = match high {
        f64::INFINITY => x.le_scalar(high)?,
        _ => x.lt_scalar(high)?,
    };
    Tensor::where_(&below, &Tensor::where_(&above, g, &zero)?, &zero)
}

/// g·(s + s·(1 − s)·t): the gradient of x·sigmoid(u(x)), where `s` is the gate and t = x·u′(x).
fn gated<B: Backend>(g: &Tensor<B>, x: &Tensor<B>, s: &Tensor<B>, t: &Tensor<B>) -> Result<Tensor<B>> {
    debug_assert_eq!(x.shape(), s.shape());
    let bend = s.mul(&s.rsub_scalar(1.0)?)?.mul(t)?;
    g.mul(&s.add(&bend)?)
}

fn not_nan(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    if value.is_nan() {
        return Err(Error::invalid(op, argument, value, "a number"));
    }
    Ok(())
}

/// Makes a method for each function of the table in `kiln-core`; those marked `custom` are written out below.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident {
        $kind:ident $method:ident($($parameter:ident = $default:expr),*), torch: $torch:literal, $($rest:tt)*
    })*) => {
        impl<B: Backend> Tensor<B> {
            $(methods!(@$kind $(#[$doc])* $name $method($($parameter = $default),*) $torch [$($rest)*]);)*
        }
    };
    (@custom $($row:tt)*) => {};
    // Functions that PyTorch has a layer of have its defaults.
    (@given [layer: $($rest:tt)*] $($parameter:ident = $default:expr),*) => {
        concat!($(" (there `", stringify!($parameter), "` is ", $default, " unless given)",)* "")
    };
    (@given $($rest:tt)*) => { "" };
    (@list) => { "" };
    (@list $first:expr $(, $more:expr)*) => { concat!($first $(, ", ", $more)*) };
    (@function $(#[$doc:meta])* $name:ident $method:ident($($parameter:ident = $default:expr),*) $torch:literal $rest:tt) => {
        $(#[$doc])*
        #[doc = concat!("\n`", $torch, "`", methods!(@given $rest $($parameter = $default),*), ".")]
        ///
        /// ```
        /// # use kiln_nn::Tensor;
        /// # let cpu = kiln_cpu::Cpu::new();
        /// let x = Tensor::from_slice(&cpu, &[0.25f32, 0.5], &[2])?.requires_grad();
        #[doc = concat!("let y = x.", stringify!($method), "(", methods!(@list $($default),*), ")?;")]
        /// assert_eq!(y.shape(), x.shape());
        /// assert!(y.sum(&[], false)?.backward()?.get(&x).is_some());
        /// # Ok::<(), kiln_nn::Error>(())
        /// ```
        ///
        #[doc = concat!("# Errors\n[`Error::OutOfMemory`]", $("; NaN for `", stringify!($parameter), "`",)* ".")]
        pub fn $method(&self $(, $parameter: f64)*) -> Result<Tensor<B>> {
            const OP: &str = stringify!($method);
            $(not_nan(OP, stringify!($parameter), $parameter)?;)*
            self.unary(OP, Unary::$name, &[$($parameter),*])
        }
    };
}
unary_functions!(methods);

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `f` of every element, with up to two parameters.
    pub(in crate::ops) fn unary(&self, op: &'static str, f: Unary, parameters: &[f64]) -> Result<Tensor<B>> {
        if wants_f32(f)
            && let Some(cast) = Cast::high()
        {
            return cast.of(self)?.unary(op, f, parameters);
        }
        let [a, b] = [0, 1].map(|i| parameters.get(i).copied().unwrap_or(0.0));
        let p = UnaryParams::new(f, self.size(), a, b);
        let mut y = self.alloc_like(*self.shape())?;
        self.backend().unary(&p, self.buffer(), &mut y)?;
        Ok(self.unary_from(op, f, [a, b], y))
    }

    /// `f` of every element, which another op has computed into `y`.
    pub(in crate::ops) fn unary_from(&self, op: &'static str, f: Unary, [a, b]: [f64; 2], y: B::Buffer) -> Tensor<B> {
        Tensor::from_buffer(self.backend(), y, *self.shape()).record(op, &[self], || UnaryRule {
            f,
            a,
            b,
            x: reads_input(f).then(|| self.clone()),
        })
    }

    /// x + c (`torch.add`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.add_scalar(0.5)?.to_vec::<f32>()?, [1.5, 2.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn add_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("add_scalar", Unary::Affine, &[1.0, c])
    }

    /// x − c (`torch.sub`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.sub_scalar(0.5)?.to_vec::<f32>()?, [0.5, 1.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn sub_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("sub_scalar", Unary::Affine, &[1.0, -c])
    }

    /// c − x (`torch.rsub`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.rsub_scalar(1.0)?.to_vec::<f32>()?, [0.0, -1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn rsub_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("rsub_scalar", Unary::Affine, &[-1.0, c])
    }

    /// c·x (`torch.mul`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.mul_scalar(3.0)?.to_vec::<f32>()?, [3.0, 6.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn mul_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("mul_scalar", Unary::Affine, &[c, 0.0])
    }

    /// x/c, computed as x·(1/c) (`torch.div`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.div_scalar(4.0)?.to_vec::<f32>()?, [0.25, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn div_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("div_scalar", Unary::Affine, &[1.0 / c, 0.0])
    }

    /// c/x.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.rdiv_scalar(4.0)?.to_vec::<f32>()?, [4.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn rdiv_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.reciprocal()?.mul_scalar(c)
    }

    /// xᵃ for a constant exponent a (`torch.pow`): for ½ and −½ the square root and its reciprocal, else IEEE 754's
    /// `pow`. NaN where x < 0 and the exponent is not an integer, except for x = −∞ with an exponent other than ±½: ∞
    /// for a positive and 0 for a negative exponent.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[4f32, 9.0], &[2])?;
    /// assert_eq!(x.powf(0.5)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An exponent that is NaN.
    pub fn powf(&self, exponent: f64) -> Result<Tensor<B>> {
        const OP: &str = "powf";
        not_nan(OP, "exponent", exponent)?;
        match exponent {
            0.5 => self.unary(OP, Unary::Sqrt, &[0.0, 0.0]),
            -0.5 => self.unary(OP, Unary::Rsqrt, &[0.0, 0.0]),
            _ => self.unary(OP, Unary::Powf, &[exponent, 0.0]),
        }
    }

    /// x for x > 0, else `alpha`·(e^(x/`alpha`) − 1) (`torch.nn.functional.celu`; Barron 2017).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[2f32, -100.0], &[2])?;
    /// assert_eq!(x.celu(0.5)?.to_vec::<f32>()?, [2.0, -0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An `alpha` that is 0 or NaN.
    pub fn celu(&self, alpha: f64) -> Result<Tensor<B>> {
        if alpha == 0.0 || alpha.is_nan() {
            return Err(Error::invalid("celu", "alpha", alpha, "a number other than 0"));
        }
        self.unary("celu", Unary::Celu, &[alpha])
    }

    /// ln(1 + e^(`beta`·x))/`beta`, and x itself where `beta`·x > `threshold` (`torch.nn.functional.softplus`, whose
    /// defaults are 1 and 20).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[0f64, 30.0], &[2])?;
    /// let y = x.softplus(1.0, 20.0)?.to_vec::<f64>()?;
    /// assert!((y[0] - 2f64.ln()).abs() < 1e-9 && y[1] == 30.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A `beta` that is 0 or not finite, a `threshold` that is NaN.
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor<B>> {
        if beta == 0.0 || !beta.is_finite() {
            return Err(Error::invalid("softplus", "beta", beta, "a finite number other than 0"));
        }
        not_nan("softplus", "threshold", threshold)?;
        self.unary("softplus", Unary::Softplus, &[beta, threshold])
    }

    /// max(x, `min`), as [`Tensor::clamp`].
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[-1f32, 2.0], &[2])?;
    /// assert_eq!(x.clamp_min(0.0)?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A bound that is NaN.
    pub fn clamp_min(&self, min: f64) -> Result<Tensor<B>> {
        self.clamp(min, f64::INFINITY)
    }

    /// min(x, `max`), as [`Tensor::clamp`].
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[-1f32, 2.0], &[2])?;
    /// assert_eq!(x.clamp_max(0.0)?.to_vec::<f32>()?, [-1.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A bound that is NaN.
    pub fn clamp_max(&self, max: f64) -> Result<Tensor<B>> {
        self.clamp(f64::NEG_INFINITY, max)
    }
}
