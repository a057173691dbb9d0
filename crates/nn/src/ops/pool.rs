//! Max and average pooling in one to three spatial dimensions, channels-last.

mod average;
mod divisor;

use super::activation::mask_relu_grad;
use crate::autograd::{Node, Recompute, RecomputedFrom, Rule, RuleContext, is_grad_enabled};
use crate::{Backend, Error, Indices, Result, Shape, Tensor};
use average::Average;
use kiln_core::DType;
use kiln_core::ops::{Activation, AdaptivePoolParams, Op, PoolParams, Window, image_parts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The largest element of each window (`torch.nn.functional.max_pool1d`, `max_pool2d`, `max_pool3d`, channels-last):
    /// `[N, (D, H,) W, C] → [N, …, C]`. NaN counts as the largest value, padding is never chosen; the gradient goes to
    /// the first of equal elements. With `ceil_mode` the last window may extend past the end of the padded input.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 16.0, 1.0, DType::F32)?.reshape(&[1, 4, 4, 1])?;
    /// let y = x.max_pool(&Window::new([2, 2]).stride([2, 2]), false)?;
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Wrong rank, a zero kernel, stride or dilation, a window larger than the padded input (with `ceil_mode`, by a stride
    /// or more), padding over half of the kernel.
    pub fn max_pool(&self, window: &Window, ceil_mode: bool) -> Result<Tensor<B>> {
        Ok(self.max_pool_with_indices(window, ceil_mode)?.0)
    }

    /// As [`Tensor::max_pool`], with the flat spatial position of each largest element in its image, `(d·H + h)·W + w`, as i32
    /// of the result's shape (PyTorch's `return_indices`).
    ///
    /// ```
    /// # use kiln_nn::{Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[4f32, 1.0, 2.0, 3.0], &[1, 4, 1])?;
    /// let (y, at) = x.max_pool_with_indices(&Window::new([2]).stride([2]), false)?;
    /// assert_eq!((y.to_vec::<f32>()?, at.to_vec::<i32>()?), (vec![4.0, 3.0], vec![0, 3]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::max_pool`]; an image with more than 2³¹ − 1 positions.
    pub fn max_pool_with_indices(&self, window: &Window, ceil_mode: bool) -> Result<(Tensor<B>, Indices<B>)> {
        const OP: &str = "max_pool";
        let (p, shape) = PoolParams::new(OP, self.shape(), window, ceil_mode, false)?;
        few_enough(OP, &p)?;
        let (y, index) = pooled(&p, self, shape)?;
        let x = *self.shape();
        let again = RecomputedFrom::new(self).filter(|from| from.node().is_some());
        let y = match again {
            Some(from) => {
                let made = Mutex::default();
                let rule = || PickAgain {
                    p,
                    x,
                    y: shape,
                    from,
                    made,
                };
                y.record(OP, &[self], rule)
            }
            None => {
                let index = index.clone();
                y.record(OP, &[self], || Pick(Winners { p, x, index }))
            }
        };
        Ok((y, index))
    }

    /// The mean of each window (`torch.nn.functional.avg_pool1d`, `avg_pool2d`, `avg_pool3d`, channels-last):
    /// `[N, (D, H,) W, C] → [N, …, C]`. With `count_include_pad` (PyTorch's default) the zeros of the padding count.
    ///
    /// ```
    /// # use kiln_nn::{Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[4f32, 2.0, 2.0, 3.0], &[1, 4, 1])?;
    /// let y = x.avg_pool(&Window::new([2]).stride([2]), false, true)?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 2.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::max_pool`]; a dilation other than 1.
    pub fn avg_pool(&self, window: &Window, ceil_mode: bool, count_include_pad: bool) -> Result<Tensor<B>> {
        const OP: &str = "avg_pool";
        let (p, shape) = PoolParams::new(OP, self.shape(), window, ceil_mode, count_include_pad)?;
        if let Some(d) = p.window.dilation.iter().find(|&&d| d != 1) {
            return Err(Error::invalid(OP, "dilation", d, "1"));
        }
        Average::Windows(p).forward(OP, self, shape)
    }

    /// The mean of each of `output` cells of the image (`torch.nn.functional.adaptive_avg_pool1d`, `adaptive_avg_pool2d`,
    /// `adaptive_avg_pool3d`, channels-last): `[N, (D, H,) W, C] → [N, output…, C]`. Along a dimension of size n, cell i of m
    /// spans the positions from ⌊i·n/m⌋ up to, but without, ⌈(i + 1)·n/m⌉.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2, 7, 5, 3], DType::F32)?;
    /// assert_eq!(x.adaptive_avg_pool(&[2, 2])?.shape().dims(), [2, 2, 2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An output of other than 1 to 3 dimensions, or with another number of dimensions than the image; an empty dimension.
    pub fn adaptive_avg_pool(&self, output: &[usize]) -> Result<Tensor<B>> {
        const OP: &str = "adaptive_avg_pool";
        if output.is_empty() || output.len() > 3 {
            return Err(Error::invalid(OP, "output", format!("{output:?}"), "1, 2 or 3 sizes"));
        }
        let mut size = [1; 3];
        size[3 - output.len()..].copy_from_slice(output);
        let (p, shape) = AdaptivePoolParams::new(OP, output.len(), self.shape(), size)?;
        Average::Cells(p).forward(OP, self, shape)
    }

    /// The largest element of each of `output` cells of the image (`torch.nn.functional.adaptive_max_pool1d`,
    /// `adaptive_max_pool2d`, `adaptive_max_pool3d`, channels-last): `[N, (D, H,) W, C] → [N, output…, C]`, in the cells of
    /// [`Tensor::adaptive_avg_pool`]. NaN counts as the largest; the gradient goes to the first of equal elements.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// let x = Tensor::arange(&kiln_cpu::Cpu::new(), 0.0, 5.0, 1.0, DType::F32)?.reshape(&[1, 5, 1])?;
    /// assert_eq!(x.adaptive_max_pool(&[2])?.to_vec::<f32>()?, [2.0, 4.0]); // of three elements each
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::adaptive_avg_pool`].
    pub fn adaptive_max_pool(&self, output: &[usize]) -> Result<Tensor<B>> {
        const OP: &str = "adaptive_max_pool";
        if output.is_empty() || output.len() > 3 {
            return Err(Error::invalid(OP, "output", format!("{output:?}"), "1, 2 or 3 sizes"));
        }
        let mut size = [1; 3];
        size[3 - output.len()..].copy_from_slice(output);
        AdaptivePoolParams::new(OP, output.len(), self.shape(), size)?;
        // A cell is a part of every axis: the largest along the last one, then of those along the one before, is the first
        // of the largest in row-major order.
        let mut x = self.clone();
        for axis in (1..=output.len()).rev() {
            let (n, cells) = (x.shape()[axis], output[axis - 1]);
            if n == cells {
                continue;
            }
            let cell = |i: usize| {
                let (start, end) = (i * n / cells, ((i + 1) * n).div_ceil(cells));
                Ok(x.narrow(axis as isize, start, end - start)?
                    .top_k(1, axis as isize, true)?
                    .0)
            };
            let parts: Vec<Tensor<B>> = (0..cells).map(cell).collect::<Result<_>>()?;
            x = Tensor::concat(&parts.iter().collect::<Vec<_>>(), axis as isize)?;
        }
        Ok(x)
    }

    /// The mean over all positions of each image (Keras's `GlobalAveragePooling`): `[N, (D, H,) W, C] → [N, C]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[2, 7, 5, 3], DType::F32)?;
    /// assert_eq!(x.global_avg_pool()?.shape().dims(), [2, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is not 3, 4 or 5; an image without positions.
    pub fn global_avg_pool(&self) -> Result<Tensor<B>> {
        const OP: &str = "global_avg_pool";
        let rank = self.rank().saturating_sub(2);
        if !(1..=3).contains(&rank) {
            return Err(Error::Rank {
                op: OP,
                expected: "3, 4 or 5",
                rank: self.rank(),
            });
        }
        let (batch, _, channels) = image_parts(OP, rank, self.shape())?;
        let (p, shape) = AdaptivePoolParams::new(OP, rank, self.shape(), [1; 3])?;
        Average::Cells(p).forward(OP, self, shape)?.reshape(&[batch, channels])
    }
}

