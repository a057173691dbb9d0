//! Searches and sorting along one axis. Keys are sorted as floats: i32 by 16 bits at a time, which f32 holds exactly, the lower
//! ones first, as sorting keeps the order of equal keys.

use crate::{Backend, DType, Error, Indices, Result, Tensor};
use kiln_core::host;
use kiln_core::ops::{AxisParams, IntegerFold};

/// The distinct values of a tensor: see [`Indices::unique`].
///
/// See the example of [`Indices::unique`].
#[derive(Debug)]
pub struct Unique<B: Backend> {
    /// The distinct values in ascending order, i32 `[n]`.
    pub values: Indices<B>,
    /// For each element of the tensor the place of its value in `values`, in the tensor's shape.
    pub inverse: Indices<B>,
    /// How often each value occurs, i32 `[n]`.
    pub counts: Indices<B>,
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The i32 index of the largest element along `axis` (`torch.argmax`), the first of equal ones.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, 9, 4, 4], &[2, 2])?;
    /// assert_eq!(x.argmax(1, false)?.to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, an empty axis.
    pub fn argmax(&self, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        self.arg("argmax", IntegerFold::Max, axis, keep_dim)
    }

    /// The i32 index of the smallest element along `axis` (`torch.argmin`), the first of equal ones.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, 9, 4, 4], &[2, 2])?;
    /// assert_eq!(x.argmin(1, false)?.to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Indices::argmax`].
    pub fn argmin(&self, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        self.arg("argmin", IntegerFold::Min, axis, keep_dim)
    }

    fn arg(&self, op: &'static str, f: IntegerFold, axis: isize, keep_dim: bool) -> Result<Indices<B>> {
        AxisParams::arg(op, self.shape(), axis, false)?;
        let best = match f {
            IntegerFold::Min => self.min(&[axis], true)?,
            _ => self.max(&[axis], true)?,
        };
        self.eq(&best)?.to_float(DType::F32)?.argmax(axis, keep_dim)
    }

    /// The elements sorted along `axis`, and the i32 index of each (`torch.sort` with `stable`): equal elements keep their order.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (values, index) = Indices::from_slice(&cpu, &[3, -1, 3, 2], &[4])?.sort(0, false)?;
    /// assert_eq!(values.to_vec::<i32>()?, [-1, 2, 3, 3]);
    /// assert_eq!(index.to_vec::<i32>()?, [1, 3, 0, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Indices<B>, Indices<B>)> {
        let index = self.argsort(axis, descending)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// The i32 indices that sort the elements along `axis` (`torch.argsort` with `stable`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[3, -1, 3, 2], &[4])?;
    /// assert_eq!(x.argsort(0, true)?.to_vec::<i32>()?, [0, 2, 3, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Indices<B>> {
        let sorted = |keys: &Indices<B>| keys.to_float(DType::F32)?.argsort(axis, descending);
        if self.dtype() == DType::U8 {
            return sorted(self);
        }
        let by_low = sorted(&self.bitwise_and(0xffff)?)?;
        let by_high = sorted(&self.gather(axis, &by_low)?.right_shift(16)?)?;
        by_low.gather(axis, &by_high)
    }

    /// The `k` largest elements along `axis` in order, or the smallest, and the i32 index of each (`torch.topk`); of equal
    /// elements the first.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (values, index) = Indices::from_slice(&cpu, &[3, -1, 5, 2], &[4])?.top_k(2, 0, true)?;
    /// assert_eq!((values.to_vec::<i32>()?, index.to_vec::<i32>()?), (vec![5, 3], vec![2, 0]));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, a `k` larger than the axis.
    pub fn top_k(&self, k: usize, axis: isize, largest: bool) -> Result<(Indices<B>, Indices<B>)> {
        AxisParams::top_k("top_k", self.shape(), axis, k, !largest)?;
        let index = self.argsort(axis, largest)?.narrow(axis, 0, k)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// The distinct values in ascending order, which of them each element is, and how often each occurs (`torch.unique`). Read
    /// and sorted on the host, as the number of results depends on the values.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let found = Indices::from_slice(&cpu, &[7, 2, 7], &[3])?.unique()?;
    /// assert_eq!(found.values.to_vec::<i32>()?, [2, 7]);
    /// assert_eq!(found.inverse.to_vec::<i32>()?, [1, 0, 1]);
    /// assert_eq!(found.counts.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// More than 2³¹ − 1 elements, memory.
    pub fn unique(&self) -> Result<Unique<B>> {
        if i32::try_from(self.size()).is_err() {
            return Err(Error::invalid(
                "unique",
                "size",
                self.size(),
                "at most 2147483647 elements",
            ));
        }
        let all = self.integers()?.to_vec::<i32>()?;
        let mut values = host::collect(all.iter().copied())?;
        values.sort_unstable();
        values.dedup();
        let mut counts = host::repeat(0i32, values.len())?;
        // Every value is found, and there are no more of them than elements, whose number fits.
        let place = |v: &i32| values.partition_point(|u| u < v);
        let inverse = host::collect(all.iter().map(|v| place(v) as i32))?;
        for &i in &inverse {
            counts[i as usize] += 1;
        }
        let of = |values: &[i32], shape: &[usize]| Indices::from_slice(self.backend(), values, shape);
        Ok(Unique {
            values: of(&values, &[values.len()])?,
            inverse: of(&inverse, self.shape())?,
            counts: of(&counts, &[values.len()])?,
        })
    }

    /// How often each of the numbers `0..classes` occurs, i32 `[classes]` (`torch.bincount`). Counted on the device.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let labels = Indices::from_slice(&cpu, &[2, 0, 2], &[3])?;
    /// assert_eq!(labels.bincount(4)?.to_vec::<i32>()?, [1, 0, 2, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A number outside of `0..classes`, memory.
    pub fn bincount(&self, classes: usize) -> Result<Indices<B>> {
        let index = self.integers()?.reshape(&[self.size()])?;
        let ones = Indices::full(self.backend(), &[self.size()], 1)?;
        Indices::full(self.backend(), &[classes], 0)?.scatter_add(0, &index, &ones)
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The number of elements over `axes` that are not 0 (`torch.count_nonzero`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0f32, 2.0, -3.0, 0.0], &[2, 2])?;
    /// assert_eq!(x.count_nonzero(&[])?.item()?, 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn count_nonzero(&self, axes: &[isize]) -> Result<Indices<B>> {
        self.ne_scalar(0.0)?.sum(axes, false)
    }
}
