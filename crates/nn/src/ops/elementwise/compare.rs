//! Comparisons, whose result is a mask (u8, 0 or 1) without gradient, and selection by a mask.

use crate::autograd::{Rule, RuleContext};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{BroadcastParams, Compare};

fn compare<B: Backend>(op: &'static str, f: Compare, a: &Tensor<B>, b: &Tensor<B>) -> Result<Indices<B>> {
    same_dtype(op, a, b)?;
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut mask = a.backend().alloc(DType::U8, shape.size())?;
    a.backend().compare(&p, a.buffer(), b.buffer(), &mut mask)?;
    Ok(Indices::from_buffer(a.backend(), mask, shape))
}

macro_rules! comparisons {
    ($($name:ident, $scalar:ident => $f:ident, $sign:literal;)*) => {
        impl<B: Backend> Tensor<B> {$(
            #[doc = concat!("The mask of `self ", $sign, " other` with broadcasting (`torch.", stringify!($name), "`).")]
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
    eq, eq_scalar => Eq, "=";
    ne, ne_scalar => Ne, "≠";
    lt, lt_scalar => Lt, "<";
    le, le_scalar => Le, "≤";
    gt, gt_scalar => Gt, ">";
    ge, ge_scalar => Ge, "≥";
}

impl<B: Backend> Indices<B> {
    fn compare(&self, op: &'static str, f: Compare, other: &Indices<B>) -> Result<Indices<B>> {
        self.require(op, DType::I32)?;
        if self.dtype() != other.dtype() {
            return Err(Error::DTypeMismatch {
                op,
                lhs: self.dtype(),
                rhs: other.dtype(),
            });
        }
        let (p, shape) = BroadcastParams::new(op, f as u32, self.shape(), other.shape(), None)?;
        let mut mask = self.backend().alloc(DType::U8, shape.size())?;
        self.backend().compare(&p, self.buffer(), other.buffer(), &mut mask)?;
        Ok(Indices::from_buffer(self.backend(), mask, shape))
    }

    /// The mask of `self = other` for i32 tensors, with broadcasting (`torch.eq`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let labels = Indices::from_slice(&cpu, &[1, 2, 3], &[3])?;
    /// let predicted = Indices::from_slice(&cpu, &[1, 0, 3], &[3])?;
    /// assert_eq!(predicted.eq(&labels)?.to_vec::<u8>()?, [1, 0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, a u8 mask instead of i32.
    pub fn eq(&self, other: &Indices<B>) -> Result<Indices<B>> {
        self.compare("eq", Compare::Eq, other)
    }

    /// The mask of `self = value` for an i32 tensor (`torch.eq`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let tokens = Indices::from_slice(&cpu, &[5, 0, 7], &[3])?;
    /// assert_eq!(tokens.eq_scalar(0)?.to_vec::<u8>()?, [0, 1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A u8 mask instead of i32.
    pub fn eq_scalar(&self, value: i32) -> Result<Indices<B>> {
        self.compare("eq_scalar", Compare::Eq, &self.number(value)?)
    }

    /// `value` as an i32 tensor `[]`. It is filled on the device, so that a captured step uploads nothing.
    fn number(&self, value: i32) -> Result<Indices<B>> {
        let mut buffer = self.backend().alloc(DType::I32, 1)?;
        self.backend().fill(f64::from(value), &mut buffer)?;
        Ok(Indices::from_buffer(self.backend(), buffer, Shape::scalar()))
    }

    /// `value` where the mask is not 0, else `self` (`torch.Tensor.masked_fill`), for an i32 tensor, with broadcasting of both.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let tokens = Indices::from_slice(&cpu, &[5, 6, 7], &[3])?;
    /// let mask = Indices::from_slice(&cpu, &[0u8, 1, 0], &[3])?;
    /// assert_eq!(tokens.masked_fill(&mask, -100)?.to_vec::<i32>()?, [5, -100, 7]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, a `mask` that is not u8, a `self` that is not i32.
    pub fn masked_fill(&self, mask: &Indices<B>, value: i32) -> Result<Indices<B>> {
        const OP: &str = "masked_fill";
        self.require(OP, DType::I32)?;
        mask.require(OP, DType::U8)?;
        let value = self.number(value)?;
        let (p, shape) = BroadcastParams::new(OP, 0, value.shape(), self.shape(), Some(mask.shape()))?;
        let mut y = self.backend().alloc(DType::I32, shape.size())?;
        self.backend()
            .select(&p, mask.buffer(), value.buffer(), self.buffer(), &mut y)?;
        Ok(Indices::from_buffer(self.backend(), y, shape))
    }
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
