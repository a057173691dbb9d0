//! The fused softmax cross-entropy. Other losses are composed from elementwise ops and reductions in `kiln-nn`.

use super::Op;
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of cross-entropy from logits `[rows, classes]`, `stride` apart, and integer labels `[rows]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CrossEntropyParams {
    /// The number of rows.
    pub rows: u64,
    /// The number of classes.
    pub classes: u64,
    /// The elements from one row to the next, at least `classes`: those behind them are padding, which is neither read nor written.
    pub stride: u64,
    /// Label smoothing ε in `0..=1`.
    pub smoothing: f64,
    /// The label of rows that contribute nothing; −100 by default in PyTorch.
    pub ignore_index: i64,
}
const _: () = assert!(size_of::<CrossEntropyParams>() == 40);

impl CrossEntropyParams {
    /// Parameters for `logits` of rank 1 or more, classes last, and `labels` of the shape without the last dimension.
    ///
    /// # Errors
    /// [`Error::Rank`] for logits of rank 0; an error for no classes, labels of another shape, a smoothing outside `0..=1`.
    pub fn new(op: &'static str, logits: &Shape, labels: &Shape, smoothing: f64, ignore_index: i64) -> Result<Self> {
        if logits.rank() == 0 {
            return Err(Error::Rank {
                op,
                expected: "1 or more",
                rank: 0,
            });
        }
        let (lead, classes) = (&logits[..logits.rank() - 1], logits[logits.rank() - 1]);
        if lead != labels.dims() {
            return Err(Error::ShapeMismatch {
                op,
                lhs: *logits,
                rhs: *labels,
            });
        }
        if classes == 0 {
            return Err(Error::invalid(op, "classes", 0, "at least 1"));
        }
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::invalid(op, "label_smoothing", smoothing, "a number from 0 to 1"));
        }
        Ok(CrossEntropyParams {
            rows: labels.size() as u64,
            classes: classes as u64,
            stride: classes as u64,
            smoothing,
            ignore_index,
        })
    }
}

/// Losses of a backend.
pub trait LossOps: Runtime {
    /// With `ℓ = log_softmax(logits[r])`, label `t`, class weights `w` (1 when absent) and smoothing ε:
    /// `loss[r] = −(1−ε)·w[t]·ℓ[t] − ε/C·Σ_c w[c]·ℓ[c]` and `weight[r] = w[t]`; both are 0 for an ignored row. They are
    /// of the logits' accumulation dtype (f32, or f64 for f64), because they are averaged afterwards; the class
    /// weights have the dtype of the logits; labels are i32.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] for a label that is neither a class nor `ignore_index`.
    fn cross_entropy(
        &self,
        p: &CrossEntropyParams,
        logits: &Self::Buffer,
        labels: &Self::Buffer,
        class_weights: Option<&Self::Buffer>,
        loss: &mut Self::Buffer,
        weight: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, logits, labels, class_weights, loss, weight);
        self.unsupported(Op::CrossEntropy)
    }

    /// The mean of the losses of [`LossOps::cross_entropy`], `loss = Σ loss[r] / total`, `[1]`, with `total = Σ weight[r]`, `[1]`, both of
    /// the accumulation dtype; NaN where no row counts.
    ///
    /// # Errors
    /// As [`LossOps::cross_entropy`].
    fn cross_entropy_mean(
        &self,
        p: &CrossEntropyParams,
        logits: &Self::Buffer,
        labels: &Self::Buffer,
        class_weights: Option<&Self::Buffer>,
        loss: &mut Self::Buffer,
        total: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, logits, labels, class_weights, loss, total);
        self.unsupported(Op::CrossEntropy)
    }

    /// Computes the gradient of [`LossOps::cross_entropy`] for the gradient `g` of the losses, `[rows]` of the accumulation
    /// dtype, or of [`LossOps::cross_entropy_mean`] for that of the mean, `[1]`, and its `total`, where every row has
    /// `g[r] = g / total`: `dlogits[r, c] = g[r]·(e^ℓ[c]·Σ_k a[k] − a[c])` with
    /// `a[c] = ε/C·w[c] + (c = t)·(1−ε)·w[t]`, and 0 in an ignored row for any `g`. It is rounded once, to the
    /// dtype of the logits.
    ///
    /// # Errors
    /// As [`LossOps::cross_entropy`], if the backend checks the labels again.
    fn cross_entropy_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &Self::Buffer,
        labels: &Self::Buffer,
        class_weights: Option<&Self::Buffer>,
        g: &Self::Buffer,
        total: Option<&Self::Buffer>,
        dlogits: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, logits, labels, class_weights, g, total, dlogits);
        self.unsupported(Op::CrossEntropy)
    }

    /// As [`LossOps::cross_entropy_grad`], written over the logits.
    ///
    /// # Errors
    /// As [`LossOps::cross_entropy_grad`]. The logits are lost then.
    fn cross_entropy_grad_in_place(
        &self,
        p: &CrossEntropyParams,
        logits: &mut Self::Buffer,
        labels: &Self::Buffer,
        class_weights: Option<&Self::Buffer>,
        g: &Self::Buffer,
        total: Option<&Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, logits, labels, class_weights, g, total);
        self.unsupported(Op::CrossEntropy)
    }

    /// The losses and weights of [`LossOps::cross_entropy`], and over the logits the gradient of the sum of the losses: what
    /// [`LossOps::cross_entropy_grad_in_place`] writes for a `g` of ones.
    ///
    /// # Errors
    /// As [`LossOps::cross_entropy_grad_in_place`].
    fn cross_entropy_with_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &mut Self::Buffer,
        labels: &Self::Buffer,
        class_weights: Option<&Self::Buffer>,
        loss: &mut Self::Buffer,
        weight: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, logits, labels, class_weights, loss, weight);
        self.unsupported(Op::CrossEntropy)
    }
}
