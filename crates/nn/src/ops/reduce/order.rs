//! Sorting.

use crate::{Backend, Indices, Result, Tensor};

impl<B: Backend> Tensor<B> {
    /// The elements along `axis` in ascending or descending order, and where they were (`torch.sort`, which is stable as this
    /// is): equal elements by lower index, NaN as the largest. The values are differentiable; the indices are i32.
    ///
    /// # Errors
    /// An axis out of range or longer than 2³¹ − 1.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Tensor<B>, Indices<B>)> {
        let n = self.shape()[self.shape().axis("sort", axis)?];
        self.top_k(n, axis, descending)
    }

    /// The indices that sort the elements along `axis`, i32 (`torch.argsort`), as [`Tensor::sort`].
    ///
    /// # Errors
    /// Those of [`Tensor::sort`].
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Indices<B>> {
        Ok(self.detach().sort(axis, descending)?.1)
    }
}
