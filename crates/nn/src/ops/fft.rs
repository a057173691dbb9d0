//! Discrete Fourier transforms of complex and of real tensors.

mod tables;
mod transform;

use super::acc_dtype;
use crate::{Backend, Error, Pad, Result, Shape, Tensor};
use transform::dft;

/// How a transform of `n` numbers is scaled (`norm` of `torch.fft.fft`).
///
/// ```
/// use kiln_nn::{Tensor, ops::FftNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?;
/// let y = x.rfft(None, -1, FftNorm::Forward)?; // sums divided by 2
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 0.0, -1.0, 0.0]);
/// assert_eq!(y.irfft(None, -1, FftNorm::Forward)?.to_vec::<f32>()?, [1.0, 3.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FftNorm {
    /// The inverse is divided by `n`.
    #[default]
    Backward,
    /// Both are divided by √n.
    Ortho,
    /// The forward transform is divided by `n`.
    Forward,
}

impl FftNorm {
    fn scale(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (FftNorm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (FftNorm::Backward, true) | (FftNorm::Forward, false) => 1.0 / n as f64,
            _ => 1.0,
        }
    }
}

/// The dimensions of a complex tensor: all but the last, which has the two parts.
fn complex<B: Backend>(op: &'static str, x: &Tensor<B>) -> Result<Shape> {
    match x.shape().split_last() {
        Some((&2, dims)) => Shape::new(dims),
        _ => Err(Error::invalid(
            op,
            "input",
            x.shape(),
            "a last dimension of 2: real and imaginary parts",
        )),
    }
}

/// The first `n` elements along an axis, with zeros after them where there are fewer.
fn fitted<B: Backend>(op: &'static str, x: &Tensor<B>, axis: usize, n: usize) -> Result<Tensor<B>> {
    if n == 0 {
        return Err(Error::invalid(op, "n", n, "1 or more"));
    }
    let now = x.shape()[axis];
    if now >= n {
        return x.narrow(axis as isize, 0, n);
    }
    let mut pads = vec![(0, 0); x.rank()];
    let more = isize::try_from(n - now).map_err(|_| Error::TooLarge { op, dims: vec![n] })?;
    pads[axis].1 = more;
    x.pad(&pads, Pad::Constant(0.0))
}

/// Real numbers as complex ones.
fn with_zeros<B: Backend>(x: &Tensor<B>) -> Result<Tensor<B>> {
    Tensor::stack(&[x, &x.detach().zeros_like()?], -1)
}

/// The bins above the middle of a transform of `n` real numbers, which mirror those below it: all of them, of a tensor of the lower
/// ones.
fn mirrored<B: Backend>(x: &Tensor<B>, axis: usize, n: usize) -> Result<Tensor<B>> {
    let above = n - x.shape()[axis];
    if above == 0 {
        return Ok(x.clone());
    }
    let upper = x.narrow(axis as isize, 1, above)?.flip(&[axis as isize])?;
    let (re, im) = (upper.narrow(-1, 0, 1)?, upper.narrow(-1, 1, 1)?);
    let upper = Tensor::concat(&[&re, &im.neg()?], -1)?;
    Tensor::concat(&[x, &upper], axis as isize)
}

/// Axes with the number of elements that each is transformed with.
fn sized(
    op: &'static str,
    shape: &Shape,
    sizes: Option<&[usize]>,
    axes: &[isize],
) -> Result<Vec<(usize, Option<usize>)>> {
    let rank = shape.rank();
    if let (Some(sizes), false) = (sizes, axes.is_empty())
        && sizes.len() != axes.len()
    {
        let expected = format!("{} numbers, one for each axis", axes.len());
        return Err(Error::invalid(op, "sizes", format!("{sizes:?}"), expected));
    }
    let axes: Vec<usize> = match (axes, sizes) {
        ([], None) => (0..rank).collect(),
        ([], Some(sizes)) if sizes.len() > rank => {
            let expected = format!("at most {rank} numbers, one for each axis");
            return Err(Error::invalid(op, "sizes", format!("{sizes:?}"), expected));
        }
        ([], Some(sizes)) => (rank - sizes.len()..rank).collect(),
        _ => {
            shape.axes(op, axes)?;
            axes.iter().map(|&a| shape.axis(op, a)).collect::<Result<_>>()?
        }
    };
    if axes.is_empty() {
        return Err(Error::invalid(op, "axes", "none", "at least one axis"));
    }
    let size = |i: usize| sizes.and_then(|s| s.get(i).copied());
    Ok(axes.iter().enumerate().map(|(i, &a)| (a, size(i))).collect())
}

