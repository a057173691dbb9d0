//! The fused softmax cross-entropy, and CTC. Other losses are composed from elementwise ops and reductions in `kiln-nn`.

mod ctc;

pub use ctc::CtcParams;

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

    /// The CTC loss of each sequence, `loss[n] = −ln Σ Π_t p[t, n, π[t]]` over all alignments π of its `input_lengths[n]` steps that become its
    /// `target_lengths[n]` labels when repetitions are merged and blanks left out, and infinity, or 0 with `zero_infinity`, where there is
    /// none (Graves et al., "Connectionist temporal classification", ICML 2006). `log_probs` is `[T, N, C]`; labels `[N, S]` and lengths
    /// `[N]` are i32; `loss` `[N]` and `alpha` `[N, T, 2S + 1]` are of the accumulation dtype. `alpha` is for the gradient: the logarithms
    /// of the probabilities of all beginnings of alignments, for each step first those that end in the S + 1 blanks and then those that
    /// end in the S labels; places beyond the lengths are not written.
    ///
    /// # Errors
    /// [`CtcParams::input_length_error`], [`CtcParams::target_length_error`] and [`CtcParams::label_error`]; labels beyond a length are not
    /// looked at.
    fn ctc_loss(
        &self,
        p: &CtcParams,
        log_probs: &Self::Buffer,
        targets: &Self::Buffer,
        input_lengths: &Self::Buffer,
        target_lengths: &Self::Buffer,
        loss: &mut Self::Buffer,
        alpha: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, log_probs, targets, input_lengths, target_lengths, loss, alpha);
        self.unsupported(Op::CtcLoss)
    }

    /// The gradient of [`LossOps::ctc_loss`] for that of the losses, `g` `[N]` of the accumulation dtype, as PyTorch has it: that of logits
    /// whose log-softmax is `log_probs`, `dlog_probs[t, n, c] = g[n]·(p[t, n, c] − Σ γ[t, n, s])`, the sum over the states s of class c of
    /// their probability γ given the labels. It is 0 beyond the length of a sequence; where the loss is infinite, NaN, or 0 with
    /// `zero_infinity`. It is rounded once, to the dtype of `log_probs`.
    ///
    /// # Errors
    /// As [`LossOps::ctc_loss`], if the backend checks again.
    fn ctc_loss_grad(
        &self,
        p: &CtcParams,
        log_probs: &Self::Buffer,
        targets: &Self::Buffer,
        input_lengths: &Self::Buffer,
        target_lengths: &Self::Buffer,
        alpha: &Self::Buffer,
        g: &Self::Buffer,
        dlog_probs: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (
            p,
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            alpha,
            g,
            dlog_probs,
        );
        self.unsupported(Op::CtcLoss)
    }
}
