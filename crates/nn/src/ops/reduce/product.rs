//! Products over axes and running products, composed of elementwise ones.

use super::acc_dtype;
use crate::autograd::Cast;
use crate::{Backend, Result, Tensor};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The product over `axes` (`torch.prod`); 1 for an empty product. Pairs are multiplied in a tree, so that gradients are right
    /// where elements are zero, and products of halves are rounded once.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.prod(&[0], false)?.to_vec::<f32>()?, [3.0, 8.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range or named twice.
    pub fn prod(&self, axes: &[isize], keep_dim: bool) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.prod(axes, keep_dim);
        }
        let shape = *self.shape();
        let reduced = shape.axes("prod", axes)?;
        let all = axes.is_empty();
        let mut y = self.to_dtype(acc_dtype(self.dtype()))?;
        for axis in (0..shape.rank()).filter(|&i| all || reduced[i]) {
            y = y.multiplied(axis)?;
        }
        let kept = (0..shape.rank()).filter(|&i| keep_dim || !(all || reduced[i]));
        let dims: Vec<usize> = kept.map(|i| y.shape()[i]).collect();
        y.reshape(&dims)?.to_dtype(self.dtype())
    }

    /// The product along one axis, whose size becomes 1.
    fn multiplied(&self, axis: usize) -> Result<Tensor<B>> {
        let (mut y, along) = (self.clone(), axis as isize);
        if y.shape()[axis] == 0 {
            // A sum of nothing, so that the result is tracked.
            return self.sum(&[along], true)?.add_scalar(1.0);
        }
        while y.shape()[axis] > 1 {
            let n = y.shape()[axis];
            let half = n / 2;
            let pairs = y.narrow(along, 0, half)?.mul(&y.narrow(along, half, half)?)?;
            y = match n % 2 {
                0 => pairs,
                _ => Tensor::concat(&[&pairs, &y.narrow(along, n - 1, 1)?], along)?,
            };
        }
        Ok(y)
    }

    /// `y[j] = Π_{l ≤ j} x[l]` along `axis` (`torch.cumprod`), by doubling: ⌈log₂ n⌉ elementwise products.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(x.cumprod(0)?.to_vec::<f32>()?, [1.0, 2.0, 6.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range.
    pub fn cumprod(&self, axis: isize) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::high() {
            return cast.of(self)?.cumprod(axis);
        }
        let n = self.shape()[self.shape().axis("cumprod", axis)?];
        let mut y = self.to_dtype(acc_dtype(self.dtype()))?;
        let mut done = 1;
        while done < n {
            let later = y.narrow(axis, done, n - done)?.mul(&y.narrow(axis, 0, n - done)?)?;
            y = Tensor::concat(&[&y.narrow(axis, 0, done)?, &later], axis)?;
            done *= 2;
        }
        y.to_dtype(self.dtype())
    }
}
