//! Ops that change the shape and keep the elements: reshape, permutation, broadcasting.

use crate::autograd::{Rule, RuleContext};
use crate::ops::elementwise::check_broadcasts;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::MAX_RANK;
use kiln_core::ops::ViewParams;

struct Reshape {
    from: Shape,
}

impl<B: Backend> Rule<B> for Reshape {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.reshape(&self.from)?)])
    }

    fn keeps_elements(&self) -> bool {
        true
    }
}

struct Permute {
    inverse: Vec<isize>,
}

impl<B: Backend> Rule<B> for Permute {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.permute(&self.inverse)?)])
    }
}

struct Broadcast {
    from: Shape,
}

impl<B: Backend> Rule<B> for Broadcast {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.sum_to_size(&self.from)?)])
    }
}

/// The dimensions that [`Tensor::reshape`] is given: a slice, array or list of integers, a [`Shape`], or a tuple whose integers
/// may be of different types, such as `(n, -1)` with a `usize` n.
///
/// ```
/// # use kiln_nn::ops::index::IntoDims;
/// let n: usize = 2;
/// assert_eq!((n, -1).dims(), [2, -1]);
/// assert_eq!((&[2, 3]).dims(), [2, 3]);
/// ```
pub trait IntoDims {
    /// The dimensions, of which one may be −1.
    fn dims(self) -> Vec<isize>;
}

/// A dimension as isize. None is larger than that.
fn dim(d: impl TryInto<isize>) -> isize {
    d.try_into().unwrap_or(isize::MAX)
}

macro_rules! lists {
    ($([$($generic:tt)*] $list:ty),*) => {$(
        impl<D: Copy + TryInto<isize>, $($generic)*> IntoDims for $list {
            fn dims(self) -> Vec<isize> {
                self.iter().map(|&d| dim(d)).collect()
            }
        }
    )*};
}
lists!([] &[D], [] &Vec<D>, [const N: usize] &[D; N]);

impl IntoDims for &Shape {
    fn dims(self) -> Vec<isize> {
        self.iter().map(|&d| dim(d)).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: TryInto<isize>),*> IntoDims for ($($name,)*) {
            fn dims(self) -> Vec<isize> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                vec![$(dim($name)),*]
            }
        }
    )*};
}
tuples! {
    ;
    A0;
    A0 A1;
    A0 A1 A2;
    A0 A1 A2 A3;
    A0 A1 A2 A3 A4;
    A0 A1 A2 A3 A4 A5;
    A0 A1 A2 A3 A4 A5 A6;
    A0 A1 A2 A3 A4 A5 A6 A7;
}

