//! Reductions over axes, and running sums along one. An empty list of axes means every axis.

use crate::{Backend, DType, Indices, Result};
use kiln_core::ops::{AxisParams, IntegerFold, Op, Reduce, ReduceParams};

#[compiled_once]
impl<B: Backend> Indices<B> {
    fn reduce(&self, op: &'static str, f: IntegerFold, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        let x = self.integers()?;
        let checked = match f {
            IntegerFold::Sum => Reduce::Sum,
            IntegerFold::Max => Reduce::Max,
            IntegerFold::Min => Reduce::Min,
        };
        let (p, to) = ReduceParams::new(op, checked, x.shape(), axes, keep_dim)?;
        let mut y = x.backend().alloc(DType::I32, to.size())?;
        x.backend().integer_reduce(f, &p, x.buffer(), &mut y)?;
        Ok(Indices::from_buffer(x.backend(), y, to))
    }

    /// The sum over `axes` (`torch.sum`), which wraps around; of a mask the number of elements that it marks.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
    /// assert_eq!(x.sum(&[1], false)?.to_vec::<i32>()?, [3, 12]);
    /// assert_eq!(x.gt(1)?.sum(&[], false)?.item()?, 4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn sum(&self, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        self.reduce("sum", IntegerFold::Sum, axes, keep_dim)
    }

    /// The largest element over `axes` (`torch.amax`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, 9, -4, 3], &[2, 2])?;
    /// assert_eq!(x.max(&[1], false)?.to_vec::<i32>()?, [9, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice, a largest of nothing.
    pub fn max(&self, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        self.reduce("max", IntegerFold::Max, axes, keep_dim)
    }

    /// The smallest element over `axes` (`torch.amin`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, 9, -4, 3], &[2, 2])?;
    /// assert_eq!(x.min(&[1], false)?.to_vec::<i32>()?, [1, -4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Indices::max`].
    pub fn min(&self, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        self.reduce("min", IntegerFold::Min, axes, keep_dim)
    }

    /// The number of elements over `axes` that are not 0 (`torch.count_nonzero`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[1, 0, -4, 3], &[2, 2])?;
    /// assert_eq!(x.count_nonzero(&[1])?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Indices::sum`].
    pub fn count_nonzero(&self, axes: &[isize]) -> Result<Indices<B>> {
        self.to_mask()?.sum(axes, false)
    }

    /// The mask of the places where any element over `axes` is not 0 (`torch.any`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[0, 0, -4, 3], &[2, 2])?;
    /// assert_eq!(x.any(&[1], false)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Indices::sum`].
    pub fn any(&self, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        self.to_mask()?.sum(axes, keep_dim)?.ne(0)
    }

    /// The mask of the places where no element over `axes` is 0 (`torch.all`).
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::from_slice(&cpu, &[0, 7, -4, 3], &[2, 2])?;
    /// assert_eq!(x.all(&[1], false)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Indices::sum`].
    pub fn all(&self, axes: &[isize], keep_dim: bool) -> Result<Indices<B>> {
        self.logical_not()?.sum(axes, keep_dim)?.eq(0)
    }

    /// `y[j] = Σ_{l ≤ j} x[l]` along `axis` (`torch.cumsum`), which wraps around.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
    /// assert_eq!(x.cumsum(1)?.to_vec::<i32>()?, [0, 1, 3, 3, 7, 12]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn cumsum(&self, axis: isize) -> Result<Indices<B>> {
        let x = self.integers()?;
        let p = AxisParams::new("cumsum", x.shape(), axis, 0, false)?;
        if !x.backend().supports(Op::IntegerCumsum, DType::I32) {
            return x.shifted_sums(axis, p.n as usize);
        }
        let mut y = x.backend().alloc(DType::I32, x.size())?;
        x.backend().integer_cumsum(&p, x.buffer(), &mut y)?;
        Ok(Indices::from_buffer(x.backend(), y, *x.shape()))
    }

    /// The running sums along an axis of `n` entries: each step adds the sums of as many entries before as an entry has summed up
    /// so far (Hillis and Steele, "Data parallel algorithms", 1986).
    fn shifted_sums(&self, axis: isize, n: usize) -> Result<Indices<B>> {
        let (mut sums, mut step) = (self.clone(), 1);
        while step < n {
            let zeros = sums.narrow(axis, 0, step)?.mul(0)?;
            let before = Indices::concat(&[&zeros, &sums.narrow(axis, 0, n - step)?], axis)?;
            (sums, step) = (sums.add(&before)?, 2 * step);
        }
        Ok(sums)
    }
}
