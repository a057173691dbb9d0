//! The elements that a mask marks. Their number is read from the device.

use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::host;

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The places of the elements that are not 0, one row of positions each, i32 `[count, rank]` (`torch.nonzero`), in
    /// row-major order.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0f32, 2.0, 3.0, 0.0], &[2, 2])?;
    /// assert_eq!(x.gt_scalar(1.0)?.nonzero()?.to_vec::<i32>()?, [0, 1, 1, 0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dimension longer than 2³¹ − 1, memory.
    pub fn nonzero(&self) -> Result<Indices<B>> {
        let (shape, flat) = (self.shape(), self.marked()?);
        if let Some(&size) = shape.iter().find(|&&d| i32::try_from(d).is_err()) {
            return Err(Error::invalid("nonzero", "shape", size, "dimensions that fit i32"));
        }
        let strides = shape.strides();
        let mut places = host::room(flat.len().saturating_mul(shape.rank()))?;
        for at in &flat {
            // Every position is below its dimension, which fits.
            places.extend((0..shape.rank()).map(|d| (at / strides[d] % shape[d]) as i32));
        }
        Indices::from_slice(self.backend(), &places, &[flat.len(), shape.rank()])
    }

    /// The row-major places of the elements that are not 0.
    fn marked(&self) -> Result<Vec<usize>> {
        fn marked<T: PartialEq + Default>(values: &[T]) -> Vec<usize> {
            let all = values.iter().enumerate();
            all.filter(|(_, v)| **v != T::default()).map(|(i, _)| i).collect()
        }
        Ok(match self.dtype() {
            DType::I32 => marked(&self.to_vec::<i32>()?),
            _ => marked(&self.to_vec::<u8>()?),
        })
    }

    /// The entries of an axis of `size` entries that this mask marks, as i32 indices.
    fn entries(&self, op: &'static str, size: usize) -> Result<Indices<B>> {
        if i32::try_from(size).is_err() {
            return Err(Error::invalid(op, "mask", size, "at most 2^31 - 1 elements"));
        }
        let flat = self.marked()?;
        let flat = host::collect(flat.iter().map(|&i| i as i32))?;
        Indices::from_slice(self.backend(), &flat, &[flat.len()])
    }
}

/// The entries that `mask` marks of an axis that stands for the leading dimensions of `shape`, and the other dimensions. A
/// `whole` mask covers all dimensions.
fn rows<B: Backend>(
    shape: &Shape,
    mask: &Indices<B>,
    op: &'static str,
    whole: bool,
) -> Result<(Indices<B>, Vec<usize>)> {
    mask.require(op, DType::U8)?;
    let (rank, covers) = (shape.rank(), mask.shape().rank());
    let fits = covers <= rank && (!whole || covers == rank) && shape[..covers] == mask.shape()[..];
    if !fits {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *shape,
            rhs: *mask.shape(),
        });
    }
    Ok((mask.entries(op, mask.size())?, shape[covers..].to_vec()))
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The elements that a u8 mask of the same shape marks, `[count]`, in row-major order (`torch.masked_select`).
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// let x = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0f32, 2.0, 3.0, 0.0], &[2, 2])?;
    /// assert_eq!(x.masked_select(&x.gt_scalar(1.0)?)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A mask of another shape or not u8.
    pub fn masked_select(&self, mask: &Indices<B>) -> Result<Tensor<B>> {
        let (entries, _) = rows(self.shape(), mask, "masked_select", true)?;
        self.reshape(&[-1])?.index_select(0, &entries)
    }

    /// The parts that a u8 mask of the leading dimensions marks, `[count, …]` (`x[mask]` in PyTorch): whole rows of a matrix by
    /// a mask of one dimension, elements by one of its shape.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    /// let kept = Indices::from_slice(&cpu, &[1u8, 0, 1], &[3])?;
    /// assert_eq!(x.mask(&kept)?.to_vec::<f32>()?, [1.0, 2.0, 5.0, 6.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A mask whose dimensions are not the leading ones of this tensor, or that is not u8.
    pub fn mask(&self, mask: &Indices<B>) -> Result<Tensor<B>> {
        let (entries, rest) = rows(self.shape(), mask, "mask", false)?;
        let flat = self.reshape(&[&[mask.size()], &rest[..]].concat())?;
        flat.index_select(0, &entries)
    }
}
