//! Comparisons and logic, whose result is a mask, and selection by a mask.

use super::IntegerOperand;
use crate::{Backend, DType, Indices, Result, Tensor};
use kiln_core::ops::{BroadcastParams, Compare};

#[compiled_once]
fn compare<B: Backend>(op: &'static str, f: Compare, a: &Indices<B>, b: &Indices<B>) -> Result<Indices<B>> {
    let (a, b) = match a.dtype() == b.dtype() {
        true => (a.clone(), b.clone()),
        false => (a.integers()?, b.integers()?),
    };
    let (p, shape) = BroadcastParams::new(op, f as u32, a.shape(), b.shape(), None)?;
    let mut mask = a.backend().alloc(DType::U8, shape.size())?;
    a.backend().compare(&p, a.buffer(), b.buffer(), &mut mask)?;
    Ok(Indices::from_buffer(a.backend(), mask, shape))
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        impl<B: Backend> Indices<B> {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use kiln_nn::Indices;
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Indices::from_slice(&cpu, &[1, 2, 3], &[3])?;
            /// let y = Indices::from_slice(&cpu, &[2], &[1])?;
            #[doc = concat!("let expected = [1, 2, 3].map(|v: i32| u8::from(v.", stringify!($name), "(&2)));")]
            #[doc = concat!("assert_eq!(x.", stringify!($name), "(&y)?.to_vec::<u8>()?, expected);")]
            #[doc = concat!("assert_eq!(x.", stringify!($name), "(2)?.to_vec::<u8>()?, expected);")]
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// Shapes that do not broadcast, memory.
            pub fn $name(&self, other: impl IntegerOperand<B>) -> Result<Indices<B>> {
                compare(stringify!($name), Compare::$f, self, &other.indices(self)?)
            }
        )*}
    };
}

comparisons! {
    /// The mask of `self = other`, a tensor or a number, with broadcasting (`torch.eq`).
    eq => Eq;
    /// The mask of `self ≠ other`, a tensor or a number, with broadcasting (`torch.ne`).
    ne => Ne;
    /// The mask of `self < other`, a tensor or a number, with broadcasting (`torch.lt`).
    lt => Lt;
    /// The mask of `self ≤ other`, a tensor or a number, with broadcasting (`torch.le`).
    le => Le;
    /// The mask of `self > other`, a tensor or a number, with broadcasting (`torch.gt`).
    gt => Gt;
    /// The mask of `self ≥ other`, a tensor or a number, with broadcasting (`torch.ge`).
    ge => Ge;
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The mask of the elements that are not 0 (`torch.Tensor.bool`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[3, 0, -1], &[3])?;
    /// assert_eq!(x.to_mask()?.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn to_mask(&self) -> Result<Indices<B>> {
        self.ne(&Indices::filled(self.backend(), &[], self.dtype(), 0)?)
    }

    /// The elements as i32 (`torch.Tensor.int`): of a mask 0 and 1.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mask = Indices::from_slice(&cpu, &[true, false], &[2])?;
    /// assert_eq!(mask.to_i32()?.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn to_i32(&self) -> Result<Indices<B>> {
        self.integers()
    }

    /// The mask of the elements that are 0 (`torch.logical_not`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[3, 0], &[2])?;
    /// assert_eq!(x.logical_not()?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Too little memory on the device for the result.
    pub fn logical_not(&self) -> Result<Indices<B>> {
        self.eq(&Indices::filled(self.backend(), &[], self.dtype(), 0)?)
    }

    /// The mask of the places where neither is 0, with broadcasting (`torch.logical_and`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Indices::from_slice(&cpu, &[3, 0], &[2])?, Indices::from_slice(&cpu, &[4, 4], &[2])?);
    /// assert_eq!(x.logical_and(&y)?.to_vec::<u8>()?, [1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, memory.
    pub fn logical_and(&self, other: &Indices<B>) -> Result<Indices<B>> {
        self.to_mask()?.bitwise_and(other.to_mask()?)
    }

    /// The mask of the places where one or both are not 0, with broadcasting (`torch.logical_or`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Indices::from_slice(&cpu, &[3, 0], &[2])?, Indices::from_slice(&cpu, &[0, 0], &[2])?);
    /// assert_eq!(x.logical_or(&y)?.to_vec::<u8>()?, [1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, memory.
    pub fn logical_or(&self, other: &Indices<B>) -> Result<Indices<B>> {
        self.to_mask()?.bitwise_or(other.to_mask()?)
    }

    /// The mask of the places where one is 0 and the other is not, with broadcasting (`torch.logical_xor`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Indices::from_slice(&cpu, &[3, 0], &[2])?, Indices::from_slice(&cpu, &[4, 4], &[2])?);
    /// assert_eq!(x.logical_xor(&y)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, memory.
    pub fn logical_xor(&self, other: &Indices<B>) -> Result<Indices<B>> {
        self.to_mask()?.bitwise_xor(other.to_mask()?)
    }

    /// `a` where the mask is not 0, else `b`, with broadcasting of all three (`torch.where`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[5, -6, 7], &[3])?;
    /// assert_eq!(Indices::where_(&x.gt(0)?, &x, &(-&x)?)?.to_vec::<i32>()?, [5, 6, 7]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::where_`].
    pub fn where_(mask: &Indices<B>, a: &Indices<B>, b: &Indices<B>) -> Result<Indices<B>> {
        b.moved(|b| Tensor::where_(mask, &a.elements(), b))
    }

    /// `value` where the mask is not 0, else `self` (`torch.Tensor.masked_fill`), with broadcasting of both. The result has the
    /// dtype of `self`.
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
    /// Shapes that do not broadcast, a mask that is not u8.
    pub fn masked_fill(&self, mask: &Indices<B>, value: i32) -> Result<Indices<B>> {
        Indices::where_(mask, &Indices::filled(self.backend(), &[], self.dtype(), value)?, self)
    }
}
