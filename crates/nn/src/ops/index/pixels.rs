//! Channels as pixels, and pixels as channels.

use crate::{Backend, Error, Result, Tensor};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Blocks of `factor`² channels as blocks of `factor` × `factor` pixels (`torch.nn.functional.pixel_shuffle`, channels-last; Shi et
    /// al. 2016): `[N, H, W, C·factor²]` to `[N, H·factor, W·factor, C]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 4.0, 1.0, DType::F32)?.reshape(&[1, 1, 1, 4])?;
    /// let y = x.pixel_shuffle(2)?;
    /// assert_eq!(y.shape().dims(), [1, 2, 2, 1]);
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is not 4, a factor of 0, channels that its square does not divide.
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Tensor<B>> {
        let [n, h, w, c] = self.image("pixel_shuffle", factor)?;
        let block = factor.saturating_mul(factor);
        if c % block != 0 {
            let expected = format!("a number whose square divides {c} channels");
            return Err(Error::invalid("pixel_shuffle", "factor", factor, expected));
        }
        let blocks = self.reshape(&[n, h, w, c / block, factor, factor])?;
        let pixels = blocks.permute(&[0, 1, 4, 2, 5, 3])?;
        pixels.reshape(&[n, h * factor, w * factor, c / block])
    }

    /// The inverse of [`Tensor::pixel_shuffle`] (`torch.nn.functional.pixel_unshuffle`, channels-last): `[N, H·factor, W·factor, C]`
    /// to `[N, H, W, C·factor²]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::zeros(&cpu, &[1, 6, 4, 3], DType::F32)?;
    /// assert_eq!(x.pixel_unshuffle(2)?.shape().dims(), [1, 3, 2, 12]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is not 4, a factor of 0 or one that does not divide height and width.
    pub fn pixel_unshuffle(&self, factor: usize) -> Result<Tensor<B>> {
        let [n, h, w, c] = self.image("pixel_unshuffle", factor)?;
        if h % factor != 0 || w % factor != 0 {
            let expected = format!("a divisor of height {h} and width {w}");
            return Err(Error::invalid("pixel_unshuffle", "factor", factor, expected));
        }
        let (rows, columns) = (h / factor, w / factor);
        let pixels = self.reshape(&[n, rows, factor, columns, factor, c])?;
        let blocks = pixels.permute(&[0, 1, 3, 5, 2, 4])?;
        blocks.reshape(&[n, rows, columns, c * factor * factor])
    }

    fn image(&self, op: &'static str, factor: usize) -> Result<[usize; 4]> {
        let &[n, h, w, c] = self.shape().dims() else {
            return Err(Error::Rank {
                op,
                expected: "4",
                rank: self.rank(),
            });
        };
        if factor == 0 {
            return Err(Error::invalid(op, "factor", 0, "at least 1"));
        }
        Ok([n, h, w, c])
    }
}
