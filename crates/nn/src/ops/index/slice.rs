//! Ops that read parts of a tensor: ranges, slices with steps, flips, splits into pieces.

use super::{View, read_view};
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::host;
use kiln_core::ops::ViewParams;

/// The view of `whole` that has `length` entries along `axis`, from `start` in steps of `step`.
fn along(whole: &Shape, axis: usize, start: usize, length: usize, step: isize) -> Result<View> {
    let own = whole.strides();
    let shape = whole.with(axis, length)?;
    let mut strides = own.map(|s| s as i64);
    strides[axis] = strides[axis].saturating_mul(step as i64);
    // A view without elements must not begin beyond the end of the tensor.
    let offset = if shape.size() == 0 { 0 } else { start * own[axis] };
    let range = match length {
        0 => start..start,
        _ => {
            let last = start.saturating_add_signed(step.saturating_mul(length as isize - 1));
            start.min(last)..start.max(last) + 1
        }
    };
    Ok(View {
        p: ViewParams::new(&shape, &strides, offset),
        whole: *whole,
        shape,
        within: (axis, range),
    })
}

/// The view of the entries `start..start + length` along an axis, after a check.
fn narrowed(from: &Shape, axis: isize, start: usize, length: usize) -> Result<View> {
    let i = from.axis("narrow", axis)?;
    if start.checked_add(length).is_none_or(|end| end > from[i]) {
        let found = format!("{start}..{start}+{length}");
        return Err(Error::invalid(
            "narrow",
            "range",
            found,
            format!("a range within 0..{}", from[i]),
        ));
    }
    along(from, i, start, length, 1)
}

