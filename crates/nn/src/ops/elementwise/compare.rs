//! Comparisons, whose result is a mask (u8, 0 or 1) without gradient, and selection by a mask.

use crate::autograd::{Cast, Rule, RuleContext};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Indices, Result, Shape, Tensor};
use kiln_core::ops::{BroadcastParams, Compare};

fn compare<B: Backend>(op: &'static str, f: Compare, a: &Tensor<B>, b: &Tensor<B>) -> Result<Indices<B>> {
    if let Some(cast) = Cast::widest(&[a, b]) {
        return compare(op, f, &*cast.of(a)?, &*cast.of(b)?);
    }
    same_dtype(op, a, b)?;
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut mask = a.backend().alloc(DType::U8, shape.size())?;
    a.backend().compare(&p, a.buffer(), b.buffer(), &mut mask)?;
    Ok(Indices::from_buffer(a.backend(), mask, shape))
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident => $f:ident, $sign:literal;)*) => {
        impl<B: Backend> Tensor<B> {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use kiln_nn::Tensor;
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
            /// let y = Tensor::from_slice(&cpu, &[2f32], &[1])?;
            #[doc = concat!("let mask = x.", stringify!($name), "(&y)?;")]
            #[doc = concat!("assert_eq!(mask.to_vec::<u8>()?, [1f32, 2.0, 3.0].map(|v| u8::from(v.", stringify!($name), "(&2.0))));")]
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// Shapes that do not broadcast, dtypes that differ.
            pub fn $name(&self, other: &Tensor<B>) -> Result<Indices<B>> {
                compare(stringify!($name), Compare::$f, self, other)
            }

            #[doc = concat!("The mask of `self ", $sign, " value`, where the value is rounded to the tensor's dtype.")]
            ///
            /// ```
            /// # use kiln_nn::Tensor;
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
            #[doc = concat!("let mask = x.", stringify!($scalar), "(2.0)?;")]
            #[doc = concat!("assert_eq!(mask.to_vec::<u8>()?, [1f32, 2.0, 3.0].map(|v| u8::from(v.", stringify!($name), "(&2.0))));")]
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// Memory.
            pub fn $scalar(&self, value: f64) -> Result<Indices<B>> {
                compare(stringify!($scalar), Compare::$f, self, &self.scalar(value)?)
            }
        )*}
    };
}

comparisons! {
    /// The mask of `self = other` with broadcasting (`torch.eq`).
    eq, eq_scalar => Eq, "=";
    /// The mask of `self ≠ other` with broadcasting (`torch.ne`).
    ne, ne_scalar => Ne, "≠";
    /// The mask of `self < other` with broadcasting (`torch.lt`).
    lt, lt_scalar => Lt, "<";
    /// The mask of `self ≤ other` with broadcasting (`torch.le`).
    le, le_scalar => Le, "≤";
    /// The mask of `self > other` with broadcasting (`torch.gt`).
    gt, gt_scalar => Gt, ">";
    /// The mask of `self ≥ other` with broadcasting (`torch.ge`).
    ge, ge_scalar => Ge, "≥";
}

struct Where<B: Backend> {
    mask: Indices<B>,
    a: Shape,
    b: Shape,
}

impl<B: Backend> Rule<B> for Where<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let zero = cx.grad.scalar(0.0)?;
        let a = || Tensor::where_(&self.mask, cx.grad, &zero)?.sum_to_size(&self.a);
        let b = || Tensor::where_(&self.mask, &zero, cx.grad)?.sum_to_size(&self.b);
        Ok(vec![cx.needs(0).then(a).transpose()?, cx.needs(1).then(b).transpose()?])
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `a` where the mask is not 0, else `b`, with broadcasting of all three (`torch.where`).
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (a, b) = (Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?, Tensor::from_slice(&cpu, &[3f32, 4.0], &[2])?);
    /// let mask = Indices::from_slice(&cpu, &[1u8, 0], &[2])?;
    /// assert_eq!(Tensor::where_(&mask, &a, &b)?.to_vec::<f32>()?, [1.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, dtypes of `a` and `b` that differ, a mask that is not u8.
    pub fn where_(mask: &Indices<B>, a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::widest(&[a, b]) {
            return Tensor::where_(mask, &*cast.of(a)?, &*cast.of(b)?);
        }
        same_dtype("where", a, b)?;
        mask.require("where", DType::U8)?;
        let (p, shape) = BroadcastParams::new("where", 0, a.shape(), b.shape(), Some(mask.shape()))?;
        let mut y = a.alloc_like(shape)?;
        a.backend().select(&p, mask.buffer(), a.buffer(), b.buffer(), &mut y)?;
        Ok(
            Tensor::from_buffer(a.backend(), y, shape).record("where", &[a, b], || Where {
                mask: mask.clone(),
                a: *a.shape(),
                b: *b.shape(),
            }),
        )
    }

    /// `value` where the mask is not 0, else `self` (`torch.Tensor.masked_fill`), with broadcasting of both.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, -2.0, 3.0], &[3])?;
    /// assert_eq!(x.masked_fill(&x.lt_scalar(0.0)?, 0.0)?.to_vec::<f32>()?, [1.0, 0.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, a mask that is not u8.
    pub fn masked_fill(&self, mask: &Indices<B>, value: f64) -> Result<Tensor<B>> {
        Tensor::where_(mask, &self.scalar(value)?, self)
    }
}
