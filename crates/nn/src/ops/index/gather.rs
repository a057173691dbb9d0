//! Picking entries by index tensors and adding entries at indices: each is the other's gradient.

use crate::autograd::{Part, Rule, RuleContext};
use crate::tensor::{require_float, same_dtype};
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::Buffer;
use kiln_core::ops::{IndexParams, Op, ViewParams};
use std::ops::Range;
use std::sync::Arc;

/// The meaning of an index tensor.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// An index per element: gather and scatter-add.
    Element,
    /// An index per entry of the axis: index-select and index-add.
    Entry,
}

/// The entries of a tensor that an index tensor names; an entry may be named more than once.
#[derive(Clone)]
struct Picked<B: Backend> {
    by: By,
    axis: isize,
    index: Indices<B>,
    whole: Shape,
}

impl<B: Backend> Part<B> for Picked<B> {
    fn whole(&self) -> Shape {
        self.whole
    }

    fn within(&self) -> Option<(usize, Range<usize>)> {
        None
    }

    fn add(&self, grad: &Tensor<B>, whole: &mut B::Buffer, _: bool) -> Result<()> {
        let (p, _) = params(self.by, "index_put", &self.whole, self.axis, &self.index)?;
        put(self.by, &p, grad, &self.index, whole)
    }

    fn of(&self, whole: &Tensor<B>) -> Result<Tensor<B>> {
        pick(self.by, "index_pick", whole, self.axis, &self.index)
    }
}

struct Pick<B: Backend>(Arc<Picked<B>>);

impl<B: Backend> Rule<B> for Pick<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(cx.grad.clone())])
    }

    fn part(&self, _: usize) -> Option<Arc<dyn Part<B>>> {
        Some(self.0.clone())
    }
}

/// The rule of adding at indices. The op's inputs are the source and the tensor that it was added to.
struct Add<B: Backend>(Picked<B>);

impl<B: Backend> Rule<B> for Add<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let source = cx.needs(0).then(|| self.0.of(cx.grad)).transpose()?;
        Ok(vec![source, cx.needs(1).then(|| cx.grad.clone())])
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
        By::Entry => select(x.backend(), &p, x.buffer(), index, &mut y)?,
    }
    Ok(Tensor::from_buffer(x.backend(), y, to).record(op, &[x], || {
        Pick(Arc::new(Picked {
            by,
            axis,
            index: index.clone(),
            whole: *x.shape(),
        }))
    }))
}

/// Adds `source` to `y` at the indices, in place.
fn put<B: Backend>(by: By, p: &IndexParams, source: &Tensor<B>, index: &Indices<B>, y: &mut B::Buffer) -> Result<()> {
    match by {
        By::Element => source.backend().scatter_add(p, source.buffer(), index.buffer(), y),
        By::Entry if source.has_op(Op::IndexSelect) => {
            source.backend().index_add(p, source.buffer(), index.buffer(), y)
        }
        By::Entry => {
            let by = by_element(p, index)?;
            let added = source.backend().scatter_add(p, source.buffer(), &by, y);
            added.map_err(|e| asked("index_add", e, entry(p)))
        }
    }
}

/// Reads the entries that `index` names, of any dtype.
fn select<B: Backend>(
    backend: &B,
    p: &IndexParams,
    x: &B::Buffer,
    index: &Indices<B>,
    y: &mut B::Buffer,
) -> Result<()> {
    if backend.supports(Op::IndexSelect, x.dtype()) {
        return backend.index_select(p, x, index.buffer(), y);
    }
    let read = backend.gather(p, x, &by_element(p, index)?, y);
    read.map_err(|e| asked("index_select", e, entry(p)))
}

/// The error of an op inside of a composed one, changed to the name of the composed op and to the position in the
/// caller's index.
pub(in crate::ops) fn asked(op: &'static str, e: Error, place: impl Fn(usize) -> usize) -> Error {
    match e {
        Error::IndexOutOfRange {
            index, position, size, ..
        } => Error::IndexOutOfRange {
            op,
            index,
            position: place(position),
            size,
        },
        other => other,
    }
}

