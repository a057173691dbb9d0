//! The cross-entropy of a linear layer's logits, of which a part at a time is in memory.

use super::{CrossEntropyOptions, Reduction};
use crate::autograd::{Cast, Rule, RuleContext, SavedInput, autocast_dtype, is_grad_enabled, no_grad, vjp};
use crate::ops::reduce::acc_dtype;
use crate::{Activation, Backend, DType, Error, Indices, Pad, Result, Shape, Tensor};
use kiln_core::ops::{CrossEntropyParams, Op};
use std::ops::Range;

const OP: &str = "linear_cross_entropy";
/// Bytes of logits that are in memory at a time, unless the rows are given.
const LOGITS: usize = 2 << 30;
/// Rows at a time are a multiple of this, which tiles of matrix products divide.
const ROWS: usize = 256;
/// Rows of logits begin at multiples of these bytes.
const ALIGNMENT: usize = 16;
/// The least number that a gradient is divided by, where no row counts.
const LEAST: f64 = 1e-30;

/// The input, the labels and the weights of the head, from which the losses of a part of the rows are computed.
struct Head<'a, B: Backend> {
    /// `[rows, in]`.
    x: Tensor<B>,
    labels: Indices<B>,
    /// `[classes, in]`, with rows of zeros behind them up to the stride of the logits.
    w: Tensor<B>,
    classes: usize,
    options: &'a CrossEntropyOptions<'a, B>,
}

/// The losses of rows and their weights; with gradients, also those of the sum of the losses.
struct Part<B: Backend> {
    losses: Tensor<B>,
    weights: Tensor<B>,
    dx: Option<Tensor<B>>,
    dw: Option<Tensor<B>>,
}

impl<B: Backend> Head<'_, B> {
    fn part(&self, rows: Range<usize>, [wants_x, wants_w]: [bool; 2]) -> Result<Part<B>> {
        let (x, labels) = match rows.len() == self.x.shape()[0] {
            true => (self.x.clone(), self.labels.clone()),
            false => (
                self.x.narrow(0, rows.start, rows.len())?,
                self.labels.narrow(0, rows.start, rows.len())?,
            ),
        };
        let mut logits = x.linear(&self.w, None, Activation::None)?;
        let p = CrossEntropyParams {
            rows: rows.len() as u64,
            classes: self.classes as u64,
            stride: self.w.shape()[0] as u64,
            smoothing: self.options.label_smoothing,
            ignore_index: self.options.ignore_index,
        };
        let backend = x.backend();
        let alloc = || backend.alloc(acc_dtype(x.dtype()), rows.len());
        let (mut loss, mut weight) = (alloc()?, alloc()?);
        let (mut dx, mut dw) = (None, None);
        if wants_x || wants_w {
            let of = logits.buffer_mut()?;
            backend.cross_entropy_with_grad(&p, of, labels.buffer(), None, &mut loss, &mut weight)?;
            dx = wants_x.then(|| logits.matmul(&self.w)).transpose()?;
            let product = wants_w.then(|| logits.matmul_t(&x, true, false)).transpose()?;
            dw = product.map(|dw| dw.to_dtype(acc_dtype(x.dtype()))).transpose()?;
        } else {
            backend.cross_entropy(&p, logits.buffer(), labels.buffer(), None, &mut loss, &mut weight)?;
        }
        let column = |buffer| Ok::<_, Error>(Tensor::from_buffer(backend, buffer, Shape::new(&[rows.len()])?));
        Ok(Part {
            losses: column(loss)?,
            weights: column(weight)?,
            dx,
            dw,
        })
    }
}

/// The rule of the loss, whose gradients the forward pass has made: they lack the gradient of the loss and the divisor of a mean.
struct LinearCrossEntropy<B: Backend> {
    x: SavedInput<B>,
    w: Tensor<B>,
    labels: Indices<B>,
    label_smoothing: f64,
    ignore_index: i64,
    /// The divisor, if the loss is a mean.
    total: Option<Tensor<B>>,
    dx: Option<Tensor<B>>,
    /// In the accumulation dtype, with the rows behind the classes.
    dw: Option<Tensor<B>>,
}

impl<B: Backend> Rule<B> for LinearCrossEntropy<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() {
            let x = self.x.tensor()?;
            let options = CrossEntropyOptions {
                label_smoothing: self.label_smoothing,
                weight: None,
                ignore_index: self.ignore_index,
                reduction: match self.total {
                    Some(_) => Reduction::Mean,
                    None => Reduction::Sum,
                },
            };
            let of = |t: &[Tensor<B>]| composed(&t[0], &t[1], &self.labels, &options)?.to_dtype(cx.grad.dtype());
            return vjp(&[&x, &self.w], cx.grad, of);
        }
        let g = match &self.total {
            Some(total) => cx.grad.div(&total.clamp_min(LEAST)?)?,
            None => cx.grad.clone(),
        };
        let scaled = |d: &Tensor<B>| d.to_dtype(g.dtype())?.mul(&g);
        let dx = self
            .dx
            .as_ref()
            .map(|dx| scaled(dx)?.to_dtype(dx.dtype())?.reshape(self.x.shape()));
        let classes = self.w.shape()[0];
        let dw = self.dw.as_ref().map(|dw| {
            let dw = scaled(dw)?.to_dtype(self.w.dtype())?;
            match dw.shape()[0] == classes {
                true => Ok(dw),
                false => dw.narrow(0, 0, classes),
            }
        });
        Ok(vec![dx.transpose()?, dw.transpose()?])
    }
}

