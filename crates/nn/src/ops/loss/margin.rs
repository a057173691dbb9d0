//! Distances of vectors, and losses that compare them with a margin.

use super::pointwise::{finish, operands};
use super::{Reduction, agree, narrowed, widened};
use crate::{Backend, Error, Result, Tensor};

/// The options of [`Tensor::triplet_margin_loss`].
///
/// ```
/// # use kiln_nn::TripletOptions;
/// let options = TripletOptions { margin: 0.2, ..Default::default() };
/// assert_eq!((options.margin, options.p), (0.2, 2.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletOptions {
    /// The distance by which the negative should be farther than the positive, 1 by default.
    pub margin: f64,
    /// The order of the norm, 2 by default.
    pub p: f64,
    /// The number added to each difference, 1e-6 by default.
    pub eps: f64,
    /// Compares with the distance between positive and negative where that is the smaller (Balntas et al. 2016).
    pub swap: bool,
    /// The reduction over the vectors, the mean by default.
    pub reduction: Reduction,
}

impl Default for TripletOptions {
    fn default() -> Self {
        TripletOptions {
            margin: 1.0,
            p: 2.0,
            eps: 1e-6,
            swap: false,
            reduction: Reduction::Mean,
        }
    }
}

/// Refuses labels of another shape or dtype than the losses they belong to.
fn labels<B: Backend>(op: &'static str, losses: &Tensor<B>, x: &Tensor<B>, target: &Tensor<B>) -> Result<Tensor<B>> {
    agree(op, x, target)?;
    if losses.shape() != target.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *losses.shape(),
            rhs: *target.shape(),
        });
    }
    widened(target)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The cosine of the angle between vectors along `axis`, `x·y / (max(‖x‖, eps)·max(‖y‖, eps))`
    /// (`torch.nn.functional.cosine_similarity`, whose eps is 1e-8 by default). The axis is dropped.
    ///
    /// ```
    /// # use kiln_nn::Tensor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 0.0, 0.0, 2.0], &[2, 2])?;
    /// let y = Tensor::from_slice(&cpu, &[5f32, 0.0, 3.0, 0.0], &[2, 2])?;
    /// assert_eq!(x.cosine_similarity(&y, -1, 1e-8)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes that do not broadcast, another dtype, an axis out of range.
    pub fn cosine_similarity(&self, other: &Tensor<B>, axis: isize, eps: f64) -> Result<Tensor<B>> {
        const OP: &str = "cosine_similarity";
        agree(OP, self, other)?;
        let shape = self.shape().broadcast(OP, other.shape())?;
        let [x, y] = [
            widened(self)?.broadcast_to(&shape)?,
            widened(other)?.broadcast_to(&shape)?,
        ];
        let length = |x: &Tensor<B>| x.norm(2.0, &[axis], false)?.clamp_min(eps);
        let product = x.mul(&y)?.sum(&[axis], false)?;
        narrowed(&product.div(&length(&x)?.mul(&length(&y)?)?)?, self)
    }

    /// The p-norm of `self − other + eps` along the last axis, which is dropped (`torch.nn.functional.pairwise_distance`, whose eps
    /// is 1e-6 by default).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[3f32, 4.0], &[1, 2])?, Tensor::zeros(&cpu, &[1, 2], DType::F32)?);
    /// assert_eq!(x.pairwise_distance(&y, 2.0, 0.0)?.to_vec::<f32>()?, [5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another shape or dtype, a scalar; the orders that [`Tensor::norm`] refuses.
    pub fn pairwise_distance(&self, other: &Tensor<B>, p: f64, eps: f64) -> Result<Tensor<B>> {
        let [x, y] = operands("pairwise_distance", self, other)?;
        let distance = x.sub(&y)?.add_scalar(eps)?.norm(p, &[-1], false)?;
        narrowed(&distance, self)
    }

    /// max(0, margin + d(x, positive) − d(x, negative)) of vectors along the last axis, with d of [`Tensor::pairwise_distance`]
    /// (`torch.nn.functional.triplet_margin_loss`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor, TripletOptions};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let anchor = Tensor::zeros(&cpu, &[1, 1], DType::F32)?;
    /// let (near, far) = (anchor.add_scalar(1.0)?, anchor.add_scalar(2.5)?);
    /// let options = TripletOptions { margin: 2.0, eps: 0.0, ..Default::default() };
    /// assert_eq!(anchor.triplet_margin_loss(&near, &far, &options)?.item()?, 0.5);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another shape or dtype, a scalar.
    pub fn triplet_margin_loss(
        &self,
        positive: &Tensor<B>,
        negative: &Tensor<B>,
        options: &TripletOptions,
    ) -> Result<Tensor<B>> {
        let [x, positive] = operands("triplet_margin_loss", self, positive)?;
        let [_, negative] = operands("triplet_margin_loss", self, negative)?;
        let distance = |x: &Tensor<B>, y: &Tensor<B>| x.pairwise_distance(y, options.p, options.eps);
        let mut far = distance(&x, &negative)?;
        if options.swap {
            far = far.minimum(&distance(&positive, &negative)?)?;
        }
        let losses = distance(&x, &positive)?.sub(&far)?.add_scalar(options.margin)?;
        finish(self, &losses.clamp_min(0.0)?, options.reduction)
    }

    /// 1 − cos of vectors along the last axis whose target is 1, max(0, cos − margin) of those whose target is −1
    /// (`torch.nn.functional.cosine_embedding_loss`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 0.0], &[1, 2])?;
    /// let (y, alike) = (Tensor::from_slice(&cpu, &[0f32, 1.0], &[1, 2])?, Tensor::ones(&cpu, &[1], DType::F32)?);
    /// assert_eq!(x.cosine_embedding_loss(&y, &alike, 0.0, Reduction::Mean)?.item()?, 1.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another shape or dtype, a target that has not one number for each vector.
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor<B>,
        target: &Tensor<B>,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        const OP: &str = "cosine_embedding_loss";
        let [x, y] = operands(OP, self, other)?;
        let squares = |x: &Tensor<B>| x.square()?.sum(&[-1], false)?.add_scalar(1e-12);
        let cosine = x
            .mul(&y)?
            .sum(&[-1], false)?
            .div(&squares(&x)?.mul(&squares(&y)?)?.sqrt()?)?;
        let target = labels(OP, &cosine, self, target)?;
        let (near, far) = (cosine.rsub_scalar(1.0)?, cosine.sub_scalar(margin)?.clamp_min(0.0)?);
        let losses = Tensor::where_(&target.gt_scalar(0.0)?, &near, &far)?;
        finish(self, &losses, reduction)
    }

    /// max(0, −t·(x − y) + margin), for targets of 1 where x should rank above y and −1 where it should rank below
    /// (`torch.nn.functional.margin_ranking_loss`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Tensor::from_slice(&cpu, &[2f32, 2.0], &[2])?, Tensor::from_slice(&cpu, &[1f32, 3.0], &[2])?);
    /// let above = Tensor::ones(&cpu, &[2], DType::F32)?;
    /// assert_eq!(x.margin_ranking_loss(&y, &above, 0.5, Reduction::None)?.to_vec::<f32>()?, [0.0, 1.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another shape or dtype.
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor<B>,
        target: &Tensor<B>,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor<B>> {
        const OP: &str = "margin_ranking_loss";
        let [x, y] = operands(OP, self, other)?;
        let target = labels(OP, &x, self, target)?;
        let losses = y.sub(&x)?.mul(&target)?.add_scalar(margin)?.clamp_min(0.0)?;
        finish(self, &losses, reduction)
    }

    /// x where the target is 1, max(0, margin − x) where it is −1 (`torch.nn.functional.hinge_embedding_loss`).
    ///
    /// ```
    /// # use kiln_nn::{Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::from_slice(&cpu, &[0.5f32, 0.25], &[2])?, Tensor::from_slice(&cpu, &[1f32, -1.0], &[2])?);
    /// assert_eq!(x.hinge_embedding_loss(&t, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.5, 0.75]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn hinge_embedding_loss(&self, target: &Tensor<B>, margin: f64, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("hinge_embedding_loss", self, target)?;
        // A target that is neither counts as both, as PyTorch's does.
        let near = x.masked_fill(&target.eq_scalar(-1.0)?, 0.0)?;
        let far = x
            .rsub_scalar(margin)?
            .clamp_min(0.0)?
            .masked_fill(&target.eq_scalar(1.0)?, 0.0)?;
        finish(self, &near.add(&far)?, reduction)
    }

    /// ln(1 + e^(−t·x)) for targets of 1 and −1 (`torch.nn.functional.soft_margin_loss`), without overflow.
    ///
    /// ```
    /// # use kiln_nn::{DType, Reduction, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, t) = (Tensor::zeros(&cpu, &[1], DType::F32)?, Tensor::ones(&cpu, &[1], DType::F32)?);
    /// assert!((x.soft_margin_loss(&t, Reduction::Mean)?.item()? - 2f64.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn soft_margin_loss(&self, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("soft_margin_loss", self, target)?;
        finish(self, &x.mul(&target)?.neg()?.softplus(1.0, 40.0)?, reduction)
    }
}