/// A transform along several axes, one after the other.
fn along<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    axes: &[(usize, Option<usize>)],
    inverse: bool,
    norm: FftNorm,
) -> Result<Tensor<B>> {
    let mut y = x.to_dtype(acc_dtype(x.dtype()))?;
    for &(axis, n) in axes {
        let n = n.unwrap_or(x.shape()[axis]);
        y = dft(&fitted(op, &y, axis, n)?, axis, inverse, norm.scale(n, inverse))?;
    }
    y.to_dtype(x.dtype())
}

/// An axis, and the size that it is cut or padded to.
type AxisSize = (usize, Option<usize>);

/// The last axis, along which numbers are real, and the others.
fn last_axis<'a>(op: &'static str, axes: &'a [AxisSize]) -> Result<(AxisSize, &'a [AxisSize])> {
    let (&last, others) = axes
        .split_last()
        .ok_or_else(|| Error::invalid(op, "axes", "none", "at least one axis"))?;
    Ok((last, others))
}

/// The transforms of real numbers: along the last axis that of real numbers, along the others complex ones.
fn real<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    axes: &[(usize, Option<usize>)],
    norm: FftNorm,
) -> Result<Tensor<B>> {
    let ((axis, n), others) = last_axis(op, axes)?;
    let wide = x.to_dtype(acc_dtype(x.dtype()))?;
    let n = n.unwrap_or(x.shape()[axis]);
    let y = with_zeros(&fitted(op, &wide, axis, n)?)?;
    let y = dft(&y, axis, false, norm.scale(n, false))?;
    let y = y.narrow(axis as isize, 0, n / 2 + 1)?;
    along(op, &y, others, false, norm)?.to_dtype(x.dtype())
}

/// The inverse of [`real`].
fn inverse_real<B: Backend>(
    op: &'static str,
    x: &Tensor<B>,
    axes: &[(usize, Option<usize>)],
    norm: FftNorm,
) -> Result<Tensor<B>> {
    let ((axis, n), others) = last_axis(op, axes)?;
    let n = match n {
        Some(n) => n,
        None => x.shape()[axis].saturating_sub(1).saturating_mul(2),
    };
    if n == 0 {
        return Err(Error::invalid(
            op,
            "n",
            n,
            "1 or more; by default it is twice the bins less 2",
        ));
    }
    let y = along(op, &x.to_dtype(acc_dtype(x.dtype()))?, others, true, norm)?;
    let y = mirrored(&fitted(op, &y, axis, n / 2 + 1)?, axis, n)?;
    let y = dft(&y, axis, true, norm.scale(n, true))?;
    y.narrow(-1, 0, 1)?.squeeze(-1)?.to_dtype(x.dtype())
}

