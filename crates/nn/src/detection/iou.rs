//! Overlaps of every box with every other.

use super::format::{area, check, columns};
use crate::ops::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, Result, Tensor};
use std::f64::consts::PI;

/// The number that keeps denominators from 0 in torchvision's distances.
pub(super) const EPS: f64 = 1e-7;

/// Two sets of boxes by columns, whose shapes broadcast.
pub(super) struct Pairs<B: Backend> {
    pub(super) a: [Tensor<B>; 4],
    pub(super) b: [Tensor<B>; 4],
}

impl<B: Backend> Pairs<B> {
    /// Every box of `a` `[…, N, 4]` with every box of `b` `[…, M, 4]`: columns `[…, N, 1]` and `[…, 1, M]`, in the dtype of arithmetic.
    fn all(op: &'static str, a: &Tensor<B>, b: &Tensor<B>) -> Result<Self> {
        for x in [a, b] {
            check(op, x, (x.rank() < 2).then_some(2))?;
        }
        same_dtype(op, a, b)?;
        let wide = acc_dtype(a.dtype());
        let (a, b) = (a.to_dtype(wide)?.unsqueeze(-2)?, b.to_dtype(wide)?.unsqueeze(-3)?);
        Ok(Pairs {
            a: columns(&a)?,
            b: columns(&b)?,
        })
    }

    /// The area that both have, and that which either has.
    pub(super) fn intersection_and_union(&self) -> Result<(Tensor<B>, Tensor<B>)> {
        let ([ax1, ay1, ax2, ay2], [bx1, by1, bx2, by2]) = (&self.a, &self.b);
        let width = ax2.minimum(bx2)?.sub(&ax1.maximum(bx1)?)?.clamp_min(0.0)?;
        let height = ay2.minimum(by2)?.sub(&ay1.maximum(by1)?)?.clamp_min(0.0)?;
        let both = width.mul(&height)?;
        let union = area(&self.a)?.add(&area(&self.b)?)?.sub(&both)?;
        Ok((both, union))
    }

    /// The width and the height of the smallest box around both.
    pub(super) fn enclosing(&self) -> Result<(Tensor<B>, Tensor<B>)> {
        let ([ax1, ay1, ax2, ay2], [bx1, by1, bx2, by2]) = (&self.a, &self.b);
        let width = ax2.maximum(bx2)?.sub(&ax1.minimum(bx1)?)?;
        let height = ay2.maximum(by2)?.sub(&ay1.minimum(by1)?)?;
        Ok((width, height))
    }

    /// The square of the distance of the middles, in squares of the diagonal of the smallest box around both.
    pub(super) fn distance(&self) -> Result<Tensor<B>> {
        let ([ax1, ay1, ax2, ay2], [bx1, by1, bx2, by2]) = (&self.a, &self.b);
        let (width, height) = self.enclosing()?;
        let diagonal = width.square()?.add(&height.square()?)?.add_scalar(EPS)?;
        let apart = |a1: &Tensor<B>, a2: &Tensor<B>, b1: &Tensor<B>, b2: &Tensor<B>| {
            a1.add(a2)?.sub(&b1.add(b2)?)?.mul_scalar(0.5)?.square()
        };
        apart(ax1, ax2, bx1, bx2)?
            .add(&apart(ay1, ay2, by1, by2)?)?
            .div(&diagonal)
    }

    /// The term of the aspect ratios, α·v, in which α has no gradient.
    pub(super) fn aspect(&self, iou: &Tensor<B>) -> Result<Tensor<B>> {
        // The angle of the diagonal: atan(w/h), but also defined without a height.
        let angle = |[x1, y1, x2, y2]: &[Tensor<B>; 4]| x2.sub(x1)?.atan2(&y2.sub(y1)?);
        let v = angle(&self.a)?
            .sub(&angle(&self.b)?)?
            .square()?
            .mul_scalar(4.0 / (PI * PI))?;
        let held = v.detach();
        let alpha = held.div(&held.sub(&iou.detach())?.add_scalar(1.0 + EPS)?)?;
        v.mul(&alpha)
    }
}

