//! Sorting.

use crate::{Backend, Indices, Result, Tensor};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The elements along `axis` in ascending or descending order, and where they were (`torch.sort`, which is stable as this
    /// is): equal elements by lower index, NaN as the largest. The values are differentiable; the indices are i32.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[3f32, 1.0, 2.0], &[3])?;
    /// let (values, from) = x.sort(0, false)?;
    /// assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(from.to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or longer than 2³¹ − 1.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor<B>, Indices<B>)> {
        let n = self.shape()[self.shape().axis("sort", axis)?];
        self.top_k(n, axis, descending)
    }

    /// The indices that sort the elements along `axis`, i32 (`torch.argsort`), as [`Tensor::sort`].
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[3f32, 1.0, 2.0], &[3])?;
    /// assert_eq!(x.argsort(0, true)?.to_vec::<i32>()?, [0, 2, 1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::sort`].
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Indices<B>> {
        Ok(self.detach().sort(axis, descending)?.1)
    }
}