/// Refuses images with more positions than i32 can number.
pub(super) fn few_enough(op: &'static str, p: &PoolParams) -> Result<()> {
    let positions: usize = p.window.input.iter().map(|&d| d as usize).product();
    if positions > i32::MAX as usize {
        return Err(Error::invalid(op, "positions", positions, "at most 2147483647"));
    }
    Ok(())
}

/// The result of a max pooling and its indices, unrecorded.
fn pooled<B: Backend>(p: &PoolParams, x: &Tensor<B>, shape: Shape) -> Result<(Tensor<B>, Indices<B>)> {
    let backend = x.backend();
    let (mut y, mut index) = (x.alloc_like(shape)?, backend.alloc(DType::I32, shape.size())?);
    backend.max_pool(p, x.buffer(), &mut y, &mut index)?;
    let index = Indices::from_buffer(backend, index, shape);
    Ok((Tensor::from_buffer(backend, y, shape), index))
}

/// The element of `x` that each output of a max pooling took.
struct Winners<B: Backend> {
    p: PoolParams,
    x: Shape,
    index: Indices<B>,
}

impl<B: Backend> Clone for Winners<B> {
    fn clone(&self) -> Self {
        Winners {
            p: self.p,
            x: self.x,
            index: self.index.clone(),
        }
    }
}

impl<B: Backend> Winners<B> {
    /// The winners for images `[N, positions, C]`, whose positions lie along one axis as the index counts them.
    fn flat(&self) -> Result<Flat<B>> {
        let p = &self.p;
        let positions = |size: [u32; 3]| size.iter().map(|&d| d as usize).product();
        let shape = |size| Shape::new(&[p.batch as usize, positions(size), p.channels as usize]);
        let (image, index) = (shape(p.window.input)?, self.index.reshape(&shape(p.window.output)?)?);
        if p.window.dilation == [1; 3] {
            let blind = None;
            return Ok(Flat { image, index, blind });
        }
        let blind = index.eq(-1)?;
        Ok(Flat {
            image,
            index: index.masked_fill(&blind, 0)?,
            blind: Some(blind),
        })
    }

