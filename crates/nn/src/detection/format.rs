//! Boxes as tensors: their formats, areas and bounds.

use crate::ops::acc_dtype;
use crate::{Backend, Error, Result, Tensor};

/// The meaning of the four numbers of a box.
///
/// See the example of [`box_convert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoxFormat {
    /// Two corners: left, top, right, bottom.
    Xyxy,
    /// A corner and the size: left, top, width, height, as COCO's annotations.
    Xywh,
    /// The middle and the size: x, y, width, height, as YOLO's annotations.
    Cxcywh,
}

/// Refuses a tensor that is not `[…, 4]`, or has another rank than the given one.
pub(super) fn check<B: Backend>(op: &'static str, boxes: &Tensor<B>, rank: Option<usize>) -> Result<()> {
    if boxes.shape().last() != Some(&4) || rank.is_some_and(|rank| rank != boxes.rank()) {
        let expected = if rank.is_some() { "[N, 4]" } else { "[…, 4]" };
        return Err(Error::invalid(op, "boxes", boxes.shape(), expected));
    }
    Ok(())
}

/// The four columns of boxes `[…, 4]`, each `[…]`.
pub(super) fn columns<B: Backend>(boxes: &Tensor<B>) -> Result<[Tensor<B>; 4]> {
    let column = |i| boxes.narrow(-1, i, 1)?.squeeze(-1);
    Ok([column(0)?, column(1)?, column(2)?, column(3)?])
}

/// Boxes `[…, 4]` of four columns.
pub(super) fn joined<B: Backend>(columns: &[Tensor<B>; 4]) -> Result<Tensor<B>> {
    let columns: Vec<&Tensor<B>> = columns.iter().collect();
    Tensor::stack(&columns, -1)
}

/// Boxes `[…, 4]` in another format (`torchvision.ops.box_convert`), differentiable.
///
/// ```
/// use kiln_nn::Tensor;
/// use kiln_nn::detection::{BoxFormat, box_convert};
/// # let cpu = kiln_cpu::Cpu::new();
/// let corners = Tensor::from_slice(&cpu, &[10f32, 20.0, 30.0, 60.0], &[1, 4])?;
/// let middle = box_convert(&corners, BoxFormat::Xyxy, BoxFormat::Cxcywh)?;
/// assert_eq!(middle.to_vec::<f32>()?, [20.0, 40.0, 20.0, 40.0]);
/// let size = box_convert(&middle, BoxFormat::Cxcywh, BoxFormat::Xywh)?;
/// assert_eq!(size.to_vec::<f32>()?, [10.0, 20.0, 20.0, 40.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another shape than `[…, 4]`, memory.
pub fn box_convert<B: Backend>(boxes: &Tensor<B>, from: BoxFormat, to: BoxFormat) -> Result<Tensor<B>> {
    check("box_convert", boxes, None)?;
    if from == to {
        return Ok(boxes.clone());
    }
    let [a, b, c, d] = columns(&boxes.to_dtype(acc_dtype(boxes.dtype()))?)?;
    let [x1, y1, x2, y2] = match from {
        BoxFormat::Xyxy => [a, b, c, d],
        BoxFormat::Xywh => [a.clone(), b.clone(), a.add(&c)?, b.add(&d)?],
        BoxFormat::Cxcywh => {
            let (w, h) = (c.mul_scalar(0.5)?, d.mul_scalar(0.5)?);
            [a.sub(&w)?, b.sub(&h)?, a.add(&w)?, b.add(&h)?]
        }
    };
    let converted = joined(&match to {
        BoxFormat::Xyxy => [x1, y1, x2, y2],
        BoxFormat::Xywh => [x1.clone(), y1.clone(), x2.sub(&x1)?, y2.sub(&y1)?],
        BoxFormat::Cxcywh => [
            x1.add(&x2)?.mul_scalar(0.5)?,
            y1.add(&y2)?.mul_scalar(0.5)?,
            x2.sub(&x1)?,
            y2.sub(&y1)?,
        ],
    })?;
    converted.to_dtype(boxes.dtype())
}

/// The areas `[…]` of boxes `[…, 4]` (`torchvision.ops.box_area`), differentiable.
///
/// ```
/// use kiln_nn::{Tensor, detection::box_area};
/// # let cpu = kiln_cpu::Cpu::new();
/// let boxes = Tensor::from_slice(&cpu, &[10f32, 20.0, 30.0, 60.0], &[1, 4])?;
/// assert_eq!(box_area(&boxes)?.to_vec::<f32>()?, [800.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another shape than `[…, 4]`, memory.
pub fn box_area<B: Backend>(boxes: &Tensor<B>) -> Result<Tensor<B>> {
    check("box_area", boxes, None)?;
    area(&columns(&boxes.to_dtype(acc_dtype(boxes.dtype()))?)?)?.to_dtype(boxes.dtype())
}

/// The area of boxes of four columns.
pub(super) fn area<B: Backend>([x1, y1, x2, y2]: &[Tensor<B>; 4]) -> Result<Tensor<B>> {
    x2.sub(x1)?.mul(&y2.sub(y1)?)
}

/// Boxes `[…, 4]` with their corners moved into an image of `(height, width)` (`torchvision.ops.clip_boxes_to_image`), differentiable.
///
/// ```
/// use kiln_nn::{Tensor, detection::clip_boxes_to_image};
/// # let cpu = kiln_cpu::Cpu::new();
/// let boxes = Tensor::from_slice(&cpu, &[-3f32, 2.0, 30.0, 4.0], &[1, 4])?;
/// assert_eq!(clip_boxes_to_image(&boxes, (16, 20))?.to_vec::<f32>()?, [0.0, 2.0, 20.0, 4.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Another shape than `[…, 4]`, memory.
pub fn clip_boxes_to_image<B: Backend>(boxes: &Tensor<B>, (height, width): (usize, usize)) -> Result<Tensor<B>> {
    check("clip_boxes_to_image", boxes, None)?;
    let [x1, y1, x2, y2] = columns(boxes)?;
    let (h, w) = (height as f64, width as f64);
    joined(&[
        x1.clamp(0.0, w)?,
        y1.clamp(0.0, h)?,
        x2.clamp(0.0, w)?,
        y2.clamp(0.0, h)?,
    ])
}