/// The position in the caller's index of each position in the repeated index of [`by_element`].
fn entry(p: &IndexParams) -> impl Fn(usize) -> usize {
    let (inner, count) = ((p.inner as usize).max(1), (p.count as usize).max(1));
    move |position| position / inner % count
}

/// The index, which has one element for each of `count` entries, repeated for each element of `[outer, count, inner]`.
fn by_element<B: Backend>(p: &IndexParams, index: &Indices<B>) -> Result<B::Buffer> {
    let shape = Shape::new(&[p.outer, p.count, p.inner].map(|d| d as usize))?;
    let mut out = index.backend().alloc(DType::I32, shape.size())?;
    let repeated = ViewParams::new(&shape, &[0, 1, 0], 0);
    index.backend().view_read(&repeated, index.buffer(), &mut out)?;
    Ok(out)
}

/// `base` with `source` added at the indices.
fn add<B: Backend>(
    by: By,
    op: &'static str,
    base: &Tensor<B>,
    axis: isize,
    index: &Indices<B>,
    source: &Tensor<B>,
) -> Result<Tensor<B>> {
    let to = *base.shape();
    let (p, expected) = params(by, op, &to, axis, index)?;
    if expected != *source.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: expected,
            rhs: *source.shape(),
        });
    }
    same_dtype(op, base, source)?;
    let mut y = source.alloc_like(to)?;
    source.backend().copy(base.buffer(), &mut y)?;
    put(by, &p, source, index, &mut y)?;
    Ok(
        Tensor::from_buffer(source.backend(), y, to).record(op, &[source, base], || {
            let (whole, index) = (to, index.clone());
            Add(Picked { by, axis, index, whole })
        }),
    )
}

/// The part of `x` that an index of shape `index` covers: the first `index[i]` entries along axis i, but all of them along the
/// axis `whole`. An axis shorter than the index stays as it is: the op refuses it later.
pub(in crate::ops) fn under<B: Backend>(x: &Tensor<B>, index: &Shape, whole: Option<usize>) -> Result<Tensor<B>> {
    let fits = |i: usize| Some(i) == whole || index[i] <= x.shape()[i];
    let mut part = x.clone();
    if index.rank() == x.rank() && (0..x.rank()).all(fits) {
        for i in (0..x.rank()).filter(|&i| Some(i) != whole && index[i] < x.shape()[i]) {
            part = part.narrow(i as isize, 0, index[i])?;
        }
    }
    Ok(part)
}

