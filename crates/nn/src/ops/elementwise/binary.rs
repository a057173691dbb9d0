//! Functions of two tensors with NumPy broadcasting. The gradient of a broadcast operand is summed back to its shape.

use crate::autograd::{Cast, Rule, RuleContext};
use crate::ops::reduce::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{Binary, BroadcastParams};

fn binary<B: Backend>(op: &'static str, f: Binary, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    same_dtype(op, a, b)?;
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut y = a.alloc_like(shape)?;
    a.backend().binary(&p, a.buffer(), b.buffer(), &mut y)?;
    Ok(Tensor::from_buffer(a.backend(), y, shape))
}

/// The result of the function of each operand whose gradient is wanted, summed to the operand's shape.
pub(super) fn each<B: Backend>(
    cx: &RuleContext<'_, B>,
    shapes: [&Shape; 2],
    f: [&dyn Fn() -> Result<Tensor<B>>; 2],
) -> Result<Vec<Option<Tensor<B>>>> {
    (0..2)
        .map(|i| match cx.needs(i) {
            true => Ok(Some(f[i]()?.sum_to_size(shapes[i])?)),
            false => Ok(None),
        })
        .collect()
}

struct Sum {
    a: Shape,
    b: Shape,
    minus: bool,
}

impl<B: Backend> Rule<B> for Sum {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let b = || if self.minus { cx.grad.neg() } else { Ok(cx.grad.clone()) };
        each(cx, [&self.a, &self.b], [&|| Ok(cx.grad.clone()), &b])
    }
}

/// An operand that a gradient reads: its values if that gradient will be wanted, otherwise its shape alone.
struct Kept<B: Backend> {
    shape: Shape,
    value: Option<Tensor<B>>,
}

impl<B: Backend> Kept<B> {
    fn new(x: &Tensor<B>, wanted: bool) -> Self {
        Kept {
            shape: *x.shape(),
            value: wanted.then(|| x.clone()),
        }
    }

    fn get(&self) -> &Tensor<B> {
        match &self.value {
            Some(x) => x,
            None => unreachable!("an operand is kept for every gradient that reads it"),
        }
    }
}

/// The operands of a product, a quotient or a power, as far as their gradients read them.
struct Pair<B: Backend> {
    f: Binary,
    a: Kept<B>,
    b: Kept<B>,
}

impl<B: Backend> Pair<B> {
    fn new(f: Binary, a: &Tensor<B>, b: &Tensor<B>) -> Self {
        let both = !matches!(f, Binary::Mul | Binary::Div);
        Pair {
            f,
            a: Kept::new(a, both || b.is_tracked()),
            b: Kept::new(b, both || f == Binary::Div || a.is_tracked()),
        }
    }
}

impl<B: Backend> Rule<B> for Pair<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (g, a, b) = (cx.grad, || self.a.get(), || self.b.get());
        let shapes = [&self.a.shape, &self.b.shape];
        match self.f {
            Binary::Mul => each(cx, shapes, [&|| g.mul(b()), &|| g.mul(a())]),
            Binary::Div => each(cx, shapes, [&|| g.div(b()), &|| g.div(b())?.mul(&a().div(b())?)?.neg()]),
            Binary::Pow => each(
                cx,
                shapes,
                [&|| base(g, a(), b()), &|| exponent(g, cx.output(), a(), b())],
            ),
            Binary::Atan2 => {
                // b·g and −a·g over a² + b².
                let share = || g.div(&a().square()?.add(&b().square()?)?);
                each(cx, shapes, [&|| share()?.mul(b()), &|| share()?.mul(a())?.neg()])
            }
            // The integer part of the quotient is piecewise constant.
            Binary::Remainder => each(
                cx,
                shapes,
                [&|| Ok(g.clone()), &|| {
                    // In a half the quotient could be rounded to the next integer.
                    let [a, b] = [a(), b()].map(|t| t.detach().to_dtype(acc_dtype(t.dtype())));
                    g.mul(&a?.div(&b?)?.floor()?.to_dtype(g.dtype())?)?.neg()
                }],
            ),
            f => {
                // Equal operands share the gradient; if one is NaN, for which every comparison is false, both get all of it.
                let shared = || Tensor::where_(&a().eq(b())?, &g.mul_scalar(0.5)?, g);
                let (a_loses, b_loses) = match f {
                    Binary::Maximum => (a().lt(b())?, a().gt(b())?),
                    _ => (a().gt(b())?, a().lt(b())?),
                };
                let (a, b) = (
                    || shared()?.masked_fill(&a_loses, 0.0),
                    || shared()?.masked_fill(&b_loses, 0.0),
                );
                each(cx, shapes, [&a, &b])
            }
        }
    }

    fn saves_output(&self) -> bool {
        self.f == Binary::Pow
    }
}

/// g·b·aᵇ⁻¹, 0 where b = 0 (`pow_backward_self` of PyTorch).
fn base<B: Backend>(g: &Tensor<B>, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    g.mul(&b.mul(&a.pow(&b.sub_scalar(1.0)?)?)?)?
        .masked_fill(&b.eq_scalar(0.0)?, 0.0)
}

