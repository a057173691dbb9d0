//! Ops that make larger tensors from smaller ones: concatenation, padding, tiling.

use super::{View, Write};
use crate::autograd::{Cast, Rule, RuleContext, is_grad_enabled};
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::MAX_RANK;
use kiln_core::ops::{Join, Op, Split, ViewParams};

/// The values that padding adds (`mode` of `torch.nn.functional.pad`).
///
/// ```
/// # use kiln_nn::{Pad, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
/// assert_eq!(x.pad(&[(2, 1)], Pad::Reflect)?.to_vec::<f32>()?, [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pad {
    /// The same value everywhere.
    Constant(f64),
    /// The values mirrored at the edge, which is not repeated: `3 2 | 1 2 3 | 2 1`.
    Reflect,
    /// The edge repeated: `1 1 | 1 2 3 | 3 3`.
    Replicate,
    /// The values repeated: `2 3 | 1 2 3 | 1 2`.
    Circular,
}

struct Concat {
    axis: usize,
    sizes: Vec<usize>,
}

impl Concat {
    /// The gradients of tensors that were joined along the first axis, where they lie one after the other, by one op.
    fn split<B: Backend>(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (g, row) = (cx.grad, cx.grad.shape().dims()[1..].iter().product::<usize>());
        let mut grads = Vec::with_capacity(self.sizes.len());
        let mut start = 0;
        for (i, &size) in self.sizes.iter().enumerate() {
            let shape = g.shape().with(0, size)?;
            let part = || Ok((start * row, g.alloc_like(shape)?, shape));
            grads.push(cx.needs(i).then(part).transpose()?);
            start += size;
        }
        let parts = grads.iter_mut().flatten().map(|(start, part, _)| (*start, part));
        g.backend().split(&mut [Split {
            whole: g.buffer(),
            parts: parts.collect(),
        }])?;
        let grads = grads.into_iter();
        Ok(grads
            .map(|grad| grad.map(|(_, part, shape)| Tensor::from_buffer(g.backend(), part, shape)))
            .collect())
    }
}

impl<B: Backend> Rule<B> for Concat {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if self.axis == 0 && !is_grad_enabled() && cx.grad.has_op(Op::Split) {
            return self.split(cx);
        }
        let mut start = 0;
        let mut grads = Vec::with_capacity(self.sizes.len());
        for (i, &size) in self.sizes.iter().enumerate() {
            grads.push(match cx.needs(i) {
                true => Some(cx.grad.narrow(self.axis as isize, start, size)?),
                false => None,
            });
            start += size;
        }
        Ok(grads)
    }
}