/// Intersection over union `[N, M]` of boxes `[N, 4]` and `[M, 4]` (`torchvision.ops.box_iou`), differentiable. NaN for two boxes without
/// any area. Axes before these, which broadcast, are those of a batch: `[…, N, 4]` and `[…, M, 4]` give `[…, N, M]`.
///
/// ```
/// use kiln_nn::{Tensor, detection::box_iou};
/// # let cpu = kiln_cpu::Cpu::new();
/// let a = Tensor::from_slice(&cpu, &[0f32, 0.0, 2.0, 2.0], &[1, 4])?;
/// let b = Tensor::from_slice(&cpu, &[0f32, 0.0, 1.0, 2.0, 5.0, 5.0, 6.0, 6.0], &[2, 4])?;
/// assert_eq!(box_iou(&a, &b)?.to_vec::<f32>()?, [0.5, 0.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Boxes of another shape, of two dtypes, batches that do not broadcast, memory.
pub fn box_iou<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let (both, union) = Pairs::all("box_iou", a, b)?.intersection_and_union()?;
    both.div(&union)?.to_dtype(a.dtype())
}

/// Generalized intersection over union `[N, M]` of boxes `[N, 4]` and `[M, 4]` (Rezatofighi et al. 2019;
/// `torchvision.ops.generalized_box_iou`), differentiable: the IoU less the share of the smallest box around both that neither covers.
///
/// ```
/// use kiln_nn::{Tensor, detection::generalized_box_iou};
/// # let cpu = kiln_cpu::Cpu::new();
/// let a = Tensor::from_slice(&cpu, &[0f32, 0.0, 1.0, 1.0], &[1, 4])?;
/// let b = Tensor::from_slice(&cpu, &[3f32, 0.0, 4.0, 1.0], &[1, 4])?;
/// assert_eq!(generalized_box_iou(&a, &b)?.to_vec::<f32>()?, [-0.5]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of [`box_iou`].
pub fn generalized_box_iou<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let pairs = Pairs::all("generalized_box_iou", a, b)?;
    let (both, union) = pairs.intersection_and_union()?;
    let (width, height) = pairs.enclosing()?;
    let around = width.mul(&height)?;
    let iou = both.div(&union)?.sub(&around.sub(&union)?.div(&around)?)?;
    iou.to_dtype(a.dtype())
}

/// Distance intersection over union `[N, M]` of boxes `[N, 4]` and `[M, 4]` (Zheng et al. 2020; `torchvision.ops.distance_box_iou`),
/// differentiable: the IoU less the square of the distance of the middles, in squares of the diagonal of the smallest box around both.
///
/// ```
/// use kiln_nn::{Tensor, detection::distance_box_iou};
/// # let cpu = kiln_cpu::Cpu::new();
/// let a = Tensor::from_slice(&cpu, &[0f32, 0.0, 3.0, 4.0], &[1, 4])?;
/// assert_eq!(distance_box_iou(&a, &a)?.to_vec::<f32>()?, [1.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of [`box_iou`].
pub fn distance_box_iou<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let pairs = Pairs::all("distance_box_iou", a, b)?;
    let (both, union) = pairs.intersection_and_union()?;
    both.div(&union)?.sub(&pairs.distance()?)?.to_dtype(a.dtype())
}

/// Complete intersection over union `[N, M]` of boxes `[N, 4]` and `[M, 4]` (Zheng et al. 2020; `torchvision.ops.complete_box_iou`),
/// differentiable: the [`distance_box_iou`] less α·v, where v = 4/π²·(atan(w/h) − atan(w'/h'))² and α = v/(1 − IoU + v). No gradient flows
/// through α.
///
/// ```
/// use kiln_nn::{Tensor, detection::{complete_box_iou, distance_box_iou}};
/// # let cpu = kiln_cpu::Cpu::new();
/// let a = Tensor::from_slice(&cpu, &[0f32, 0.0, 3.0, 4.0], &[1, 4])?;
/// let b = Tensor::from_slice(&cpu, &[0f32, 0.0, 4.0, 3.0], &[1, 4])?;
/// assert!(complete_box_iou(&a, &b)?.item()? < distance_box_iou(&a, &b)?.item()?);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// Those of [`box_iou`].
pub fn complete_box_iou<B: Backend>(a: &Tensor<B>, b: &Tensor<B>) -> Result<Tensor<B>> {
    let pairs = Pairs::all("complete_box_iou", a, b)?;
    let (both, union) = pairs.intersection_and_union()?;
    let iou = both.div(&union)?;
    let complete = iou.sub(&pairs.distance()?)?.sub(&pairs.aspect(&iou)?)?;
    complete.to_dtype(a.dtype())
}