    /// `y[o] = x[winner(o)]`.
    fn pick(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let shape = *self.index.shape();
        if !x.has_op(Op::MaxPoolGrad) {
            let flat = self.flat()?;
            let y = x.reshape(&flat.image)?.gather(1, &flat.index)?;
            return flat.sighted(y)?.reshape(&shape);
        }
        let mut y = x.alloc_like(shape)?;
        x.backend()
            .max_pool_gather(&self.p, x.buffer(), self.index.buffer(), &mut y)?;
        let y = Tensor::from_buffer(x.backend(), y, shape);
        Ok(y.record("max_pool_gather", &[x], || Pick(self.clone())))
    }

    /// `x[winner(o)] += g[o]`, zero elsewhere, and where the result `relu` of a ReLU is not positive.
    fn place(&self, g: &Tensor<B>, relu: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        if let Some(y) = relu.filter(|_| is_grad_enabled() || !g.has_op(Op::MaxPoolGrad)) {
            return self.place(&mask_relu_grad(y, g)?, None);
        }
        if !g.has_op(Op::MaxPoolGrad) {
            let flat = self.flat()?;
            let zeros = Tensor::zeros(g.backend(), &flat.image, g.dtype())?;
            let g = flat.sighted(g.reshape(flat.index.shape())?)?;
            return zeros.scatter_add(1, &flat.index, &g)?.reshape(&self.x);
        }
        let mut x = g.alloc_like(self.x)?;
        g.backend().max_pool_grad(
            &self.p,
            g.buffer(),
            relu.map(Tensor::buffer),
            self.index.buffer(),
            &mut x,
        )?;
        let x = Tensor::from_buffer(g.backend(), x, self.x);
        Ok(x.record("max_pool_grad", &[g], || Place(self.clone())))
    }
}

/// The winners of images whose positions lie along one axis.
struct Flat<B: Backend> {
    image: Shape,
    index: Indices<B>,
    /// The mask of windows without an element, if there can be any: dilated windows may lie entirely in the padding of a
    /// small image. Their index is 0 here.
    blind: Option<Indices<B>>,
}

impl<B: Backend> Flat<B> {
    /// `x` with zeros for windows without an element.
    fn sighted(&self, x: Tensor<B>) -> Result<Tensor<B>> {
        match &self.blind {
            Some(blind) => x.masked_fill(blind, 0.0),
            None => Ok(x),
        }
    }
}

struct Pick<B: Backend>(Winners<B>);

impl<B: Backend> Rule<B> for Pick<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        // A window's gradient goes to its largest element, which is positive exactly where the result is.
        let relu = cx.slope().map(|_| cx.output());
        Ok(vec![Some(self.0.place(cx.grad, relu)?)])
    }

    fn saves_output(&self) -> bool {
        true
    }

    fn applies_slope(&self, f: Activation) -> Option<usize> {
        (f == Activation::Relu).then_some(0)
    }
}

/// A result of a max pooling and its winners, once they have been computed again.
type Made<B> = Mutex<Option<(Tensor<B>, Indices<B>)>>;

/// As [`Pick`] of an image that is computed again, and with it the result and the winners.
struct PickAgain<B: Backend> {
    p: PoolParams,
    x: Shape,
    y: Shape,
    from: RecomputedFrom<B>,
    /// For the backward pass, which comes here after all that read the result.
    made: Made<B>,
}

impl<B: Backend> PickAgain<B> {
    fn made(&self) -> MutexGuard<'_, Option<(Tensor<B>, Indices<B>)>> {
        // The lock is held only during exchanges, so a panic cannot have left the value half-changed.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend> Rule<B> for PickAgain<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let made = self.made().take();
        let (y, index) = made.map_or_else(|| pooled(&self.p, &self.from.read()?, self.y), Ok)?;
        let (p, x) = (self.p, self.x);
        let relu = cx.slope().map(|_| &y);
        Ok(vec![Some(Winners { p, x, index }.place(cx.grad, relu)?)])
    }

    fn applies_slope(&self, f: Activation) -> Option<usize> {
        (f == Activation::Relu).then_some(0)
    }

    fn recompute(&self) -> Option<Recompute<'_, B>> {
        Some(Box::new(|again| {
            let x = self.from.tensor(again);
            let (y, index) = pooled(&self.p, x.ok_or(Error::GraphFreed { op: "max_pool" })?, self.y)?;
            *self.made() = Some((y.clone(), index));
            Ok(y)
        }))
    }

    fn recomputed_from(&self) -> Option<&Arc<Node<B>>> {
        self.from.node()
    }
}

struct Place<B: Backend>(Winners<B>);

impl<B: Backend> Rule<B> for Place<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(self.0.pick(cx.grad)?)])
    }
}
