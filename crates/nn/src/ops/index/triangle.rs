//! Triangles of matrices.

use crate::{Backend, DType, Indices, Result, Tensor};

/// Of matrices of `rows` × `columns`, the mask of elements above diagonal `diagonal`.
///
/// Computed on the device, so that a captured step uploads nothing. f64 holds every position.
pub(crate) fn above<B: Backend>(backend: &B, [rows, columns]: [usize; 2], diagonal: isize) -> Result<Indices<B>> {
    let dtype = if backend.supports_dtype(DType::F64) {
        DType::F64
    } else {
        DType::F32
    };
    let count = |n| Tensor::ones(backend, &[n], dtype)?.cumsum(0);
    let (row, column) = (count(rows)?.reshape((rows, 1))?, count(columns)?);
    column.sub(&row)?.gt_scalar(diagonal as f64)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The last two axes and the mask of their elements above `diagonal`.
    fn above(&self, op: &'static str, diagonal: isize) -> Result<Indices<B>> {
        let (rows, columns) = (self.shape().axis(op, -2)?, self.shape().axis(op, -1)?);
        above(self.backend(), [rows, columns].map(|i| self.shape()[i]), diagonal)
    }

    /// Zero above `diagonal` of the last two axes (`torch.tril`): 0 is the main diagonal, and larger ones lie above it.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.tril(0)?.to_vec::<f32>()?, [1.0, 0.0, 3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank below 2.
    pub fn tril(&self, diagonal: isize) -> Result<Tensor<B>> {
        self.masked_fill(&self.above("tril", diagonal)?, 0.0)
    }

    /// Zero below `diagonal` of the last two axes (`torch.triu`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.triu(0)?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank below 2.
    pub fn triu(&self, diagonal: isize) -> Result<Tensor<B>> {
        let above = self.above("triu", diagonal.saturating_sub(1))?;
        Tensor::where_(&above, self, &self.zeros_like()?)
    }
}
