//! Boxes as offsets from others.

use super::format::{check, columns, joined};
use crate::ops::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Tensor};

/// Boxes as offsets from reference boxes (Girshick et al. 2014; `BoxCoder` of torchvision's detectors): with the middle (x, y) and the size
/// (w, h) of a box and (a, b, c, d) of its reference, the code is ((x − a)/c, (y − b)/d, ln(w/c), ln(h/d)), each times its weight.
///
/// ```
/// use kiln_nn::{Tensor, detection::BoxCoder};
/// # let cpu = kiln_cpu::Cpu::new();
/// let coder = BoxCoder::new([10.0, 10.0, 5.0, 5.0]);
/// let anchors = Tensor::from_slice(&cpu, &[0f32, 0.0, 10.0, 10.0], &[1, 4])?;
/// let boxes = Tensor::from_slice(&cpu, &[5f32, 0.0, 15.0, 10.0], &[1, 4])?;
/// let codes = coder.encode(&boxes, &anchors)?;
/// assert_eq!(codes.to_vec::<f32>()?, [5.0, 0.0, 0.0, 0.0]);
/// assert_eq!(coder.decode(&codes, &anchors)?.to_vec::<f32>()?, [5.0, 0.0, 15.0, 10.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxCoder {
    weights: [f64; 4],
    clip: f64,
}

/// Middles and sizes of boxes.
struct Middles<B: Backend> {
    x: Tensor<B>,
    y: Tensor<B>,
    w: Tensor<B>,
    h: Tensor<B>,
}

impl<B: Backend> Middles<B> {
    fn of(boxes: &Tensor<B>) -> Result<Self> {
        let [x1, y1, x2, y2] = columns(boxes)?;
        let (w, h) = (x2.sub(&x1)?, y2.sub(&y1)?);
        Ok(Middles {
            x: x1.add(&w.mul_scalar(0.5)?)?,
            y: y1.add(&h.mul_scalar(0.5)?)?,
            w,
            h,
        })
    }
}

impl BoxCoder {
    /// A coder with a weight for each of the four numbers; sizes that are decoded grow by at most 1000/16 of those of the reference, as
    /// torchvision's.
    ///
    /// See the example of [`BoxCoder`].
    pub fn new(weights: [f64; 4]) -> Self {
        BoxCoder {
            weights,
            clip: (1000.0f64 / 16.0).ln(),
        }
    }

    /// The codes `[…, 4]` of boxes with the references at their places, both `[…, 4]`; differentiable.
    ///
    /// See the example of [`BoxCoder`].
    ///
    /// # Errors
    /// References of another shape or dtype than the boxes, another shape than `[…, 4]`, memory.
    pub fn encode<B: Backend>(&self, boxes: &Tensor<B>, references: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "box_encode";
        self.agree(OP, boxes, references)?;
        let wide = acc_dtype(boxes.dtype());
        let (b, r) = (
            Middles::of(&boxes.to_dtype(wide)?)?,
            Middles::of(&references.to_dtype(wide)?)?,
        );
        let [wx, wy, ww, wh] = self.weights;
        let codes = [
            b.x.sub(&r.x)?.div(&r.w)?.mul_scalar(wx)?,
            b.y.sub(&r.y)?.div(&r.h)?.mul_scalar(wy)?,
            b.w.div(&r.w)?.log()?.mul_scalar(ww)?,
            b.h.div(&r.h)?.log()?.mul_scalar(wh)?,
        ];
        joined(&codes)?.to_dtype(boxes.dtype())
    }

    /// The boxes `[…, 4]` of codes with the references at their places, both `[…, 4]`; differentiable. References `[N, 1, 4]` serve for all
    /// codes `[N, K, 4]`, one for each of K classes.
    ///
    /// See the example of [`BoxCoder`].
    ///
    /// # Errors
    /// References whose shape does not broadcast to that of the codes, or of another dtype; another shape than `[…, 4]`, memory.
    pub fn decode<B: Backend>(&self, codes: &Tensor<B>, references: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "box_decode";
        check(OP, codes, None)?;
        check(OP, references, None)?;
        same_dtype(OP, codes, references)?;
        let wide = acc_dtype(codes.dtype());
        let r = Middles::of(&references.to_dtype(wide)?)?;
        let [dx, dy, dw, dh] = columns(&codes.to_dtype(wide)?)?;
        let [wx, wy, ww, wh] = self.weights;
        let size = |d: &Tensor<B>, weight: f64, of: &Tensor<B>| {
            d.div_scalar(weight)?
                .clamp_max(self.clip)?
                .exp()?
                .mul(of)?
                .mul_scalar(0.5)
        };
        let x = dx.div_scalar(wx)?.mul(&r.w)?.add(&r.x)?;
        let y = dy.div_scalar(wy)?.mul(&r.h)?.add(&r.y)?;
        let (w, h) = (size(&dw, ww, &r.w)?, size(&dh, wh, &r.h)?);
        joined(&[x.sub(&w)?, y.sub(&h)?, x.add(&w)?, y.add(&h)?])?.to_dtype(codes.dtype())
    }

    fn agree<B: Backend>(&self, op: &'static str, boxes: &Tensor<B>, references: &Tensor<B>) -> Result<()> {
        check(op, boxes, None)?;
        same_dtype(op, boxes, references)?;
        if boxes.shape() != references.shape() {
            let (lhs, rhs) = (*boxes.shape(), *references.shape());
            return Err(Error::ShapeMismatch { op, lhs, rhs });
        }
        Ok(())
    }
}
