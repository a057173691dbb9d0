//! Images with zeros between their pixels, padded, filtered and thinned out.

use super::index::Pad;
use crate::{Backend, Error, Result, Tensor};
use kiln_core::ops::{Activation, Window};

const OP: &str = "upfirdn2d";

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Filters images at another resolution (`upfirdn2d` of StyleGAN, Karras et al. 2020, channels-last; `scipy.signal.upfirdn` in two
    /// dimensions): `[N, H, W, C]` by a filter `[FH, FW]` to `[N, H', W', C]`, each channel by itself.
    ///
    /// Behind each pixel come `up − 1` zeros, rows and columns alike; then `padding` is added before and after the rows and the
    /// columns, where negative numbers crop; then the image is convolved with the filter times `gain`; then each `down`-th pixel is
    /// kept: `H' = (H·up + before + after − FH) / down + 1`. A filter whose sum is 1 keeps the brightness with a gain of `up²`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let row = Tensor::from_slice(&cpu, &[1f32, 3.0, 3.0, 1.0], &[1, 4])?;
    /// let filter = row.transpose(0, 1)?.matmul(&row)?.div_scalar(64.0)?;
    /// let x = Tensor::ones(&cpu, &[1, 4, 4, 3], DType::F32)?;
    /// let large = x.upfirdn2d(&filter, (2, 1), [(2, 1), (2, 1)], 4.0)?;
    /// assert_eq!(large.shape().dims(), [1, 8, 8, 3]);
    /// assert_eq!(large.i((0, 4, 4, 0))?.item()?, 1.0);
    /// assert_eq!(large.upfirdn2d(&filter, (1, 2), [(1, 1), (1, 1)], 1.0)?.shape().dims(), [1, 4, 4, 3]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Images that are not of rank 4, a filter that is not of rank 2, is empty or is larger than the padded image, a factor of 0,
    /// cropping more than there is, dtypes that differ.
    pub fn upfirdn2d(
        &self,
        filter: &Tensor<B>,
        (up, down): (usize, usize),
        [rows, columns]: [(isize, isize); 2],
        gain: f64,
    ) -> Result<Tensor<B>> {
        let (expected, rank) = ("4", self.rank());
        let &[n, h, w, c] = self.shape().dims() else {
            return Err(Error::Rank { op: OP, expected, rank });
        };
        let (expected, rank) = ("2", filter.rank());
        let &[fh, fw] = filter.shape().dims() else {
            return Err(Error::Rank { op: OP, expected, rank });
        };
        if fh == 0 || fw == 0 {
            return Err(Error::invalid(OP, "filter", filter.shape(), "a number at least"));
        }
        for (name, factor) in [("up", up), ("down", down)] {
            if !(1..=isize::MAX as usize).contains(&factor) {
                return Err(Error::invalid(OP, name, factor, "1 or more"));
            }
        }
        let zeros = Pad::Constant(0.0);
        let mut x = self.clone();
        if up > 1 {
            let behind = (0, up as isize - 1);
            let apart = x.reshape(&[n, h, 1, w, 1, c])?;
            let apart = apart.pad(&[(0, 0), (0, 0), behind, (0, 0), behind, (0, 0)], zeros)?;
            x = apart.reshape(&[n, h.saturating_mul(up), w.saturating_mul(up), c])?;
        }
        let mut window = Window::new([fh, fw]).stride([down, down]);
        match [rows, columns] {
            [(0, 0), (0, 0)] => {}
            // Padding that is the same at both ends is part of the convolution.
            [(top, bottom), (left, right)] if top == bottom && left == right && top >= 0 && left >= 0 => {
                window = window.padding([top as usize, left as usize]);
            }
            _ => x = x.pad(&[(0, 0), rows, columns, (0, 0)], zeros)?,
        }
        // The ops of networks do not flip their kernels.
        let kernel = filter.flip(&[0, 1])?.mul_scalar(gain)?;
        let kernel = kernel.reshape(&[1, fh, fw, 1])?.broadcast_to(&[c, fh, fw, 1])?;
        x.conv(&kernel, None, &window, c, Activation::None)
    }
}
