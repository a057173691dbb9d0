//! Picking entries by index tensors and adding entries at indices: each is the other's gradient.

use crate::autograd::{Rule, RuleContext};
use crate::tensor::{require_float, same_dtype};
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::IndexParams;

/// How an index addresses an axis.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// An index per element: gather and scatter-add.
    Element,
    /// An index per entry of the axis: index-select and index-add.
    Entry,
}

struct Pick<B: Backend> {
    by: By,
    axis: isize,
    index: Indices<B>,
    from: Shape,
}

impl<B: Backend> Rule<B> for Pick<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (by, axis) = (self.by, self.axis);
        Ok(vec![Some(put(
            by,
            "index_put",
            None,
            self.from,
            axis,
            &self.index,
            cx.grad,
        )?)])
    }
}

/// The inputs are the source and, if there is one, the base that it was added to.
struct Put<B: Backend> {
    by: By,
    axis: isize,
    index: Indices<B>,
    based: bool,
}

impl<B: Backend> Rule<B> for Put<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let source = match cx.needs(0) {
            true => Some(pick(self.by, "index_pick", cx.grad, self.axis, &self.index)?),
            false => None,
        };
        let mut grads = vec![source];
        if self.based {
            grads.push(cx.needs(1).then(|| cx.grad.clone()));
        }
        Ok(grads)
    }
}

fn params<B: Backend>(
    by: By,
    op: &'static str,
    from: &Shape,
    axis: isize,
    index: &Indices<B>,
) -> Result<(IndexParams, Shape)> {
    index.require(op, DType::I32)?;
    let i = from.axis(op, axis)?;
    let p = match by {
        By::Element => IndexParams::gather(op, from, index.shape(), axis)?,
        By::Entry => {
            if index.shape().rank() != 1 {
                return Err(Error::Rank {
                    op,
                    expected: "1 for the index",
                    rank: index.shape().rank(),
                });
            }
            IndexParams::new(op, from, axis, index.size())?
        }
    };
    Ok((p, from.with(i, p.count as usize)?))
}

fn pick<B: Backend>(by: By, op: &'static str, x: &Tensor<B>, axis: isize, index: &Indices<B>) -> Result<Tensor<B>> {
    let (p, to) = params(by, op, x.shape(), axis, index)?;
    let mut y = x.alloc_like(to)?;
    match by {
        By::Element => x.backend().gather(&p, x.buffer(), index.buffer(), &mut y)?,
        By::Entry => x.backend().index_select(&p, x.buffer(), index.buffer(), &mut y)?,
    }
    Ok(Tensor::from_buffer(x.backend(), y, to).record(op, &[x], || Pick {
        by,
        axis,
        index: index.clone(),
        from: *x.shape(),
    }))
}

/// `base` (zeros if there is none) of shape `to`, with `source` added at the indices.
fn put<B: Backend>(
    by: By,
    op: &'static str,
    base: Option<&Tensor<B>>,
    to: Shape,
    axis: isize,
    index: &Indices<B>,
    source: &Tensor<B>,
) -> Result<Tensor<B>> {
    let (p, expected) = params(by, op, &to, axis, index)?;
    if expected != *source.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: expected,
            rhs: *source.shape(),
        });
    }
    let backend = source.backend();
    let mut y = source.alloc_like(to)?;
    match base {
        Some(base) => {
            same_dtype(op, base, source)?;
            backend.copy(base.buffer(), &mut y)?;
        }
        None => backend.fill(0.0, &mut y)?,
    }
    match by {
        By::Element => backend.scatter_add(&p, source.buffer(), index.buffer(), &mut y)?,
        By::Entry => backend.index_add(&p, source.buffer(), index.buffer(), &mut y)?,
    }
    let inputs: Vec<&Tensor<B>> = [Some(source), base].into_iter().flatten().collect();
    Ok(Tensor::from_buffer(backend, y, to).record(op, &inputs, || Put {
        by,
        axis,
        index: index.clone(),
        based: base.is_some(),
    }))
}

/// The part of `x` that lies under an index of shape `index`: its first entries along every axis, all of them along the
/// axis `whole`. What the index does not fit into is left to the check of the op.
fn under<B: Backend>(x: &Tensor<B>, index: &Shape, whole: Option<usize>) -> Result<Tensor<B>> {
    let fits = |i: usize| Some(i) == whole || index[i] <= x.shape()[i];
    let mut part = x.clone();
    if index.rank() == x.rank() && (0..x.rank()).all(fits) {
        for i in (0..x.rank()).filter(|&i| Some(i) != whole && index[i] < x.shape()[i]) {
            part = part.narrow(i as isize, 0, index[i])?;
        }
    }
    Ok(part)
}

impl<B: Backend> Tensor<B> {
    /// `y[…, j, …] = x[…, index[…, j, …], …]` along `axis` (`torch.gather`). The index has the rank of `self` and at
    /// most its size in every other dimension: what lies beyond is not read.
    ///
    /// # Errors
    /// An axis out of range, an index of another rank, larger than `self` in another dimension or not i32, an index
    /// outside the axis.
    pub fn gather(&self, axis: isize, index: &Indices<B>) -> Result<Tensor<B>> {
        const OP: &str = "gather";
        let a = self.shape().axis(OP, axis)?;
        pick(By::Element, OP, &under(self, index.shape(), Some(a))?, axis, index)
    }