/// g·aᵇ·ln a, 0 where a = 0 and b ≥ 0 (`pow_backward_exponent` of PyTorch).
fn exponent<B: Backend>(g: &Tensor<B>, y: &Tensor<B>, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let flat = a.detach().masked_fill(&b.lt_scalar(0.0)?, 1.0)?.eq_scalar(0.0)?;
    g.mul(&y.mul(&a.masked_fill(&flat, 1.0)?.log()?)?)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    fn pair(&self, op: &'static str, f: Binary, other: &Tensor<B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::widest(&[self, other]) {
            return cast.of(self)?.pair(op, f, &*cast.of(other)?);
        }
        Ok(binary(op, f, self, other)?.record(op, &[self, other], || Pair::new(f, self, other)))
    }

    fn sum_rule(&self, other: &Tensor<B>, minus: bool) -> Sum {
        Sum {
            a: *self.shape(),
            b: *other.shape(),
            minus,
        }
    }

    /// `self + other`, element by element, with broadcasting (`torch.add`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let row = Tensor::from_slice(&cpu, &[10f32, 20.0], &[2])?;
    /// assert_eq!(x.add(&row)?.to_vec::<f32>()?, [11.0, 22.0, 13.0, 24.0]);
    /// assert_eq!((&x + &row)?.to_vec::<f32>()?, [11.0, 22.0, 13.0, 24.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, dtypes that differ.
    pub fn add(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::widest(&[self, other]) {
            return cast.of(self)?.add(&*cast.of(other)?);
        }
        let y = binary("add", Binary::Add, self, other)?;
        Ok(y.record("add", &[self, other], || self.sum_rule(other, false)))
    }

    /// `self − other`, element by element, with broadcasting (`torch.sub`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, 7.0], &[2])?, Tensor::from_slice(&cpu, &[2f32], &[1])?);
    /// assert_eq!(x.sub(&y)?.to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn sub(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::widest(&[self, other]) {
            return cast.of(self)?.sub(&*cast.of(other)?);
        }
        let y = binary("sub", Binary::Sub, self, other)?;
        Ok(y.record("sub", &[self, other], || self.sum_rule(other, true)))
    }

    /// `self · other`, element by element, with broadcasting (`torch.mul`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, 7.0], &[2])?, Tensor::from_slice(&cpu, &[2f32], &[1])?);
    /// assert_eq!(x.mul(&y)?.to_vec::<f32>()?, [10.0, 14.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn mul(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("mul", Binary::Mul, other)
    }

    /// `self / other`, element by element, with broadcasting (`torch.div`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, 7.0], &[2])?, Tensor::from_slice(&cpu, &[2f32], &[1])?);
    /// assert_eq!(x.div(&y)?.to_vec::<f32>()?, [2.5, 3.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn div(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("div", Binary::Div, other)
    }

    /// `self` to the power of `other`, element by element, with broadcasting (`torch.pow`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[2f64, 3.0], &[2])?, Tensor::from_slice(&cpu, &[3f64, 2.0], &[2])?);
    /// let error = x.pow(&y)?.sub(&Tensor::from_slice(&cpu, &[8f64, 9.0], &[2])?)?;
    /// assert!(error.abs()?.max(&[], false)?.item()? < 1e-9);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn pow(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.pow(&*cast.of(other)?);
        }
        self.pair("pow", Binary::Pow, other)
    }

    /// `self` where it is greater than 0, else `weight`·`self`, for a `weight` of one element or one for each channel of
    /// `[…, C]` (`torch.nn.functional.prelu`; He et al. 2015).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[-1f32, 2.0], &[2])?;
    /// let weight = Tensor::from_slice(&cpu, &[0.25f32], &[1])?;
    /// assert_eq!(x.prelu(&weight)?.to_vec::<f32>()?, [-0.25, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A `weight` that is neither `[1]` nor `[C]`, dtypes that differ.
    pub fn prelu(&self, weight: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "prelu";
        let channels = self.shape().dims().last().copied().unwrap_or(1);
        if !matches!(*weight.shape().dims(), [n] if n == 1 || n == channels) {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *self.shape(),
                rhs: *weight.shape(),
            });
        }
        if let Some(cast) = Cast::low() {
            return cast.of(self)?.prelu(&*cast.of(weight)?);
        }
        same_dtype(OP, self, weight)?;
        Tensor::where_(&self.gt_scalar(0.0)?, self, &self.mul(weight)?)?.reshape(self.shape())
    }

    /// The angle of the point (`other`, `self`), in radians from −π to π, with broadcasting (`torch.atan2`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (y, x) = (Tensor::from_slice(&cpu, &[1f64], &[1])?, Tensor::from_slice(&cpu, &[-1f64], &[1])?);
    /// assert!((y.atan2(&x)?.item()?.to_degrees() - 135.0).abs() < 1e-9);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn atan2(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("atan2", Binary::Atan2, other)
    }

    /// `self` − `other`·⌊`self`/`other`⌋, which has the sign of `other`, with broadcasting (`torch.remainder`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[5f32, -5.0], &[2])?, Tensor::from_slice(&cpu, &[3f32], &[1])?);
    /// assert_eq!(x.remainder(&y)?.to_vec::<f32>()?, [2.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn remainder(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("remainder", Binary::Remainder, other)
    }

    /// The larger of the two with broadcasting, NaN if either is (`torch.maximum`). Equal operands share the gradient.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[1f32, 4.0], &[2])?, Tensor::from_slice(&cpu, &[3f32, 2.0], &[2])?);
    /// assert_eq!(x.maximum(&y)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn maximum(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("maximum", Binary::Maximum, other)
    }

    /// The smaller of the two with broadcasting, NaN if either is (`torch.minimum`). Equal operands share the gradient.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[1f32, 4.0], &[2])?, Tensor::from_slice(&cpu, &[3f32, 2.0], &[2])?);
    /// assert_eq!(x.minimum(&y)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn minimum(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        self.pair("minimum", Binary::Minimum, other)
    }
}