/// # Fourier transforms
///
/// A complex tensor is one of floats with a last dimension of 2, the real and the imaginary part, as `torch.view_as_real` gives;
/// `axis` counts the dimensions before it. Halves are transformed in f32. A transform of `n` numbers takes O(n log n) operations, whatever
/// its factors are (Cooley and Tukey 1965; Bluestein 1970). Its tables are made on the host, in f64: it cannot be part of a captured step.
#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The transform of complex numbers along an axis, `y[k] = Σ x[j]·e^(−2πi·jk/n)` (`torch.fft.fft`): `[…, m, …, 2]` to `[…, n, …, 2]`.
    /// `n` is the size of the axis by default; one that is smaller cuts, a larger one adds zeros.
    ///
    /// ```
    /// use kiln_nn::{Tensor, ops::FftNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 0.0, 0.0, 2.0], &[2, 2])?; // 1, 2i
    /// let y = x.fft(None, -1, FftNorm::Backward)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 1.0, -2.0]); // 1 + 2i, 1 − 2i
    /// assert_eq!(y.ifft(None, -1, FftNorm::Backward)?.to_vec::<f32>()?, x.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A last dimension other than 2, an axis out of range, an `n` of 0.
    pub fn fft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Tensor<B>> {
        let axis = complex("fft", self)?.axis("fft", axis)?;
        along("fft", self, &[(axis, n)], false, norm)
    }

    /// The inverse of [`Tensor::fft`] (`torch.fft.ifft`).
    ///
    /// See the example of [`Tensor::fft`].
    ///
    /// # Errors
    /// As [`Tensor::fft`].
    pub fn ifft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Tensor<B>> {
        let axis = complex("ifft", self)?.axis("ifft", axis)?;
        along("ifft", self, &[(axis, n)], true, norm)
    }

    /// The transform of real numbers along an axis (`torch.fft.rfft`): `[…, m, …]` to `[…, n/2 + 1, …, 2]`, the bins up to the
    /// middle; those above it mirror them. `n` as in [`Tensor::fft`].
    ///
    /// ```
    /// use kiln_nn::{Tensor, ops::FftNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0], &[3])?;
    /// let y = x.rfft(Some(4), -1, FftNorm::Backward)?;
    /// assert_eq!(y.to_vec::<f32>()?, [6.0, 0.0, -2.0, -2.0, 2.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis out of range, an `n` of 0.
    pub fn rfft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Tensor<B>> {
        let axis = self.shape().axis("rfft", axis)?;
        real("rfft", self, &[(axis, n)], norm)
    }

    /// The inverse of [`Tensor::rfft`] (`torch.fft.irfft`): `[…, m, …, 2]` to `[…, n, …]`, of bins up to the middle. `n` is 2(m − 1)
    /// by default; bins beyond n/2 are cut, missing ones are 0. The imaginary parts of the first bin, and of the middle one for an even
    /// `n`, count as 0.
    ///
    /// ```
    /// use kiln_nn::{Tensor, ops::FftNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f64, 2.0, 4.0], &[3])?;
    /// let y = x.rfft(None, -1, FftNorm::Ortho)?;
    /// let back = y.irfft(Some(3), -1, FftNorm::Ortho)?.to_f64()?;
    /// assert!(back.iter().zip([1.0, 2.0, 4.0]).all(|(a, b)| (a - b).abs() < 1e-14));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A last dimension other than 2, an axis out of range, an `n` of 0.
    pub fn irfft(&self, n: Option<usize>, axis: isize, norm: FftNorm) -> Result<Tensor<B>> {
        let axis = complex("irfft", self)?.axis("irfft", axis)?;
        inverse_real("irfft", self, &[(axis, n)], norm)
    }

    /// [`Tensor::fft`] along several axes (`torch.fft.fftn`; the last two of them are `torch.fft.fft2`). No axes stand for the last
    /// ones that have `sizes`, or for all.
    ///
    /// ```
    /// use kiln_nn::{Tensor, ops::FftNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let image = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let bins = image.rfftn(None, &[], FftNorm::Backward)?;
    /// assert_eq!(bins.to_vec::<f32>()?, [10.0, 0.0, -2.0, 0.0, -4.0, 0.0, 0.0, 0.0]);
    /// let again = bins.ifftn(None, &[], FftNorm::Backward)?.fftn(None, &[-2, -1], FftNorm::Backward)?;
    /// assert_eq!(again.to_vec::<f32>()?, bins.to_vec::<f32>()?);
    /// assert_eq!(bins.irfftn(None, &[], FftNorm::Backward)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::fft`]; an axis that is named twice, another number of sizes than of axes.
    pub fn fftn(&self, sizes: Option<&[usize]>, axes: &[isize], norm: FftNorm) -> Result<Tensor<B>> {
        let axes = sized("fftn", &complex("fftn", self)?, sizes, axes)?;
        along("fftn", self, &axes, false, norm)
    }

    /// The inverse of [`Tensor::fftn`] (`torch.fft.ifftn`, `torch.fft.ifft2`).
    ///
    /// See the example of [`Tensor::fftn`].
    ///
    /// # Errors
    /// As [`Tensor::fftn`].
    pub fn ifftn(&self, sizes: Option<&[usize]>, axes: &[isize], norm: FftNorm) -> Result<Tensor<B>> {
        let axes = sized("ifftn", &complex("ifftn", self)?, sizes, axes)?;
        along("ifftn", self, &axes, true, norm)
    }

    /// [`Tensor::rfft`] along the last of several axes, [`Tensor::fft`] along the others (`torch.fft.rfftn`, `torch.fft.rfft2`): the last
    /// one has n/2 + 1 bins.
    ///
    /// See the example of [`Tensor::fftn`].
    ///
    /// # Errors
    /// As [`Tensor::fftn`], but for the last dimension.
    pub fn rfftn(&self, sizes: Option<&[usize]>, axes: &[isize], norm: FftNorm) -> Result<Tensor<B>> {
        let axes = sized("rfftn", self.shape(), sizes, axes)?;
        real("rfftn", self, &axes, norm)
    }

    /// The inverse of [`Tensor::rfftn`] (`torch.fft.irfftn`, `torch.fft.irfft2`): [`Tensor::ifft`] along all axes but the last, then
    /// [`Tensor::irfft`].
    ///
    /// See the example of [`Tensor::fftn`].
    ///
    /// # Errors
    /// As [`Tensor::fftn`].
    pub fn irfftn(&self, sizes: Option<&[usize]>, axes: &[isize], norm: FftNorm) -> Result<Tensor<B>> {
        let axes = sized("irfftn", &complex("irfftn", self)?, sizes, axes)?;
        inverse_real("irfftn", self, &axes, norm)
    }
}
