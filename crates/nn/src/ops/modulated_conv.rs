//! Convolutions whose input channels are scaled sample by sample.

use crate::{Backend, Error, Result, Tensor};
use kiln_core::ops::{Activation, Window};

const OP: &str = "modulated_conv2d";
/// What keeps the roots of sums of squares from 0.
const EPS: f64 = 1e-8;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// A convolution with weights that a style scales for each sample (`modulated_conv2d` of StyleGAN2, Karras et al. 2020,
    /// channels-last): images `[N, H, W, C]` by `w [O, K, K, C]` with odd `K` and `styles [N, C]` to `[N, H, W, O]`, with zeros around
    /// the images.
    ///
    /// Sample `n` is convolved with `w'[o, y, x, c] = w[o, y, x, c]·styles[n, c]`, and if it is to be demodulated with
    /// `w' / √(Σ w'² + 1e-8)`, the sum over all but `o`. No such weights are made: input channels are scaled before a convolution that all
    /// samples share, and output channels behind it.
    ///
    /// With a `filter` to resample by ([`Tensor::upfirdn2d`]) the result is twice as large, `[N, 2H, 2W, O]`: the images are convolved
    /// with zeros between their pixels and then filtered. The kernel is flipped then, as the original has it.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let rng = &mut Rng::new(0);
    /// let x = Tensor::randn(&cpu, &[2, 8, 8, 3], DType::F32, rng)?;
    /// let w = Tensor::randn(&cpu, &[16, 3, 3, 3], DType::F32, rng)?;
    /// let styles = Tensor::ones(&cpu, &[2, 3], DType::F32)?;
    /// let y = x.modulated_conv2d(&w, &styles, true, None)?;
    /// assert_eq!(y.shape().dims(), [2, 8, 8, 16]);
    /// // A style of twice the size is demodulated again.
    /// let again = x.modulated_conv2d(&w, &styles.mul_scalar(2.0)?, true, None)?;
    /// assert!(again.sub(&y)?.abs()?.max(&[], false)?.item()? < 1e-4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Images or a weight that are not of rank 4, a kernel that is not square with an odd side, channels that differ, styles of another
    /// shape than `[N, C]`, dtypes that differ, and with a filter those of [`Tensor::upfirdn2d`].
    pub fn modulated_conv2d(
        &self,
        w: &Tensor<B>,
        styles: &Tensor<B>,
        demodulate: bool,
        filter: Option<&Tensor<B>>,
    ) -> Result<Tensor<B>> {
        let (expected, rank) = ("4", self.rank());
        let &[n, .., c] = self.shape().dims() else {
            return Err(Error::Rank { op: OP, expected, rank });
        };
        let &[_, _, _, _] = self.shape().dims() else {
            return Err(Error::Rank { op: OP, expected, rank });
        };
        let (expected, rank) = ("4", w.rank());
        let &[outputs, k, across, inputs] = w.shape().dims() else {
            return Err(Error::Rank { op: OP, expected, rank });
        };
        if k != across || k % 2 == 0 {
            return Err(Error::invalid(
                OP,
                "weight",
                w.shape(),
                "a square kernel with an odd side",
            ));
        }
        if inputs != c {
            return Err(Error::invalid(OP, "weight", w.shape(), format!("{c} input channels")));
        }
        if styles.shape().dims() != [n, c] {
            return Err(Error::invalid(OP, "styles", styles.shape(), format!("[{n}, {c}]")));
        }
        let scaled = self.mul(&styles.reshape(&[n, 1, 1, c])?)?;
        let y = match filter {
            None => {
                let window = Window::new([k, k]).padding([k / 2, k / 2]);
                scaled.conv(w, None, &window, 1, Activation::None)?
            }
            Some(filter) => {
                let window = Window::new([k, k]).stride([2, 2]);
                let spread = w.permute(&[3, 1, 2, 0])?;
                let y = scaled.conv_transpose(&spread, None, &window, [0; 3], 1, Activation::None)?;
                // What the original adds around the image, less what the kernel has grown it by.
                let sides = |taps: usize| {
                    let (taps, k) = (taps as isize, k as isize);
                    (k / 2 + (taps + 1) / 2 - (k - 1), k / 2 + (taps - 2) / 2 - (k - 2))
                };
                let (expected, rank) = ("2", filter.rank());
                let &[rows, columns] = filter.shape().dims() else {
                    return Err(Error::Rank { op: OP, expected, rank });
                };
                y.upfirdn2d(filter, (1, 1), [sides(rows), sides(columns)], 4.0)?
            }
        };
        if !demodulate {
            return Ok(y);
        }
        let squares = w.square()?.sum(&[1, 2], false)?;
        let norms = styles.square()?.matmul_t(&squares, false, true)?.add_scalar(EPS)?;
        y.mul(&norms.rsqrt()?.reshape(&[n, 1, 1, outputs])?)
    }
}
