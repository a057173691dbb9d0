//! Distances of vectors, and losses that compare them with a margin.

use super::pointwise::{finish, operands};
use super::{Reduction, widened};
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Tensor};

/// The options of [`Tensor::triplet_margin_loss`].
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
    same_dtype(op, x, target)?;
    if losses.shape() != target.shape() {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *losses.shape(),
            rhs: *target.shape(),
        });
    }
    widened(target)
}

impl<B: Backend> Tensor<B> {
    /// The cosine of the angle between vectors along `axis`, `x·y / (max(‖x‖, eps)·max(‖y‖, eps))`
    /// (`torch.nn.functional.cosine_similarity`, whose eps is 1e-8 by default). The axis is dropped.
    ///
    /// # Errors
    /// Another shape or dtype, an axis out of range.
    pub fn cosine_similarity(&self, other: &Tensor<B>, axis: isize, eps: f64) -> Result<Tensor<B>> {
        let [x, y] = operands("cosine_similarity", self, other)?;
        let length = |x: &Tensor<B>| x.norm(2.0, &[axis], false)?.clamp_min(eps);
        let product = x.mul(&y)?.sum(&[axis], false)?;
        product.div(&length(&x)?.mul(&length(&y)?)?)?.to_dtype(self.dtype())
    }

    /// The p-norm of `self − other + eps` along the last axis, which is dropped (`torch.nn.functional.pairwise_distance`, whose eps
    /// is 1e-6 by default).
    ///
    /// # Errors
    /// Another shape or dtype, a scalar; the orders that [`Tensor::norm`] refuses.
    pub fn pairwise_distance(&self, other: &Tensor<B>, p: f64, eps: f64) -> Result<Tensor<B>> {
        let [x, y] = operands("pairwise_distance", self, other)?;
        let distance = x.sub(&y)?.add_scalar(eps)?.norm(p, &[-1], false)?;
        distance.to_dtype(self.dtype())
    }

    /// max(0, margin + d(x, positive) − d(x, negative)) of vectors along the last axis, with d of [`Tensor::pairwise_distance`]
    /// (`torch.nn.functional.triplet_margin_loss`).
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
    /// # Errors
    /// A target of another shape or dtype.
    pub fn hinge_embedding_loss(&self, target: &Tensor<B>, margin: f64, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("hinge_embedding_loss", self, target)?;
        let far = x.rsub_scalar(margin)?.clamp_min(0.0)?;
        finish(self, &Tensor::where_(&target.gt_scalar(0.0)?, &x, &far)?, reduction)
    }

    /// ln(1 + e^(−t·x)) for targets of 1 and −1 (`torch.nn.functional.soft_margin_loss`), without overflow.
    ///
    /// # Errors
    /// A target of another shape or dtype.
    pub fn soft_margin_loss(&self, target: &Tensor<B>, reduction: Reduction) -> Result<Tensor<B>> {
        let [x, target] = operands("soft_margin_loss", self, target)?;
        finish(self, &x.mul(&target)?.neg()?.softplus(1.0, 40.0)?, reduction)
    }
}
