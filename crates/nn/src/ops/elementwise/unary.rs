//! Functions of one tensor. The gradient is one fused kernel, or a differentiable expression when gradients of
//! gradients are recorded.

use crate::autograd::{Rule, RuleContext, is_grad_enabled};
use crate::{Backend, Error, Result, Tensor};
use kiln_core::ops::{Unary, UnaryParams};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

/// The cubic coefficient of the tanh form of GELU (Hendrycks & Gimpel 2016).
const GELU_CUBE: f64 = 0.044_715;

/// The gradient of a [`Unary`] function. It keeps the input only where the derivative is not a function of the output.
struct UnaryRule<B: Backend> {
    f: Unary,
    a: f64,
    b: f64,
    x: Option<Tensor<B>>,
}

fn reads_output(f: Unary) -> bool {
    use Unary::*;
    matches!(f, Exp | Sqrt | Rsqrt | Reciprocal | Tanh | Sigmoid | Relu)
}

fn reads_input(f: Unary) -> bool {
    use Unary::*;
    !(reads_output(f) || matches!(f, Affine | Neg | Sign))
}

impl<B: Backend> Rule<B> for UnaryRule<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if self.f == Unary::Relu && cx.rectified() {
            return Ok(vec![Some(cx.grad.clone())]);
        }
        let y = reads_output(self.f).then(|| cx.output());
        // Where the derivative reads only one of the two, the other stands in for it; where none, the gradient does.
        let x = self.x.as_ref().or(y).unwrap_or(cx.grad);
        let y = y.unwrap_or(x);
        let dx = if is_grad_enabled() {
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

    fn rectifies(&self) -> bool {
        self.f == Unary::Relu
    }
}

impl<B: Backend> UnaryRule<B> {
    /// g·f′(x) in differentiable ops.
    fn composed(&self, x: &Tensor<B>, y: &Tensor<B>, g: &Tensor<B>) -> Result<Tensor<B>> {
        let (a, b) = (self.a, self.b);
        match self.f {
            Unary::Affine => g.mul_scalar(a),
            Unary::Neg => g.neg(),
            Unary::Sign => g.zeros_like(),
            Unary::Abs => g.mul(&x.detach().sign()?),
            Unary::Exp => g.mul(y),
            Unary::Log => g.div(x),
            Unary::Sqrt => g.div(y)?.mul_scalar(0.5),
            Unary::Rsqrt => g.mul(&y.square()?.mul(y)?)?.mul_scalar(-0.5),
            Unary::Square => g.mul(x)?.mul_scalar(2.0),
            Unary::Reciprocal => g.mul(&y.square()?)?.neg(),
            Unary::Sin => g.mul(&x.cos()?),
            Unary::Cos => g.mul(&x.sin()?)?.neg(),
            Unary::Tanh => g.mul(&y.square()?.rsub_scalar(1.0)?),
            Unary::Sigmoid => g.mul(&y.rsub_scalar(1.0)?)?.mul(y),
            Unary::Relu => g.masked_fill(&y.le_scalar(0.0)?, 0.0),
            Unary::LeakyRelu => Tensor::where_(&x.gt_scalar(0.0)?, g, &g.mul_scalar(a)?),
            // The exponential is taken where x ≤ 0 only: elsewhere it could overflow and 0·∞ spoil its gradient.
            Unary::Elu => {
                let below = g.mul(&x.clamp_max(0.0)?.exp()?)?.mul_scalar(a)?;
                Tensor::where_(&x.le_scalar(0.0)?, &below, g)
            }
            Unary::Gelu => {
                let cdf = x.mul_scalar(FRAC_1_SQRT_2)?.erf()?.affine(0.5, 0.5)?;
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
            Unary::Softplus => {
                let below = g.mul(&x.mul_scalar(a)?.sigmoid()?)?;
                Tensor::where_(&x.mul_scalar(a)?.gt_scalar(b)?, g, &below)
            }
            // A NaN fails every comparison and gets no gradient, as in the kernel. An infinite bound is none: what
            // reaches it has its gradient.
            Unary::Clamp => {
                let zero = g.zeros_like()?;
                let above = match a {
                    f64::NEG_INFINITY => x.ge_scalar(a)?,
                    _ => x.gt_scalar(a)?,
                };
                let below = match b {
                    f64::INFINITY => x.le_scalar(b)?,
                    _ => x.lt_scalar(b)?,
                };
                Tensor::where_(&below, &Tensor::where_(&above, g, &zero)?, &zero)
            }
            Unary::Powf if a == 0.0 => g.zeros_like(),
            Unary::Powf => g.mul(&x.powf(a - 1.0)?)?.mul_scalar(a),
            Unary::Erf => g.mul(&x.square()?.neg()?.exp()?)?.mul_scalar(FRAC_2_SQRT_PI),
        }
    }
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

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// Memory.
            pub fn $name(&self) -> Result<Tensor<B>> {
                self.unary(stringify!($name), Unary::$f, 0.0, 0.0)
            }
        )*}
    };
}