/// `y`, whose shape is `base`, as the first entries along every axis of a copy of `x`: entries of `x` beyond are appended
/// unchanged, axis by axis.
pub(in crate::ops) fn covered<B: Backend>(x: &Tensor<B>, base: &Shape, mut y: Tensor<B>) -> Result<Tensor<B>> {
    for i in 0..x.rank() {
        let (reached, all) = (base[i], x.shape()[i]);
        if reached < all {
            let mut rest = x.narrow(i as isize, reached, all - reached)?;
            for j in i + 1..x.rank() {
                rest = rest.narrow(j as isize, 0, base[j])?;
            }
            y = Tensor::concat(&[&y, &rest], i as isize)?;
        }
    }
    Ok(y)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `y[…, j, …] = x[…, index[…, j, …], …]` along `axis` (`torch.gather`); the result has the shape of the index. The
    /// index has the rank of `self` and at most its size in every other dimension; elements of `self` beyond that are not
    /// read.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let index = Indices::from_slice(&cpu, &[0, 0, 1, 0], &[2, 2])?;
    /// assert_eq!(x.gather(1, &index)?.to_vec::<f32>()?, [1.0, 1.0, 4.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
    /// for the same element are added in the order of j, so the result does not depend on the number of threads. An index
    /// smaller than `self` in other dimensions adds to the first entries only; one smaller than `source` reads only its
    /// first entries.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, source) = (Tensor::zeros(&cpu, &[3], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?);
    /// let index = Indices::from_slice(&cpu, &[0, 2, 0], &[3])?;
    /// assert_eq!(x.scatter_add(0, &index, &source)?.to_vec::<f32>()?, [4.0, 0.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::gather`]; a source of another rank or dtype, or smaller than the index.
    pub fn scatter_add(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "scatter_add";
        let a = self.shape().axis(OP, axis)?;
        let base = under(self, index.shape(), Some(a))?;
        let source = under(source, index.shape(), None)?;
        let y = add(By::Element, OP, &base, axis, index, &source)?;
        covered(self, base.shape(), y)
    }

    /// The entries `index[j]` along `axis` (`torch.index_select`), for an index of rank 1.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// let index = Indices::from_slice(&cpu, &[2, 0, 2], &[3])?;
    /// assert_eq!(x.index_select(0, &index)?.to_vec::<f32>()?, [3.0, 1.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, an index of another rank or not i32, an index outside the axis.
    pub fn index_select(&self, axis: isize, index: &Indices<B>) -> Result<Tensor<B>> {
        pick(By::Entry, "index_select", self, axis, index)
    }

    /// A copy of `self` with entry `j` of `source` along `axis` added to entry `index[j]` (`torch.index_add`), in order
    /// of `j`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, source) = (Tensor::ones(&cpu, &[2, 2], DType::F32)?, Tensor::ones(&cpu, &[3, 2], DType::F32)?);
    /// let index = Indices::from_slice(&cpu, &[1, 1, 1], &[3])?;
    /// assert_eq!(x.index_add(0, &index, &source)?.to_vec::<f32>()?, [1.0, 1.0, 4.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::index_select`]; a source of another shape or dtype.
    pub fn index_add(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        add(By::Entry, "index_add", self, axis, index, source)
    }

    /// Row `index[…]` of this table `[V, D]` for every i32 index: the result is `[…, D]` (`torch.nn.functional.embedding`).
    /// The row `padding_idx` is read like any other, but receives no gradient.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let table = Tensor::arange(&cpu, 0.0, 6.0, 1.0, DType::F32)?.reshape(&[3, 2])?;
    /// let tokens = Indices::from_slice(&cpu, &[2, 0], &[2])?;
    /// assert_eq!(table.embedding(&tokens, None)?.to_vec::<f32>()?, [4.0, 5.0, 0.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A table that is not of rank 2, an index that is not i32, an index or `padding_idx` outside of the table.
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
                // Elements of the padding row come from a detached copy, so they pass no gradient on.
                let mask = flat.eq(row)?.reshape(&[flat.size(), 1])?;
                y = Tensor::where_(&mask, &y.detach(), &y)?;
            }
        }
        y.reshape(&[index.shape().dims(), &[width]].concat())
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// A new last axis of `classes` that is 1 at the index and 0 elsewhere (`torch.nn.functional.one_hot`), as floats of
    /// `dtype`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let labels = Indices::from_slice(&cpu, &[2, 0], &[2])?;
    /// assert_eq!(labels.one_hot(3, DType::F32)?.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
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
        if self.backend().supports(Op::OneHot, dtype) {
            self.backend().one_hot(&p, self.buffer(), &mut y)?;
        } else {
            let mut ones = self.backend().alloc(dtype, self.size())?;
            self.backend().fill(1.0, &mut ones)?;
            self.backend().fill(0.0, &mut y)?;
            let added = self.backend().scatter_add(&p, &ones, self.buffer(), &mut y);
            added.map_err(|e| asked("one_hot", e, |row| row))?;
        }
        Ok(Tensor::from_buffer(self.backend(), y, to))
    }
}
