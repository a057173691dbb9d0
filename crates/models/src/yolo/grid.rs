//! The positions that boxes are told from.

use super::layers::{Level, STRIDES};
use kiln_core::{Backend, DType, Result};
use kiln_nn::Tensor;

/// The results of the head at all A positions, level by level, in the dtype of losses.
pub(super) struct Grid<B: Backend> {
    /// Logits `[N, A, 4, bins]` of the distances to left, top, right and bottom, in strides.
    pub(super) sides: Tensor<B>,
    /// Logits `[N, A, classes]`.
    pub(super) logits: Tensor<B>,
    /// The positions `[A, 2]`, in strides.
    pub(super) points: Tensor<B>,
    /// The stride `[A, 1]` of each position, in pixels.
    pub(super) strides: Tensor<B>,
}

impl<B: Backend> Grid<B> {
    pub(super) fn new(levels: &[Level<B>; 3], bins: usize) -> Result<Self> {
        let (mut points, mut strides) = (Vec::new(), Vec::new());
        let (mut sides, mut logits) = (Vec::new(), Vec::new());
        for (level, stride) in levels.iter().zip(STRIDES) {
            let &[n, height, width, classes] = level.logits.shape().dims() else {
                continue;
            };
            let count = height * width;
            sides.push(full(&level.sides.reshape(&[n, count, 4, bins])?)?);
            logits.push(full(&level.logits.reshape(&[n, count, classes])?)?);
            let (backend, dtype) = (level.logits.backend(), sides[0].dtype());
            let middles = |count| counted(backend, count, 0.5, dtype);
            let x = middles(width)?.broadcast_to(&[height, width])?;
            let y = middles(height)?.unsqueeze(-1)?.broadcast_to(&[height, width])?;
            points.push(Tensor::stack(&[&x, &y], -1)?.reshape(&[count, 2])?);
            strides.push(Tensor::full(backend, &[count, 1], dtype, stride as f64)?);
        }
        let joined = |parts: &[Tensor<B>], axis| Tensor::concat(&parts.iter().collect::<Vec<_>>(), axis);
        Ok(Grid {
            points: joined(&points, 0)?,
            strides: joined(&strides, 0)?,
            sides: joined(&sides, 1)?,
            logits: joined(&logits, 1)?,
        })
    }

    /// The boxes `[N, A, 4]` by the expected distances, in strides.
    pub(super) fn boxes(&self) -> Result<Tensor<B>> {
        let distances = counted(self.sides.backend(), self.sides.shape()[3], 0.0, self.sides.dtype())?;
        let expected = self.sides.softmax(-1)?.mul(&distances)?.sum(&[-1], false)?;
        let from = self.points.sub(&expected.narrow(-1, 0, 2)?)?;
        let to = self.points.add(&expected.narrow(-1, 2, 2)?)?;
        Tensor::concat(&[&from, &to], -1)
    }
}

/// The numbers `first`, `first + 1`, …, counted on the device, so that a captured step uploads nothing.
pub(super) fn counted<B: Backend>(backend: &B, count: usize, first: f64, dtype: DType) -> Result<Tensor<B>> {
    Tensor::ones(backend, &[count], dtype)?
        .cumsum(0)?
        .add_scalar(first - 1.0)
}

/// A tensor in f32, or f64 if it has that.
fn full<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    match x.dtype() {
        DType::F64 => Ok(x.clone()),
        _ => x.to_dtype(DType::F32),
    }
}