/// First index and number of elements of Python's `start:end:step` over `size` elements.
pub(super) fn python_slice(size: usize, start: Option<isize>, end: Option<isize>, step: isize) -> (usize, usize) {
    // Shapes keep sizes below isize::MAX / 8, so the sums below cannot overflow once bounds are clamped.
    let n = size as isize;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let clamp = |i: isize| {
        if i < 0 {
            i.saturating_add(n).max(low)
        } else {
            i.min(high)
        }
    };
    let first = start.map_or(if step > 0 { low } else { high }, clamp);
    let last = end.map_or(if step > 0 { high } else { low }, clamp);
    let span = if step > 0 { last - first } else { first - last };
    let count = if span <= 0 {
        0
    } else {
        (span as usize - 1) / step.unsigned_abs() + 1
    };
    (first.max(0) as usize, count)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// `length` entries from `start` along `axis` (`torch.narrow`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 5.0, 1.0, DType::F32)?;
    /// assert_eq!(x.narrow(0, 1, 3)?.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, a range that leaves the axis.
    pub fn narrow(&self, axis: isize, start: usize, length: usize) -> Result<Tensor<B>> {
        let view = narrowed(self.shape(), axis, start, length)?;
        if view.shape == *self.shape() {
            return Ok(self.clone());
        }
        read_view("narrow", self, view)
    }

    /// Python's `start:end:step` along `axis`: bounds count from the end when negative and are clamped to the axis; a
    /// negative step, which PyTorch does not have, walks backwards.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 5.0, 1.0, DType::F32)?;
    /// assert_eq!(x.slice(0, Some(1), None, 2)?.to_vec::<f32>()?, [1.0, 3.0]); // x[1::2]
    /// assert_eq!(x.slice(0, Some(-2), None, 1)?.to_vec::<f32>()?, [3.0, 4.0]); // x[-2:]
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, a step of 0.
    pub fn slice(&self, axis: isize, start: Option<isize>, end: Option<isize>, step: isize) -> Result<Tensor<B>> {
        let i = self.shape().axis("slice", axis)?;
        if step == 0 {
            return Err(Error::invalid("slice", "step", step, "a step other than 0"));
        }
        let (first, count) = python_slice(self.shape()[i], start, end, step);
        read_view("slice", self, along(self.shape(), i, first, count, step)?)
    }

    /// Reverses the order of entries along each of `axes` (`torch.flip`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(x.flip(&[0])?.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn flip(&self, axes: &[isize]) -> Result<Tensor<B>> {
        let shape = *self.shape();
        let marked = shape.axes("flip", axes)?;
        let own = shape.strides();
        let (mut strides, mut offset) = (own.map(|s| s as i64), 0);
        for i in (0..shape.rank()).filter(|&i| marked[i]) {
            strides[i] = -strides[i];
            offset += shape[i].saturating_sub(1) * own[i];
        }
        let view = View {
            p: ViewParams::new(&shape, &strides, offset),
            whole: shape,
            shape,
            within: (0, 0..shape.first().copied().unwrap_or(1)),
        };
        read_view("flip", self, view)
    }

    /// The elements whose positions along `axis1` and `axis2` differ by `offset`, as a last axis in place of both
    /// (`torch.diagonal`): above the main diagonal where it is positive.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 9.0, 1.0, DType::F32)?.reshape(&[3, 3])?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<f32>()?, [0.0, 4.0, 8.0]);
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec::<f32>()?, [1.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, one axis twice.
    pub fn diagonal(&self, offset: isize, axis1: isize, axis2: isize) -> Result<Tensor<B>> {
        let whole = *self.shape();
        let (a, b) = (whole.axis("diagonal", axis1)?, whole.axis("diagonal", axis2)?);
        if a == b {
            return Err(Error::invalid("diagonal", "axis2", axis2, "another axis than axis1"));
        }
        let (below, above) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
        let length = whole[a].saturating_sub(below).min(whole[b].saturating_sub(above));
        let own = whole.strides();
        let others = || (0..whole.rank()).filter(|&i| i != a && i != b);
        let dims: Vec<usize> = others().map(|i| whole[i]).chain([length]).collect();
        let strides: Vec<i64> = others()
            .map(|i| own[i])
            .chain([own[a] + own[b]])
            .map(|s| s as i64)
            .collect();
        let shape = Shape::new(&dims)?;
        // Without elements there is nothing to point at.
        let offset = if shape.size() == 0 {
            0
        } else {
            below * own[a] + above * own[b]
        };
        let start = below.min(whole[a]);
        let view = View {
            p: ViewParams::new(&shape, &strides, offset),
            whole,
            shape,
            within: (a, start..start + length),
        };
        read_view("diagonal", self, view)
    }

    /// Pieces of `size` entries along `axis`, the last one smaller if `size` does not divide the axis (`torch.split`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 5.0, 1.0, DType::F32)?;
    /// let sizes: Vec<usize> = x.split(2, 0)?.iter().map(Tensor::size).collect();
    /// assert_eq!(sizes, [2, 2, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, a size of 0.
    pub fn split(&self, size: usize, axis: isize) -> Result<Vec<Tensor<B>>> {
        let n = self.shape()[self.shape().axis("split", axis)?];
        if size == 0 {
            return Err(Error::invalid("split", "size", size, "at least 1"));
        }
        let count = n.div_ceil(size).max(1);
        let mut pieces = host::room(count)?;
        for i in 0..count {
            pieces.push(self.narrow(axis, i * size, size.min(n - i * size))?);
        }
        Ok(pieces)
    }

    /// Pieces of the given sizes along `axis` (`torch.split` with a list).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 5.0, 1.0, DType::F32)?;
    /// let parts = x.split_sizes(&[1, 4], 0)?;
    /// assert_eq!(parts[1].to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, sizes that do not add up to that of the axis.
    pub fn split_sizes(&self, sizes: &[usize], axis: isize) -> Result<Vec<Tensor<B>>> {
        let n = self.shape()[self.shape().axis("split", axis)?];
        if sizes.iter().try_fold(0usize, |sum, &s| sum.checked_add(s)) != Some(n) {
            let expected = format!("sizes that add up to {n}");
            return Err(Error::invalid("split", "sizes", format!("{sizes:?}"), expected));
        }
        let mut start = 0;
        sizes
            .iter()
            .map(|&size| {
                start += size;
                self.narrow(axis, start - size, size)
            })
            .collect()
    }

    /// At most `chunks` pieces of equal size along `axis`, the last one smaller if that does not divide the axis
    /// (`torch.chunk`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let qkv = Tensor::zeros(&cpu, &[2, 12], DType::F32)?;
    /// let parts = qkv.chunk(3, -1)?;
    /// assert_eq!((parts.len(), parts[0].shape().dims()), (3, &[2, 4][..]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, no chunks.
    pub fn chunk(&self, chunks: usize, axis: isize) -> Result<Vec<Tensor<B>>> {
        let n = self.shape()[self.shape().axis("chunk", axis)?];
        if chunks == 0 {
            return Err(Error::invalid("chunk", "chunks", chunks, "at least 1"));
        }
        self.split(n.div_ceil(chunks).max(1), axis)
    }

    /// The entries along `axis`, each a tensor without that axis (`torch.unbind`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.unbind(0)?[1].to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn unbind(&self, axis: isize) -> Result<Vec<Tensor<B>>> {
        let i = self.shape().axis("unbind", axis)?;
        let count = self.shape()[i];
        let mut pieces = host::room(count)?;
        for j in 0..count {
            pieces.push(self.narrow(axis, j, 1)?.squeeze(axis)?);
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::python_slice;

    /// Compares with the definition: steps from the first index until the end is reached.
    #[test]
    fn slices_are_those_of_python() {
        let walk = |n: isize, start: Option<isize>, end: Option<isize>, step: isize| -> Vec<isize> {
            let wrap = |i: isize| if i < 0 { i + n } else { i };
            let all: Vec<isize> = if step > 0 {
                (0..n).collect()
            } else {
                (0..n).rev().collect()
            };
            let from = start.map(wrap);
            let to = end.map(wrap);
            let inside = |i: isize| match step > 0 {
                true => from.is_none_or(|s| i >= s) && to.is_none_or(|e| i < e),
                false => from.is_none_or(|s| i <= s) && to.is_none_or(|e| i > e),
            };
            let kept: Vec<isize> = all.into_iter().filter(|&i| inside(i)).collect();
            kept.into_iter().step_by(step.unsigned_abs()).collect()
        };
        let bounds = || (-7..=7).map(Some).chain([None]);
        for n in 0..6 {
            for (start, end) in bounds().flat_map(|s| bounds().map(move |e| (s, e))) {
                for step in [-7, -3, -2, -1, 1, 2, 3, 7] {
                    let (first, count) = python_slice(n as usize, start, end, step);
                    let got: Vec<isize> = (0..count as isize).map(|i| first as isize + i * step).collect();
                    assert_eq!(got, walk(n, start, end, step), "{n}: {start:?}:{end:?}:{step}");
                }
            }
        }
        assert_eq!(python_slice(5, Some(isize::MIN), Some(isize::MAX), 1), (0, 5));
        assert_eq!(python_slice(5, Some(isize::MAX), Some(isize::MIN), isize::MIN), (4, 1));
    }
}