functions! {
    /// −x (`torch.neg`).
    neg => Neg;
    /// |x| (`torch.abs`), with gradient 0 at 0.
    abs => Abs;
    /// eˣ (`torch.exp`).
    exp => Exp;
    /// ln x (`torch.log`).
    log => Log;
    /// √x (`torch.sqrt`).
    sqrt => Sqrt;
    /// 1/√x (`torch.rsqrt`).
    rsqrt => Rsqrt;
    /// x² (`torch.square`).
    square => Square;
    /// 1/x (`torch.reciprocal`).
    reciprocal => Reciprocal;
    /// sin x (`torch.sin`).
    sin => Sin;
    /// cos x (`torch.cos`).
    cos => Cos;
    /// tanh x (`torch.tanh`).
    tanh => Tanh;
    /// 1/(1 + e⁻ˣ) (`torch.sigmoid`).
    sigmoid => Sigmoid;
    /// max(x, 0) (`torch.relu`), with gradient 0 at 0.
    relu => Relu;
    /// x·Φ(x) with the error function (`torch.nn.functional.gelu`; Hendrycks & Gimpel 2016).
    gelu => Gelu;
    /// The tanh form of GELU (`gelu` with `approximate="tanh"`).
    gelu_tanh => GeluTanh;
    /// x·sigmoid(x) (`torch.nn.functional.silu`).
    silu => Silu;
    /// The error function (`torch.erf`).
    erf => Erf;
    /// −1, 0 or 1 (`torch.sign`; 0 for NaN), with gradient 0.
    sign => Sign;
}

impl<B: Backend> Tensor<B> {
    fn unary(&self, op: &'static str, f: Unary, a: f64, b: f64) -> Result<Tensor<B>> {
        let p = UnaryParams::new(f, self.size(), a, b);
        let mut y = self.alloc_like(*self.shape())?;
        self.backend().unary(&p, self.buffer(), &mut y)?;
        Ok(
            Tensor::from_buffer(self.backend(), y, *self.shape()).record(op, &[self], || UnaryRule {
                f,
                a,
                b,
                x: reads_input(f).then(|| self.clone()),
            }),
        )
    }

    /// a·x + b.
    ///
    /// # Errors
    /// Memory.
    pub fn affine(&self, a: f64, b: f64) -> Result<Tensor<B>> {
        self.unary("affine", Unary::Affine, a, b)
    }