    /// A copy of `self` with `source` added: `y[…, index[…, j, …], …] += source[…, j, …]` (`torch.scatter_add`). Terms
    /// that meet in one element are added in order, so the result does not depend on threads. An index that is smaller
    /// than `self` in other dimensions adds to the first entries, and one smaller than the source takes the first of it.
    ///
    /// # Errors
    /// As [`Tensor::gather`]; a source of another rank or dtype, or smaller than the index.
    pub fn scatter_add(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "scatter_add";
        let a = self.shape().axis(OP, axis)?;
        let base = under(self, index.shape(), Some(a))?;
        let source = under(source, index.shape(), None)?;
        let mut y = put(By::Element, OP, Some(&base), *base.shape(), axis, index, &source)?;
        // Around it, axis by axis, goes what the index did not reach.
        for i in 0..self.rank() {
            let (reached, all) = (base.shape()[i], self.shape()[i]);
            if reached < all {
                let mut rest = self.narrow(i as isize, reached, all - reached)?;
                for j in i + 1..self.rank() {
                    rest = rest.narrow(j as isize, 0, base.shape()[j])?;
                }
                y = Tensor::concat(&[&y, &rest], i as isize)?;
            }
        }
        Ok(y)
    }

    /// The entries `index[j]` along `axis` (`torch.index_select`), for an index of rank 1.
    ///
    /// # Errors
    /// An axis out of range, an index of another rank or not i32, an index outside the axis.
    pub fn index_select(&self, axis: isize, index: &Indices<B>) -> Result<Tensor<B>> {
        pick(By::Entry, "index_select", self, axis, index)
    }

    /// A copy of `self` with entry `j` of `source` along `axis` added to entry `index[j]` (`torch.index_add`), in order
    /// of `j`.
    ///
    /// # Errors
    /// As [`Tensor::index_select`]; a source of another shape or dtype.
    pub fn index_add(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        put(By::Entry, "index_add", Some(self), *self.shape(), axis, index, source)
    }

    /// Row `index[…]` of this table `[V, D]` for every index: the result is `[…, D]` (`torch.nn.functional.embedding`).
    /// The row `padding_idx` is read like any other, and receives no gradient.
    ///
    /// # Errors
    /// A table that is not of rank 2, an index that is not i32 or outside of the table, such a `padding_idx`.
    pub fn embedding(&self, index: &Indices<B>, padding_idx: Option<usize>) -> Result<Tensor<B>> {
        let &[rows, width] = self.shape().dims() else {
            return Err(Error::Rank {
                op: "embedding",
                expected: "2 for the table",
                rank: self.rank(),
            });
        };
        let flat = index.reshape(&[index.size()])?;
        let mut y = pick(By::Entry, "embedding", self, 0, &flat)?;
        if let Some(padding) = padding_idx {
            let expected = format!("a row below {rows}");
            let refuse = || Error::invalid("embedding", "padding_idx", padding, expected);
            let row = i32::try_from(padding)
                .ok()
                .filter(|_| padding < rows)
                .ok_or_else(refuse)?;
            if y.is_tracked() {
                // The padding row by a way without gradient.
                let mask = flat.eq_scalar(row)?.reshape(&[flat.size(), 1])?;
                y = Tensor::where_(&mask, &y.detach(), &y)?;
            }
        }
        y.reshape(&[index.shape().dims(), &[width]].concat())
    }
}

impl<B: Backend> Indices<B> {
    /// A new last axis of `classes` that is 1 at the index and 0 elsewhere (`torch.nn.functional.one_hot`), as floats of
    /// `dtype`.
    ///
    /// # Errors
    /// No classes, an index outside of `0..classes`, an integer dtype, a ninth dimension.
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor<B>> {
        self.require("one_hot", DType::I32)?;
        require_float("one_hot", self.backend(), dtype)?;
        if classes == 0 {
            return Err(Error::invalid("one_hot", "classes", classes, "at least 1"));
        }
        let to = Shape::new(&[self.shape().dims(), &[classes]].concat())?;
        let p = IndexParams {
            outer: self.size() as u64,
            size: classes as u64,
            inner: 1,
            count: 1,
        };
        let mut y = self.backend().alloc(dtype, to.size())?;
        self.backend().one_hot(&p, self.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(self.backend(), y, to))
    }

    /// The entries `index[j]` along `axis` (`torch.index_select`), for an index of rank 1.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    pub fn index_select(&self, axis: isize, index: &Indices<B>) -> Result<Indices<B>> {
        let (p, to) = params(By::Entry, "index_select", self.shape(), axis, index)?;
        let mut y = self.backend().alloc(self.dtype(), to.size())?;
        self.backend().index_select(&p, self.buffer(), index.buffer(), &mut y)?;
        Ok(Indices::from_buffer(self.backend(), y, to))
    }
}
