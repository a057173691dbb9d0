//! Losses, profiled.

use super::{elements, moved, optional};
use crate::backend::{Profiled, bytes, unless_recording};
use kiln_core::ops::{CrossEntropyParams, CtcParams, LossOps};
use kiln_core::{Backend, Result, checks};

impl<B: Backend> LossOps for Profiled<B> {
    fn cross_entropy(
        &self,
        p: &CrossEntropyParams,
        logits: &B::Buffer,
        labels: &B::Buffer,
        class_weights: Option<&B::Buffer>,
        loss: &mut B::Buffer,
        weight: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, cross_entropy(p, logits, labels, class_weights, loss, weight));
        checks::cross_entropy(self, p, logits, labels, class_weights, loss, weight)?;
        let read = bytes(logits) + bytes(labels) + optional(class_weights);
        let cost = moved(read + bytes(loss) + bytes(weight));
        self.op("cross_entropy", cost, elements(logits), |b| {
            b.cross_entropy(p, logits, labels, class_weights, loss, weight)
        })
    }

    fn cross_entropy_mean(
        &self,
        p: &CrossEntropyParams,
        logits: &B::Buffer,
        labels: &B::Buffer,
        class_weights: Option<&B::Buffer>,
        loss: &mut B::Buffer,
        total: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(self, cross_entropy_mean(p, logits, labels, class_weights, loss, total));
        checks::cross_entropy_mean(self, p, logits, labels, class_weights, loss, total)?;
        let read = bytes(logits) + bytes(labels) + optional(class_weights);
        let cost = moved(read + bytes(loss) + bytes(total));
        self.op("cross_entropy", cost, elements(logits), |b| {
            b.cross_entropy_mean(p, logits, labels, class_weights, loss, total)
        })
    }

    fn cross_entropy_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &B::Buffer,
        labels: &B::Buffer,
        class_weights: Option<&B::Buffer>,
        g: &B::Buffer,
        total: Option<&B::Buffer>,
        dlogits: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(
            self,
            cross_entropy_grad(p, logits, labels, class_weights, g, total, dlogits)
        );
        checks::cross_entropy_grad(self, p, logits, labels, class_weights, g, total, dlogits)?;
        let read = bytes(logits) + bytes(labels) + optional(class_weights) + bytes(g);
        self.op(
            "cross_entropy_grad",
            moved(read + bytes(dlogits)),
            elements(logits),
            |b| b.cross_entropy_grad(p, logits, labels, class_weights, g, total, dlogits),
        )
    }

    fn cross_entropy_grad_in_place(
        &self,
        p: &CrossEntropyParams,
        logits: &mut B::Buffer,
        labels: &B::Buffer,
        class_weights: Option<&B::Buffer>,
        g: &B::Buffer,
        total: Option<&B::Buffer>,
    ) -> Result<()> {
        unless_recording!(
            self,
            cross_entropy_grad_in_place(p, logits, labels, class_weights, g, total)
        );
        checks::cross_entropy_grad_in_place(self, p, logits, labels, class_weights, g, total)?;
        let read = bytes(logits) + bytes(labels) + optional(class_weights) + bytes(g);
        let cost = moved(read + bytes(logits));
        self.op("cross_entropy_grad", cost, elements(logits), |b| {
            b.cross_entropy_grad_in_place(p, logits, labels, class_weights, g, total)
        })
    }

    fn cross_entropy_with_grad(
        &self,
        p: &CrossEntropyParams,
        logits: &mut B::Buffer,
        labels: &B::Buffer,
        class_weights: Option<&B::Buffer>,
        loss: &mut B::Buffer,
        weight: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(
            self,
            cross_entropy_with_grad(p, logits, labels, class_weights, loss, weight)
        );
        checks::cross_entropy_with_grad(self, p, logits, labels, class_weights, loss, weight)?;
        let cost = moved(2 * bytes(logits) + bytes(labels) + bytes(loss) + bytes(weight));
        let elements = elements(logits);
        self.op("cross_entropy_with_grad", cost, elements, |b| {
            b.cross_entropy_with_grad(p, logits, labels, class_weights, loss, weight)
        })
    }

    fn ctc_loss(
        &self,
        p: &CtcParams,
        log_probs: &B::Buffer,
        targets: &B::Buffer,
        input_lengths: &B::Buffer,
        target_lengths: &B::Buffer,
        loss: &mut B::Buffer,
        alpha: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(
            self,
            ctc_loss(p, log_probs, targets, input_lengths, target_lengths, loss, alpha)
        );
        checks::ctc_loss(self, p, log_probs, targets, input_lengths, target_lengths, loss, alpha)?;
        let read = bytes(log_probs) + bytes(targets) + bytes(input_lengths) + bytes(target_lengths);
        let cost = moved(read + bytes(loss) + bytes(alpha));
        self.op("ctc_loss", cost, elements(log_probs), |b| {
            b.ctc_loss(p, log_probs, targets, input_lengths, target_lengths, loss, alpha)
        })
    }

    fn ctc_loss_grad(
        &self,
        p: &CtcParams,
        log_probs: &B::Buffer,
        targets: &B::Buffer,
        input_lengths: &B::Buffer,
        target_lengths: &B::Buffer,
        alpha: &B::Buffer,
        g: &B::Buffer,
        dlog_probs: &mut B::Buffer,
    ) -> Result<()> {
        unless_recording!(
            self,
            ctc_loss_grad(
                p,
                log_probs,
                targets,
                input_lengths,
                target_lengths,
                alpha,
                g,
                dlog_probs
            )
        );
        checks::ctc_loss_grad(
            self,
            p,
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            alpha,
            g,
            dlog_probs,
        )?;
        let read = bytes(log_probs) + bytes(targets) + bytes(input_lengths) + bytes(target_lengths) + bytes(g);
        let cost = moved(read + bytes(alpha) + bytes(dlog_probs));
        self.op("ctc_loss_grad", cost, elements(log_probs), |b| {
            b.ctc_loss_grad(
                p,
                log_probs,
                targets,
                input_lengths,
                target_lengths,
                alpha,
                g,
                dlog_probs,
            )
        })
    }
}
