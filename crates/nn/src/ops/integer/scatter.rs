//! Writing by index: entries that several indices name have the value of the last.

use crate::ops::index::{IntoIndex, asked, covered, under};
use crate::tensor::same_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{IndexParams, IntegerFold};

/// The numbers 0, 1, … along `axis` of `shape`, made on the device.
fn positions<B: Backend>(backend: &B, shape: &Shape, axis: usize) -> Result<Indices<B>> {
    Indices::full(backend, shape, 1)?.cumsum(axis as isize)?.sub(1)
}

/// The last of the entries of `index` along `axis` that names each element of a tensor of shape `to`; −1 if none does.
fn last<B: Backend>(op: &'static str, to: &Shape, axis: usize, index: &Indices<B>) -> Result<Indices<B>> {
    index.require(op, DType::I32)?;
    let p = IndexParams::gather(op, to, index.shape(), axis as isize)?;
    let backend = index.backend();
    let (order, mut last) = (
        positions(backend, index.shape(), axis)?,
        Indices::full(backend, to, -1)?,
    );
    let joined = backend.integer_scatter(IntegerFold::Max, &p, order.buffer(), index.buffer(), last.buffer_mut()?);
    joined.map_err(|e| asked(op, e, |place| place))?;
    Ok(last)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// A copy of `self` with elements of `source` in it: `y[…, index[…, j, …], …] = source[…, j, …]` (`torch.scatter`). Where
    /// indices along the axis are equal, the last counts, on every device. Index and source may be smaller than `self`, as in
    /// [`Tensor::scatter_add`].
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, source) = (Tensor::zeros(&cpu, &[3], DType::F32)?, Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?);
    /// let index = Indices::from_slice(&cpu, &[0, 2, 0], &[3])?;
    /// assert_eq!(x.scatter(0, &index, &source)?.to_vec::<f32>()?, [3.0, 0.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::scatter_add`].
    pub fn scatter(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "scatter";
        let a = self.shape().axis(OP, axis)?;
        same_dtype(OP, self, source)?;
        let base = under(self, index.shape(), Some(a))?;
        let source = under(source, index.shape(), None)?;
        if source.shape() != index.shape() {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *index.shape(),
                rhs: *source.shape(),
            });
        }
        let last = last(OP, base.shape(), a, index)?;
        if index.size() == 0 {
            return Ok(self.clone());
        }
        let taken = source.gather(axis, &last.maximum(0)?)?;
        covered(self, base.shape(), Tensor::where_(&last.ge(0)?, &taken, &base)?)
    }

    /// A copy of `self` with entry `j` of `source` along `axis` as entry `index[j]` (`torch.index_copy`), for an index of rank
    /// 1. Of equal indices the last counts.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, source) = (Tensor::zeros(&cpu, &[3, 2], DType::F32)?, Tensor::ones(&cpu, &[1, 2], DType::F32)?);
    /// let index = Indices::from_slice(&cpu, &[1], &[1])?;
    /// assert_eq!(x.index_copy(0, &index, &source)?.to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::index_add`].
    pub fn index_copy(&self, axis: isize, index: &Indices<B>, source: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "index_copy";
        let a = self.shape().axis(OP, axis)?;
        if index.shape().rank() != 1 {
            return Err(Error::Rank {
                op: OP,
                expected: "1 for the index",
                rank: index.shape().rank(),
            });
        }
        let to = self.shape().with(a, index.size())?;
        if *source.shape() != to {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: to,
                rhs: *source.shape(),
            });
        }
        let along: Vec<usize> = (0..self.rank())
            .map(|i| if i == a { index.size() } else { 1 })
            .collect();
        let index = index.reshape(&along)?.broadcast_to(&to)?;
        self.scatter(axis, &index, source)
    }

    /// A copy of `self` in which the entries of `axis` that `index` names are `value` (`torch.index_fill`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 2], DType::F32)?;
    /// let index = Indices::from_slice(&cpu, &[1], &[1])?;
    /// assert_eq!(x.index_fill(1, &index, 5.0)?.to_vec::<f32>()?, [0.0, 5.0, 0.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    pub fn index_fill(&self, axis: isize, index: &Indices<B>, value: f64) -> Result<Tensor<B>> {
        let a = self.shape().axis("index_fill", axis)?;
        let source = self.scalar(value)?.broadcast_to(&self.shape().with(a, index.size())?)?;
        self.index_copy(axis, index, &source)
    }

    /// A copy of `self` with `values` as the part that `index` names, or added to it with `accumulate`: `x[index] = values` in
    /// PyTorch (`torch.index_put`). Values are broadcast to that part. Of places named twice the last value counts, or all
    /// are added in order.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[2, 3], DType::F32)?;
    /// let (rows, columns) = (Indices::from_slice(&cpu, &[0, 1], &[2])?, Indices::from_slice(&cpu, &[2, 0], &[2])?);
    /// let values = Tensor::from_slice(&cpu, &[5f32, 6.0], &[2])?;
    /// let y = x.index_put((&rows, &columns), &values, false)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 5.0, 6.0, 0.0, 0.0]);
    /// let y = y.index_put(&y.gt_scalar(5.0)?, &Tensor::ones(&cpu, &[], DType::F32)?, true)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 5.0, 7.0, 0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::i`], values that do not broadcast or of another dtype, more than 2³¹ − 1 elements.
    pub fn index_put(&self, index: impl IntoIndex<B>, values: &Tensor<B>, accumulate: bool) -> Result<Tensor<B>> {
        const OP: &str = "index_put";
        same_dtype(OP, self, values)?;
        if i32::try_from(self.size()).is_err() {
            return Err(Error::invalid(OP, "size", self.size(), "at most 2147483647 elements"));
        }
        let places = positions(self.backend(), &Shape::new(&[self.size()])?, 0)?;
        let places = places.reshape(self.shape())?.i(index)?;
        let values = values.broadcast_to(places.shape())?.flatten(0, -1)?;
        let (flat, places) = (self.reshape(&[self.size()])?, places.flatten(0, -1)?);
        let y = match accumulate {
            true => flat.index_add(0, &places, &values)?,
            false => flat.scatter(0, &places, &values)?,
        };
        y.reshape(self.shape())
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// A copy of `self` with elements of `source` in it, as [`Tensor::scatter`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[7, 8, 9], &[3])?;
    /// let (index, source) = (Indices::from_slice(&cpu, &[2, 0], &[2])?, Indices::from_slice(&cpu, &[1, 2], &[2])?);
    /// assert_eq!(x.scatter(0, &index, &source)?.to_vec::<i32>()?, [2, 8, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::scatter`].
    pub fn scatter(&self, axis: isize, index: &Indices<B>, source: &Indices<B>) -> Result<Indices<B>> {
        self.moved(|x| x.scatter(axis, index, &source.elements()))
    }

    /// A copy of `self` with `values` as the part that `index` names, as [`Tensor::index_put`] without adding.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::arange(&cpu, 0, 4)?;
    /// let y = x.index_put(1..3, &Indices::from_slice(&cpu, &[9], &[1])?)?;
    /// assert_eq!(y.to_vec::<i32>()?, [0, 9, 9, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::index_put`].
    pub fn index_put(&self, index: impl IntoIndex<B>, values: &Indices<B>) -> Result<Indices<B>> {
        self.moved(|x| x.index_put(index, &values.elements(), false))
    }

    /// A copy of `self` with `source` added: `y[…, index[…, j, …], …] += source[…, j, …]` (`torch.scatter_add`), which wraps
    /// around. Index and source may be smaller than `self`, as in [`Tensor::scatter_add`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[7, 8, 9], &[3])?;
    /// let (index, source) = (Indices::from_slice(&cpu, &[2, 2], &[2])?, Indices::from_slice(&cpu, &[1, 2], &[2])?);
    /// assert_eq!(x.scatter_add(0, &index, &source)?.to_vec::<i32>()?, [7, 8, 12]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, an index that is not i32, of another rank or larger than `self` in other dimensions, a source of
    /// another rank or smaller than the index, an index outside the axis.
    pub fn scatter_add(&self, axis: isize, index: &Indices<B>, source: &Indices<B>) -> Result<Indices<B>> {
        const OP: &str = "scatter_add";
        index.require(OP, DType::I32)?;
        let (a, whole) = (self.shape().axis(OP, axis)?, self.integers()?);
        let base = whole.moved(|x| under(x, index.shape(), Some(a)))?;
        let source = source.integers()?.moved(|s| under(s, index.shape(), None))?;
        let p = IndexParams::gather(OP, base.shape(), index.shape(), axis)?;
        if source.shape() != index.shape() {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *index.shape(),
                rhs: *source.shape(),
            });
        }
        let mut y = base.copy()?;
        let backend = self.backend().clone();
        let added = backend.integer_scatter(IntegerFold::Sum, &p, source.buffer(), index.buffer(), y.buffer_mut()?);
        added.map_err(|e| asked(OP, e, |place| place))?;
        whole.moved(|x| covered(x, base.shape(), y.elements()))
    }
}
