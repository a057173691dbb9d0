//! Average pooling with a divisor of one's own.

use crate::ops::acc_dtype;
use crate::{Backend, Error, Result, Tensor, Window};
use kiln_core::ops::PoolParams;

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The sum of each window divided by `divisor` (`torch.nn.functional.avg_pool2d` and `torch.nn.functional.avg_pool3d` with
    /// `divisor_override`, channels-last): `[N, (D, H,) W, C] → [N, …, C]`.
    ///
    /// ```
    /// # use kiln_nn::{Tensor, Window};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[4f32, 2.0, 2.0, 3.0], &[1, 4, 1])?;
    /// let y = x.avg_pool_by(&Window::new([2]).stride([2]), false, 1)?;
    /// assert_eq!(y.to_vec::<f32>()?, [6.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A divisor of 0; as [`Tensor::avg_pool`].
    pub fn avg_pool_by(&self, window: &Window, ceil_mode: bool, divisor: isize) -> Result<Tensor<B>> {
        const OP: &str = "avg_pool";
        if divisor == 0 {
            return Err(Error::invalid(OP, "divisor", divisor, "a whole number other than 0"));
        }
        let wide = self.to_dtype(acc_dtype(self.dtype()))?;
        let mut y = wide.avg_pool(window, ceil_mode, true)?;
        let (p, _) = PoolParams::new(OP, self.shape(), window, ceil_mode, true)?;
        let w = &p.window;
        let mut factor = 1.0 / divisor as f64;
        // A mean is multiplied by the number that it was divided by: fewer where a window hangs over the padding's end.
        for (i, axis) in (3 - window.rank..3).zip(1..) {
            let [kernel, stride, padding] = [w.kernel[i], w.stride[i], w.padding[i]].map(f64::from);
            let (end, output) = (f64::from(w.input[i]) + padding, w.output[i] as usize);
            if (output as f64 - 1.0) * stride - padding + kernel <= end {
                factor *= kernel;
                continue;
            }
            let ones = Tensor::ones(y.backend(), &[output], y.dtype())?;
            let from = ones.cumsum(0)?.affine(stride, -stride - padding)?;
            let count = from.add_scalar(kernel)?.clamp_max(end)?.sub(&from)?;
            let mut dims = vec![1; y.rank() - axis];
            dims[0] = output;
            y = y.mul(&count.reshape(&dims)?)?;
        }
        y.mul_scalar(factor)?.to_dtype(self.dtype())
    }
}
