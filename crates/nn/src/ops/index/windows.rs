//! Windows of images as rows, and rows as windows.

use super::Pad;
use crate::autograd::vjp;
use crate::ops::reduce::acc_dtype;
use crate::{Backend, Error, Result, Tensor, Window};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The windows of images as rows (`torch.nn.functional.unfold`, channels-last): `[N, (D, H,) W, C]` to `[N, L, T·C]`, with
    /// L windows in row-major order, and in each the T taps of the kernel in row-major order with their C channels. A
    /// convolution is the product of these rows with a kernel `[O, T·C]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, Window};
    /// let x = Tensor::arange(&kiln_cpu::Cpu::new(), 0.0, 9.0, 1.0, DType::F32)?.reshape(&[1, 3, 3, 1])?;
    /// let rows = x.unfold(&Window::new([2, 2]))?;
    /// assert_eq!(rows.i((0, 0))?.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
    /// assert_eq!(rows.shape().dims(), [1, 4, 4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank that is not the window's and two more, a zero stride or dilation, a kernel larger than the padded image.
    pub fn unfold(&self, window: &Window) -> Result<Tensor<B>> {
        const OP: &str = "unfold";
        window.check(OP)?;
        let rank = window.rank;
        if self.rank() != rank + 2 {
            let expected = ["", "3", "4", "5"][rank.min(3)];
            return Err(Error::Rank {
                op: OP,
                expected,
                rank: self.rank(),
            });
        }
        let first = 3 - rank;
        let (mut padding, mut counts) = (vec![(0, 0); rank + 2], Vec::new());
        for i in 0..rank {
            let size = self.shape()[i + 1];
            let (before, count) = window.output(OP, first + i, size)?;
            let needed = match count {
                0 => 0,
                _ => (count - 1) * window.stride[first + i] + window.extent(first + i),
            };
            padding[i + 1] = (before as isize, needed as isize - before as isize - size as isize);
            counts.push(count);
        }
        // The gradient is a sum over the windows of a pixel, which halves would round at each of them.
        let wide = acc_dtype(self.dtype());
        if self.is_tracked() && wide != self.dtype() {
            return self.to_dtype(wide)?.unfold(window)?.to_dtype(self.dtype());
        }
        let (n, channels) = (self.shape()[0], self.shape()[rank + 1]);
        let taps: usize = window.kernel.iter().product();
        let to = [n, counts.iter().product(), taps.saturating_mul(channels)];
        if counts.contains(&0) {
            return Tensor::zeros(self.backend(), &to, self.dtype());
        }
        let padded = self.pad(&padding, Pad::Constant(0.0))?;
        let tap = |t: usize| {
            let (mut part, mut rest) = (padded.clone(), t);
            for i in (0..rank).rev() {
                let d = first + i;
                let (at, stride) = (rest % window.kernel[d] * window.dilation[d], window.stride[d]);
                rest /= window.kernel[d];
                let end = at + (counts[i] - 1) * stride + 1;
                part = part.slice(i as isize + 1, Some(at as isize), Some(end as isize), stride as isize)?;
            }
            Ok(part)
        };
        let parts: Vec<Tensor<B>> = (0..taps).map(tap).collect::<Result<_>>()?;
        let parts: Vec<&Tensor<B>> = parts.iter().collect();
        Tensor::stack(&parts, -2)?.reshape(&to)
    }

    /// The sums of windows where they overlap (`torch.nn.functional.fold`, channels-last): rows `[N, L, T·C]` as
    /// [`Tensor::unfold`] makes them of images of `size` to images `[N, size…, C]`. It is the gradient of `unfold`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, Window};
    /// let x = Tensor::ones(&kiln_cpu::Cpu::new(), &[1, 3, 3, 1], DType::F32)?;
    /// let window = Window::new([2, 2]);
    /// let counts = x.unfold(&window)?.fold(&window, &[3, 3])?;
    /// assert_eq!(counts.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A size that does not have as many windows as there are rows, those of [`Tensor::unfold`].
    pub fn fold(&self, window: &Window, size: &[usize]) -> Result<Tensor<B>> {
        const OP: &str = "fold";
        let &[n, rows, width] = self.shape().dims() else {
            return Err(Error::Rank {
                op: OP,
                expected: "3",
                rank: self.rank(),
            });
        };
        let wide = acc_dtype(self.dtype());
        if wide != self.dtype() {
            return self.to_dtype(wide)?.fold(window, size)?.to_dtype(self.dtype());
        }
        window.check(OP)?;
        let taps: usize = window.kernel.iter().product();
        let shape = [&[n], size, &[width / taps]].concat();
        let image = Tensor::zeros(self.backend(), &shape, self.dtype())?.requires_grad();
        let back = vjp(&[&image], self, |x| {
            let rows_of = x[0].unfold(window)?;
            if rows_of.shape() != self.shape() {
                let found = format!("{rows} rows of {width}");
                let expected = format!("{} for {size:?}", rows_of.shape());
                return Err(Error::invalid(OP, "rows", found, expected));
            }
            Ok(rows_of)
        })?;
        // Without any window nothing was read.
        back.into_iter().flatten().next().map_or_else(|| image.zeros_like(), Ok)
    }
}