/// The view of a tensor of shape `whole` that begins at `start` along each axis and has shape `part`.
fn window(whole: &Shape, part: &Shape, start: &[usize]) -> ViewParams {
    let own = whole.strides();
    let offset = match part.size() {
        0 => 0,
        _ => start.iter().zip(own).map(|(&s, stride)| s * stride).sum(),
    };
    ViewParams::new(part, &own.map(|s| s as i64), offset)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Joins tensors one after the other along `axis` (`torch.cat`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::zeros(&cpu, &[2, 3], DType::F32)?, Tensor::ones(&cpu, &[1, 3], DType::F32)?);
    /// assert_eq!(Tensor::concat(&[&x, &y], 0)?.shape().dims(), [3, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No tensors, an axis out of range, shapes that differ in another dimension, dtypes that differ.
    pub fn concat(tensors: &[&Tensor<B>], axis: isize) -> Result<Tensor<B>> {
        let Some(&first) = tensors.first() else {
            return Err(Error::invalid("concat", "tensors", "an empty list", "at least one"));
        };
        if let Some(cast) = Cast::widest(tensors) {
            let tensors: Vec<_> = tensors.iter().map(|t| cast.of(t)).collect::<Result<_>>()?;
            return Tensor::concat(&tensors.iter().map(|t| &**t).collect::<Vec<_>>(), axis);
        }
        let axis = first.shape().axis("concat", axis)?;
        let mut total = 0usize;
        for t in tensors {
            same_dtype("concat", first, t)?;
            let fits =
                t.rank() == first.rank() && (0..first.rank()).all(|i| i == axis || t.shape()[i] == first.shape()[i]);
            if !fits {
                return Err(Error::ShapeMismatch {
                    op: "concat",
                    lhs: *first.shape(),
                    rhs: *t.shape(),
                });
            }
            total = total.saturating_add(t.shape()[axis]);
        }
        let to = first.shape().with(axis, total)?;
        let mut y = first.alloc_like(to)?;
        if axis == 0 && first.has_op(Op::Join) {
            first.backend().join(&mut [Join {
                parts: tensors.iter().map(|t| t.buffer()).collect(),
                whole: &mut y,
            }])?;
        } else {
            let mut start = [0; MAX_RANK];
            for t in tensors.iter().filter(|t| t.size() > 0) {
                let p = window(&to, t.shape(), &start[..to.rank()]);
                first.backend().view_write(&p, t.buffer(), &mut y)?;
                start[axis] += t.shape()[axis];
            }
        }
        let y = Tensor::from_buffer(first.backend(), y, to);
        Ok(y.record("concat", tensors, || Concat {
            axis,
            sizes: tensors.iter().map(|t| t.shape()[axis]).collect(),
        }))
    }

    /// Joins tensors of one shape along a new axis (`torch.stack`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::zeros(&cpu, &[2, 3], DType::F32)?, Tensor::ones(&cpu, &[2, 3], DType::F32)?);
    /// assert_eq!(Tensor::stack(&[&x, &y], 0)?.shape().dims(), [2, 2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::concat`].
    pub fn stack(tensors: &[&Tensor<B>], axis: isize) -> Result<Tensor<B>> {
        let grown = tensors.iter().map(|t| t.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
        if let Some(t) = tensors.iter().find(|t| t.shape() != tensors[0].shape()) {
            return Err(Error::ShapeMismatch {
                op: "stack",
                lhs: *tensors[0].shape(),
                rhs: *t.shape(),
            });
        }
        Tensor::concat(&grown.iter().collect::<Vec<_>>(), axis)
    }

    /// Pads by `(before, after)` entries along each axis, one pair per axis from the first (`numpy.pad`;
    /// `torch.nn.functional.pad` counts its pairs from the last axis). Negative numbers crop. With a constant and in a circle, the
    /// cropping comes first; entries reflected or replicated at the other end are those of the axis before cropping.
    ///
    /// ```
    /// # use kiln_nn::{Pad, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[1, 2])?;
    /// let y = x.pad(&[(0, 0), (1, 2)], Pad::Constant(0.0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A number of pairs other than the rank; cropping more than the axis has. For all but [`Pad::Constant`] also cropping the
    /// whole axis, reflecting as many entries as the axis has or more, repeating more than it has, and replicating an empty
    /// axis.
    pub fn pad(&self, padding: &[(isize, isize)], mode: Pad) -> Result<Tensor<B>> {
        if padding.len() != self.rank() {
            let expected = format!("one pair for each of {} axes", self.rank());
            return Err(Error::invalid("pad", "padding", format!("{padding:?}"), expected));
        }
        match mode {
            Pad::Constant(value) => self.pad_constant(padding, value),
            Pad::Reflect | Pad::Replicate | Pad::Circular => {
                let mut y = self.clone();
                for (axis, &(before, after)) in padding.iter().enumerate() {
                    if mode == Pad::Circular {
                        y = y.crop_edges(axis, before, after)?;
                    }
                    let n = y.shape()[axis];
                    let most = match mode {
                        Pad::Reflect => n.saturating_sub(1),
                        Pad::Circular => n,
                        _ => isize::MAX as usize,
                    };
                    let fits = |p: isize| p <= 0 || (p as usize <= most && n > 0);
                    if !fits(before) || !fits(after) {
                        let expected = match mode {
                            Pad::Reflect => format!("at most {most} along axis {axis} to reflect"),
                            Pad::Circular => format!("at most {most} along axis {axis} in a circle"),
                            _ => format!("none along axis {axis} of size {n} to replicate"),
                        };
                        return Err(Error::invalid(
                            "pad",
                            "padding",
                            format!("({before}, {after})"),
                            expected,
                        ));
                    }
                    y = y.pad_edges(axis, before.max(0) as usize, after.max(0) as usize, mode)?;
                    if mode != Pad::Circular {
                        y = y.crop_edges(axis, before, after)?;
                    }
                }
                Ok(y)
            }
        }
    }

    fn pad_constant(&self, padding: &[(isize, isize)], value: f64) -> Result<Tensor<B>> {
        let mut x = self.clone();
        let (mut dims, mut start) = (self.shape().to_vec(), [0; MAX_RANK]);
        for (axis, &(before, after)) in padding.iter().enumerate() {
            let cropped = |p: isize| p.min(0).unsigned_abs();
            let kept = dims[axis]
                .checked_sub(cropped(before))
                .and_then(|d| d.checked_sub(cropped(after)));
            let Some(kept) = kept else {
                let expected = format!("crops of at most {} in all along axis {axis}", dims[axis]);
                return Err(Error::invalid(
                    "pad",
                    "padding",
                    format!("({before}, {after})"),
                    expected,
                ));
            };
            x = x.narrow(axis as isize, cropped(before), kept)?;
            start[axis] = before.max(0) as usize;
            dims[axis] = kept.saturating_add(start[axis]).saturating_add(after.max(0) as usize);
        }
        let (to, from) = (Shape::new(&dims)?, *x.shape());
        if to == from {
            return Ok(x);
        }
        let p = window(&to, &from, &start[..to.rank()]);
        let mut y = x.alloc_like(to)?;
        x.backend().fill(value, &mut y)?;
        x.backend().view_write(&p, x.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(x.backend(), y, to).record("pad", &[&x], || {
            let axis = (0..to.rank()).find(|&i| to[i] != from[i]).unwrap_or_default();
            let within = (axis, start[axis]..start[axis] + from[axis]);
            let (whole, shape) = (to, from);
            Write(View {
                p,
                whole,
                shape,
                within,
            })
        }))
    }

    /// Removes the entries that negative padding along one axis crops; at least one entry is left.
    fn crop_edges(&self, axis: usize, before: isize, after: isize) -> Result<Tensor<B>> {
        let [start, end] = [before, after].map(|p| p.min(0).unsigned_abs());
        if start == 0 && end == 0 {
            return Ok(self.clone());
        }
        let n = self.shape()[axis];
        let kept = n.checked_sub(start).and_then(|n| n.checked_sub(end)).filter(|&n| n > 0);
        let Some(kept) = kept else {
            let expected = format!("crops of less than {n} in all along axis {axis}");
            let found = format!("({before}, {after})");
            return Err(Error::invalid("pad", "padding", found, expected));
        };
        self.narrow(axis as isize, start, kept)
    }

    /// Adds reflected or repeated edges along one axis; the amounts have been checked.
    fn pad_edges(&self, axis: usize, before: usize, after: usize, mode: Pad) -> Result<Tensor<B>> {
        if before == 0 && after == 0 {
            return Ok(self.clone());
        }
        let (a, n) = (axis as isize, self.shape()[axis]);
        // The size is checked before anything is allocated.
        self.shape()
            .with(axis, n.saturating_add(before).saturating_add(after))?;
        // `near` is the entry at the edge; the entries to reflect, or those of the circle, begin at a place of their own.
        let edge = |near: usize, reflected: usize, circle: usize, length: usize| match mode {
            Pad::Reflect => self.narrow(a, reflected, length)?.flip(&[a]),
            Pad::Circular => self.narrow(a, circle, length),
            _ => self.narrow(a, near, 1)?.broadcast_to(&self.shape().with(axis, length)?),
        };
        let mut parts = Vec::with_capacity(3);
        if before > 0 {
            parts.push(edge(0, 1, n.saturating_sub(before), before)?);
        }
        parts.push(self.clone());
        if after > 0 {
            parts.push(edge(n - 1, (n - 1).saturating_sub(after), 0, after)?);
        }
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), a)
    }

    /// The entries along `axis` moved on by `shift`, those that leave one end entering at the other (`torch.roll`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(x.roll(1, 0)?.to_vec::<f32>()?, [3.0, 1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn roll(&self, shift: isize, axis: isize) -> Result<Tensor<B>> {
        let n = self.shape()[self.shape().axis("roll", axis)?];
        // Shapes keep sizes below isize::MAX.
        let first = shift.rem_euclid(n.max(1) as isize) as usize;
        if first == 0 {
            return Ok(self.clone());
        }
        let (end, start) = (self.narrow(axis, n - first, first)?, self.narrow(axis, 0, n - first)?);
        Tensor::concat(&[&end, &start], axis)
    }

    /// Repeats the tensor `repeats[i]` times along axis `i` (`torch.tile`). With fewer repeats than axes, those of the
    /// leading axes are 1; with more, the tensor gets new leading axes of size 1.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0], &[2])?;
    /// assert_eq!(x.tile(&[2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// assert_eq!(x.tile(&[3, 1])?.shape().dims(), [3, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// More than 8 dimensions, a size that overflows.
    pub fn tile(&self, repeats: &[usize]) -> Result<Tensor<B>> {
        let lead = repeats.len().saturating_sub(self.rank());
        let dims = [&vec![1; lead][..], self.shape().dims()].concat();
        let skip = dims.len() - repeats.len();
        let mut y = self.reshape(Shape::new(&dims)?.dims())?;
        for (axis, &times) in (skip..).zip(repeats).filter(|&(_, &times)| times != 1) {
            let now = *y.shape();
            let to = now.with(axis, now[axis].saturating_mul(times))?;
            let (outer, n, inner) = now.around("tile", axis as isize)?;
            let block = n * inner;
            y = y
                .reshape(&[outer, 1, block])?
                .broadcast_to(&[outer, times, block])?
                .reshape(to.dims())?;
        }
        Ok(y)
    }
}