/// Resolves a requested shape in which one dimension may be −1.
pub(crate) fn resolve(op: &'static str, from: &Shape, wanted: impl IntoDims) -> Result<Shape> {
    let wanted = wanted.dims();
    let refuse = |expected: String| Error::invalid(op, "shape", format!("{wanted:?}"), expected);
    let open = wanted.iter().filter(|&&d| d == -1).count();
    if open > 1 || wanted.iter().any(|&d| d < -1) {
        return Err(refuse("dimensions of 0 or more, at most one of them -1".into()));
    }
    let mut dims: Vec<usize> = wanted.iter().map(|&d| if d < 0 { 1 } else { d as usize }).collect();
    let known = Shape::new(&dims)?.size();
    if let Some(i) = wanted.iter().position(|&d| d == -1) {
        if known == 0 || !from.size().is_multiple_of(known) {
            return Err(refuse(format!("dimensions whose product divides {}", from.size())));
        }
        dims[i] = from.size() / known;
    }
    let to = Shape::new(&dims)?;
    if to.size() != from.size() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *from,
            rhs: to,
        });
    }
    Ok(to)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    fn reshape_to(&self, op: &'static str, to: Shape) -> Tensor<B> {
        let from = *self.shape();
        if from == to {
            return self.clone();
        }
        self.with(to, None).record(op, &[self], || Reshape { from })
    }

    /// The same elements under another shape (`torch.reshape`), without a copy. One dimension may be −1: it is computed from
    /// the size and the others.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// let x = Tensor::zeros(&kiln_cpu::Cpu::new(), &[2, 3, 4], DType::F32)?;
    /// let n = x.shape()[0];
    /// assert_eq!(x.reshape((n, -1))?.shape().dims(), [2, 12]);
    /// assert_eq!(x.reshape(&[4, 6])?.shape().dims(), [4, 6]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Two dimensions of −1, one below −1, a size that differs, more than 8 dimensions.
    pub fn reshape(&self, shape: impl IntoDims) -> Result<Tensor<B>> {
        Ok(self.reshape_to("reshape", resolve("reshape", self.shape(), shape)?))
    }

    /// Joins the dimensions `start..=end` into one (`torch.flatten`), without a copy. A scalar becomes `[1]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 3, 4], DType::F32)?;
    /// assert_eq!(x.flatten(1, -1)?.shape().dims(), [2, 12]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, `start` after `end`.
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor<B>> {
        let shape = self.shape();
        if shape.rank() == 0 && matches!(start, 0 | -1) && matches!(end, 0 | -1) {
            return Ok(self.reshape_to("flatten", Shape::new(&[1])?));
        }
        let (s, e) = (shape.axis("flatten", start)?, shape.axis("flatten", end)?);
        if s > e {
            let expected = format!("an axis up to that of end = {end}");
            return Err(Error::invalid("flatten", "start", start, expected));
        }
        let middle: usize = shape[s..=e].iter().product();
        let dims: Vec<usize> = [&shape[..s], &[middle], &shape[e + 1..]].concat();
        Ok(self.reshape_to("flatten", Shape::new(&dims)?))
    }

    /// Splits the dimension `axis` into `sizes`, of which one may be −1 (`torch.unflatten`), without a copy.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// let x = Tensor::zeros(&kiln_cpu::Cpu::new(), &[2, 12], DType::F32)?;
    /// assert_eq!(x.unflatten(-1, (3, -1))?.shape().dims(), [2, 3, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, sizes whose product is not that of the axis, more than 8 dimensions.
    pub fn unflatten(&self, axis: isize, sizes: impl IntoDims) -> Result<Tensor<B>> {
        const OP: &str = "unflatten";
        let shape = self.shape();
        let axis = shape.axis(OP, axis)?;
        let middle = resolve(OP, &Shape::new(&[shape[axis]])?, sizes)?;
        let dims: Vec<usize> = [&shape[..axis], &middle[..], &shape[axis + 1..]].concat();
        Ok(self.reshape_to(OP, Shape::new(&dims)?))
    }

    /// Removes `axis`, which must have size 1 (`torch.squeeze`, which leaves an axis of another size as it is), without a copy.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 1, 3], DType::F32)?;
    /// assert_eq!(x.squeeze(1)?.shape().dims(), [2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or of another size.
    pub fn squeeze(&self, axis: isize) -> Result<Tensor<B>> {
        let i = self.shape().axis("squeeze", axis)?;
        if self.shape()[i] != 1 {
            let found = format!("{axis} of shape {}", self.shape());
            return Err(Error::invalid("squeeze", "axis", found, "an axis of size 1"));
        }
        let dims = [&self.shape()[..i], &self.shape()[i + 1..]].concat();
        Ok(self.reshape_to("squeeze", Shape::new(&dims)?))
    }

    /// Inserts a new axis of size 1 at `axis` (`torch.unsqueeze`), without a copy; −1 appends it.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 3], DType::F32)?;
    /// assert_eq!(x.unsqueeze(0)?.shape().dims(), [1, 2, 3]);
    /// assert_eq!(x.unsqueeze(-1)?.shape().dims(), [2, 3, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside of `-rank-1..=rank`, more than 8 dimensions.
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor<B>> {
        let rank = self.rank() as isize;
        let at = if axis < 0 {
            axis.checked_add(rank + 1)
        } else {
            Some(axis)
        };
        let Some(at) = at.filter(|i| (0..=rank).contains(i)) else {
            return Err(Error::Axis {
                op: "unsqueeze",
                axis,
                shape: *self.shape(),
            });
        };
        let (before, after) = self.shape().split_at_checked(at as usize).unwrap_or_default();
        let dims = [before, &[1], after].concat();
        Ok(self.reshape_to("unsqueeze", Shape::new(&dims)?))
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `axes[i]` of `self` (`torch.permute`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let channels_first = Tensor::zeros(&cpu, &[8, 3, 32, 16], DType::F32)?;
    /// assert_eq!(channels_first.permute(&[0, 2, 3, 1])?.shape().dims(), [8, 32, 16, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice, another number of axes than dimensions.
    pub fn permute(&self, axes: &[isize]) -> Result<Tensor<B>> {
        let from = self.shape();
        from.axes("permute", axes)?;
        if axes.len() != from.rank() {
            let expected = format!("each of the {} axes once", from.rank());
            return Err(Error::invalid("permute", "axes", format!("{axes:?}"), expected));
        }
        let order = axes
            .iter()
            .map(|&a| from.axis("permute", a))
            .collect::<Result<Vec<usize>>>()?;
        let strides = from.strides();
        let dims: Vec<usize> = order.iter().map(|&a| from[a]).collect();
        let stepped: Vec<i64> = order.iter().map(|&a| strides[a] as i64).collect();
        let to = Shape::new(&dims)?;
        // Dimensions of size 1 may move freely: if the others keep their order, nothing is copied.
        let moved: Vec<usize> = order.iter().copied().filter(|&a| from[a] != 1).collect();
        if moved.is_sorted() {
            return Ok(self.reshape_to("permute", to));
        }
        let p = ViewParams::new(&to, &stepped, 0);
        let mut y = self.alloc_like(to)?;
        self.backend().view_read(&p, self.buffer(), &mut y)?;
        Ok(
            Tensor::from_buffer(self.backend(), y, to).record("permute", &[self], || {
                let mut inverse = vec![0; order.len()];
                order.iter().zip(0..).for_each(|(&a, i)| inverse[a] = i);
                Permute { inverse }
            }),
        )
    }

    /// Exchanges two dimensions (`torch.transpose`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor<B>> {
        let (i, j) = (self.shape().axis("transpose", a)?, self.shape().axis("transpose", b)?);
        let mut axes: Vec<isize> = (0..self.rank() as isize).collect();
        axes.swap(i, j);
        self.permute(&axes)
    }

    /// Repeats the elements along dimensions of size 1 and along new leading ones to have `shape` (`torch.broadcast_to`,
    /// which makes no copy).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.broadcast_to(&[2, 2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape that this one does not broadcast to.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Tensor<B>> {
        let (from, to) = (*self.shape(), Shape::new(shape)?);
        if from == to {
            return Ok(self.clone());
        }
        check_broadcasts("broadcast_to", &from, &to)?;
        let p = ViewParams::new(&to, &from.broadcast_strides("broadcast_to", &to)?, 0);
        let mut y = self.alloc_like(to)?;
        self.backend().view_read(&p, self.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(self.backend(), y, to).record("broadcast_to", &[self], || Broadcast { from }))
    }

    /// As [`Tensor::broadcast_to`], where −1 keeps a dimension as it is (`torch.Tensor.expand`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2, 1])?;
    /// assert_eq!(x.expand(&[-1, 2])?.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::broadcast_to`]; −1 for a dimension that `self` does not have, any other negative size.
    pub fn expand(&self, shape: &[isize]) -> Result<Tensor<B>> {
        let lead = shape.len().checked_sub(self.rank());
        let dims = shape
            .iter()
            .enumerate()
            .map(|(i, &d)| match (d, lead) {
                (0.., _) => Some(d as usize),
                (-1, Some(lead)) if i >= lead => Some(self.shape()[i - lead]),
                _ => None,
            })
            .collect::<Option<Vec<usize>>>()
            .filter(|d| d.len() <= MAX_RANK);
        let Some(dims) = dims else {
            let expected = format!(
                "a shape that {} broadcasts to, -1 where it keeps a dimension",
                self.shape()
            );
            return Err(Error::invalid("expand", "shape", format!("{shape:?}"), expected));
        };
        self.broadcast_to(&dims)
    }
}