    /// x + c.
    ///
    /// # Errors
    /// Memory.
    pub fn add_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("add_scalar", Unary::Affine, 1.0, c)
    }

    /// x − c.
    ///
    /// # Errors
    /// Memory.
    pub fn sub_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("sub_scalar", Unary::Affine, 1.0, -c)
    }

    /// c − x (`torch.rsub`).
    ///
    /// # Errors
    /// Memory.
    pub fn rsub_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("rsub_scalar", Unary::Affine, -1.0, c)
    }

    /// c·x.
    ///
    /// # Errors
    /// Memory.
    pub fn mul_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("mul_scalar", Unary::Affine, c, 0.0)
    }

    /// x/c, computed as x·(1/c).
    ///
    /// # Errors
    /// Memory.
    pub fn div_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.unary("div_scalar", Unary::Affine, 1.0 / c, 0.0)
    }

    /// c/x.
    ///
    /// # Errors
    /// Memory.
    pub fn rdiv_scalar(&self, c: f64) -> Result<Tensor<B>> {
        self.reciprocal()?.mul_scalar(c)
    }

    /// xᵃ for a constant exponent (`torch.pow`): for ½ and −½ the square root and its reciprocal, else IEEE 754's
    /// `pow`. NaN where x < 0 and the exponent is not an integer, but for x = −∞ with other exponents than those two: ∞
    /// for a positive and 0 for a negative one.
    ///
    /// # Errors
    /// An exponent that is NaN.
    pub fn powf(&self, exponent: f64) -> Result<Tensor<B>> {
        const OP: &str = "powf";
        not_nan(OP, "exponent", exponent)?;
        match exponent {
            0.5 => self.unary(OP, Unary::Sqrt, 0.0, 0.0),
            -0.5 => self.unary(OP, Unary::Rsqrt, 0.0, 0.0),
            _ => self.unary(OP, Unary::Powf, exponent, 0.0),
        }
    }

    /// x for x > 0, else `negative_slope`·x (`torch.nn.functional.leaky_relu`).
    ///
    /// # Errors
    /// A slope that is NaN.
    pub fn leaky_relu(&self, negative_slope: f64) -> Result<Tensor<B>> {
        not_nan("leaky_relu", "negative_slope", negative_slope)?;
        self.unary("leaky_relu", Unary::LeakyRelu, negative_slope, 0.0)
    }

    /// x for x > 0, else `alpha`·(eˣ − 1) (`torch.nn.functional.elu`; Clevert et al. 2015).
    ///
    /// # Errors
    /// An `alpha` that is NaN.
    pub fn elu(&self, alpha: f64) -> Result<Tensor<B>> {
        not_nan("elu", "alpha", alpha)?;
        self.unary("elu", Unary::Elu, alpha, 0.0)
    }

    /// ln(1 + e^(`beta`·x))/`beta`, and x itself where `beta`·x > `threshold` (`torch.nn.functional.softplus`, whose
    /// defaults are 1 and 20).
    ///
    /// # Errors
    /// A `beta` that is 0 or not finite, a `threshold` that is NaN.
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor<B>> {
        if beta == 0.0 || !beta.is_finite() {
            return Err(Error::invalid("softplus", "beta", beta, "a finite number other than 0"));
        }
        not_nan("softplus", "threshold", threshold)?;
        self.unary("softplus", Unary::Softplus, beta, threshold)
    }

    /// min(max(x, `min`), `max`) (`torch.clamp`), with gradient 1 between the bounds and 0 on them; NaN stays NaN, with
    /// gradient 0. An infinite bound is none: an infinite x that it lets pass has gradient 1.
    ///
    /// # Errors
    /// A bound that is NaN.
    pub fn clamp(&self, min: f64, max: f64) -> Result<Tensor<B>> {
        not_nan("clamp", "min", min)?;
        not_nan("clamp", "max", max)?;
        self.unary("clamp", Unary::Clamp, min, max)
    }

    /// max(x, `min`), as [`Tensor::clamp`].
    ///
    /// # Errors
    /// A bound that is NaN.
    pub fn clamp_min(&self, min: f64) -> Result<Tensor<B>> {
        self.clamp(min, f64::INFINITY)
    }

    /// min(x, `max`), as [`Tensor::clamp`].
    ///
    /// # Errors
    /// A bound that is NaN.
    pub fn clamp_max(&self, max: f64) -> Result<Tensor<B>> {
        self.clamp(f64::NEG_INFINITY, max)
    }
}
