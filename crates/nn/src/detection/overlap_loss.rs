//! Losses of boxes by their overlap with the right ones.

use super::format::{check, columns};
use super::iou::{EPS, Pairs};
use crate::ops::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Reduction, Result, Tensor};

impl<B: Backend> Pairs<B> {
    /// Each box of `a` `[…, 4]` with that of `b` at its place, in the dtype of arithmetic.
    fn each(op: &'static str, a: &Tensor<B>, b: &Tensor<B>) -> Result<Self> {
        check(op, a, None)?;
        same_dtype(op, a, b)?;
        if a.shape() != b.shape() {
            let (lhs, rhs) = (*a.shape(), *b.shape());
            return Err(Error::ShapeMismatch { op, lhs, rhs });
        }
        let wide = acc_dtype(a.dtype());
        Ok(Pairs {
            a: columns(&a.to_dtype(wide)?)?,
            b: columns(&b.to_dtype(wide)?)?,
        })
    }

    /// Intersection over union with a denominator above 0.
    fn iou(&self) -> Result<Tensor<B>> {
        let (both, union) = self.intersection_and_union()?;
        both.div(&union.add_scalar(EPS)?)
    }
}

/// The reduction of losses; the mean of none is 0, as in torchvision.
fn reduced<B: Backend>(losses: &Tensor<B>, like: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
    let reduced = match reduction {
        Reduction::Mean if losses.size() > 0 => losses.mean(&[], false)?,
        Reduction::Mean | Reduction::Sum => losses.sum(&[], false)?,
        Reduction::None => losses.clone(),
    };
    reduced.to_dtype(like.dtype())
}

/// 1 − GIoU of boxes and targets `[…, 4]` (`torchvision.ops.generalized_box_iou_loss`): a loss `[…]` for each box, or its reduction.
///
/// ```
/// use kiln_nn::{Reduction, Tensor, detection::generalized_box_iou_loss};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[0f32, 0.0, 1.0, 1.0], &[1, 4])?;
/// let t = Tensor::from_slice(&cpu, &[3f32, 0.0, 4.0, 1.0], &[1, 4])?;
/// assert!((generalized_box_iou_loss(&x, &t, Reduction::Mean)?.item()? - 1.5).abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// A target of another shape or dtype, another shape than `[…, 4]`, memory.
pub fn generalized_box_iou_loss<B: Backend>(
    boxes: &Tensor<B>,
    target: &Tensor<B>,
    reduction: Reduction,
) -> Result<Tensor<B>> {
    let pairs = Pairs::each("generalized_box_iou_loss", boxes, target)?;
    let (both, union) = pairs.intersection_and_union()?;
    let (width, height) = pairs.enclosing()?;
    let around = width.mul(&height)?;
    let outside = around.sub(&union)?.div(&around.add_scalar(EPS)?)?;
    let iou = both.div(&union.add_scalar(EPS)?)?;
    reduced(&outside.sub(&iou)?.add_scalar(1.0)?, boxes, reduction)
}

/// 1 − DIoU of boxes and targets `[…, 4]` (`torchvision.ops.distance_box_iou_loss`): a loss `[…]` for each box, or its reduction.
///
/// ```
/// use kiln_nn::{Reduction, Tensor, detection::distance_box_iou_loss};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[0f32, 0.0, 3.0, 4.0], &[1, 4])?;
/// assert!(distance_box_iou_loss(&x, &x, Reduction::Mean)?.item()?.abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of [`generalized_box_iou_loss`].
pub fn distance_box_iou_loss<B: Backend>(
    boxes: &Tensor<B>,
    target: &Tensor<B>,
    reduction: Reduction,
) -> Result<Tensor<B>> {
    let pairs = Pairs::each("distance_box_iou_loss", boxes, target)?;
    let losses = pairs.distance()?.sub(&pairs.iou()?)?.add_scalar(1.0)?;
    reduced(&losses, boxes, reduction)
}

/// 1 − CIoU of boxes and targets `[…, 4]` (`torchvision.ops.complete_box_iou_loss`): a loss `[…]` for each box, or its reduction. No
/// gradient flows through the weight α of the aspect ratios.
///
/// ```
/// use kiln_nn::{Reduction, Tensor, detection::complete_box_iou_loss};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[0f32, 0.0, 3.0, 4.0], &[1, 4])?;
/// assert!(complete_box_iou_loss(&x, &x, Reduction::Mean)?.item()?.abs() < 1e-6);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of [`generalized_box_iou_loss`].
pub fn complete_box_iou_loss<B: Backend>(
    boxes: &Tensor<B>,
    target: &Tensor<B>,
    reduction: Reduction,
) -> Result<Tensor<B>> {
    let pairs = Pairs::each("complete_box_iou_loss", boxes, target)?;
    let iou = pairs.iou()?;
    let losses = pairs
        .distance()?
        .sub(&iou)?
        .add(&pairs.aspect(&iou)?)?
        .add_scalar(1.0)?;
    reduced(&losses, boxes, reduction)
}