/// The definition.
fn composed<B: Backend>(
    x: &Tensor<B>,
    w: &Tensor<B>,
    labels: &Indices<B>,
    options: &CrossEntropyOptions<'_, B>,
) -> Result<Tensor<B>> {
    x.linear(w, None, Activation::None)?.cross_entropy_with(labels, options)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The cross-entropy of the logits `self · wᵀ` (`torch.nn.functional.linear_cross_entropy`) without all of them in memory, which
    /// for a large vocabulary are the largest tensor of a language model: `self [N…, in]`, `w [classes, in]`, i32 labels `[N…]`. The logits
    /// of so many `rows` at a time are turned into their gradient at once, and that into those of `self` and `w` (as Hsu et al., "Liger
    /// Kernel", 2024, do); without a number, of as many as take 2 GiB.
    ///
    /// The same as [`Tensor::linear`] and [`Tensor::cross_entropy_with`] but for rounding. With class weights, without a reduction, and in
    /// f16, whose range needs the loss scale before the gradient is rounded, it is those two.
    ///
    /// ```
    /// # use kiln_nn::{CrossEntropyOptions, DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[3, 2], DType::F32)?.requires_grad();
    /// let head = Tensor::zeros(&cpu, &[5, 2], DType::F32)?.requires_grad();
    /// let labels = Indices::from_slice(&cpu, &[0, 4, 1], &[3])?;
    /// let loss = x.linear_cross_entropy(&head, &labels, &CrossEntropyOptions::default(), None)?;
    /// assert!((loss.item()? - 5f64.ln()).abs() < 1e-6);
    /// assert!((loss.backward()?.get(&head).unwrap().to_f64()?[0] - (0.2 - 1.0 / 3.0)).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::linear`] and [`Tensor::cross_entropy_with`]; no rows at a time.
    pub fn linear_cross_entropy(
        &self,
        w: &Tensor<B>,
        labels: &Indices<B>,
        options: &CrossEntropyOptions<'_, B>,
        rows: Option<usize>,
    ) -> Result<Tensor<B>> {
        if rows == Some(0) {
            return Err(Error::invalid(OP, "rows", 0, "at least 1"));
        }
        let low = autocast_dtype();
        let parts = options.weight.is_none()
            && options.reduction != Reduction::None
            && low.unwrap_or(self.dtype()) != DType::F16
            && self.has_op(Op::CrossEntropy)
            && self.size() > 0
            && w.size() > 0
            && self.shape().last() == w.shape().last()
            && w.rank() == 2;
        if !parts {
            return composed(self, w, labels, options);
        }
        let loss = match Cast::low() {
            Some(cast) => in_parts(&*cast.of(self)?, &*cast.of(w)?, labels, options, rows)?,
            None => in_parts(self, w, labels, options, rows)?,
        };
        match low {
            Some(_) => Ok(loss),
            None => loss.to_dtype(self.dtype()),
        }
    }
}

/// The loss by parts of the rows, in the accumulation dtype.
fn in_parts<B: Backend>(
    x: &Tensor<B>,
    w: &Tensor<B>,
    labels: &Indices<B>,
    options: &CrossEntropyOptions<'_, B>,
    rows: Option<usize>,
) -> Result<Tensor<B>> {
    crate::tensor::same_dtype(OP, x, w)?;
    labels.require(OP, DType::I32)?;
    let (classes, inner) = (w.shape()[0], w.shape()[1]);
    let all = x.size() / inner;
    let logits = x.shape().with(x.rank() - 1, classes)?;
    CrossEntropyParams::new(
        OP,
        &logits,
        labels.shape(),
        options.label_smoothing,
        options.ignore_index,
    )?;
    let stride = classes.next_multiple_of(ALIGNMENT / x.dtype().size());
    let wanted = [x, w].map(|t| is_grad_enabled() && t.is_tracked());
    let rows = rows.unwrap_or_else(|| {
        let parts = (all * stride * x.dtype().size()).div_ceil(LOGITS);
        all.div_ceil(parts).next_multiple_of(ROWS)
    });
    let (losses, weights, dx, dw) = no_grad(|| {
        let w = w.detach();
        let head = Head {
            x: x.detach().reshape(&[all, inner])?,
            labels: labels.reshape(&[all])?,
            w: match stride == classes {
                true => w,
                false => w.pad(&[(0, (stride - classes) as isize), (0, 0)], Pad::Constant(0.0))?,
            },
            classes,
            options,
        };
        let (mut losses, mut weights, mut dxs) = (Vec::new(), Vec::new(), Vec::new());
        let mut sum: Option<Tensor<B>> = None;
        for start in (0..all).step_by(rows) {
            let part = head.part(start..all.min(start + rows), wanted)?;
            losses.push(part.losses);
            weights.push(part.weights);
            dxs.extend(part.dx);
            match (&mut sum, part.dw) {
                (Some(sum), Some(dw)) => sum
                    .buffer_mut()
                    .and_then(|sum| dw.backend().accumulate(dw.buffer(), sum))?,
                (sum, dw) => *sum = dw,
            }
        }
        let joined = |parts: &[Tensor<B>]| match parts {
            [one] => Ok(one.clone()),
            parts => Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0),
        };
        let dx = (!dxs.is_empty()).then(|| joined(&dxs)).transpose()?;
        let total = |parts: &[Tensor<B>]| joined(parts)?.sum(&[], false);
        Ok::<_, Error>((total(&losses)?, total(&weights)?, dx, sum))
    })?;
    let mean = options.reduction == Reduction::Mean;
    let loss = if mean {
        no_grad(|| losses.div(&weights))?
    } else {
        losses
    };
    Ok(loss.record(OP, &[x, w], || LinearCrossEntropy {
        x: SavedInput::new(x),
        w: w.clone(),
        labels: labels.clone(),
        label_smoothing: options.label_smoothing,
        ignore_index: options.ignore_index,
        total: mean.then_some(weights),
        dx,
        dw,
    }))
}
